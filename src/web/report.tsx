/**
 * Reporting: which messages of somebody the operator of this server gets to
 * see, and whom they can ask.
 */
import { useEffect, useState } from "preact/hooks";
import { about } from "../client/net/about.ts";
import type { Operator, StoredMessage } from "../client/package.ts";
import { Check, Dialog, Form, Input, useStored } from "./parts.tsx";
import { summaryOf } from "./people.tsx";
import { attempt, me, toast } from "./session.ts";
import { timeOf } from "./text.ts";
import { t } from "./words/language.ts";

type OperatorFacts = {
  /** Whom reports go to, and whom the server named before, where that was somebody else. */
  readonly named: Operator | null;
  readonly contact: string | null;
  readonly rules: string | null;
};

/** What the server says of who runs it; `null` until it has answered. */
function useOperator(): OperatorFacts | null {
  const [operator, setOperator] = useState<OperatorFacts | null>(null);
  useEffect(() => {
    const none = { named: null, contact: null, rules: null };
    const asked = Promise.all([about(me.client.directory.endpoint), me.operator()]);
    asked.then(
      ([{ operator }, named]) => setOperator({ ...none, ...operator, named }),
      () => setOperator(none),
    );
  }, []);
  return operator;
}

/**
 * Of another kind than a link that a page may follow, an address is not shown:
 * the server is a stranger's.
 */
const isLink = (url: string | null): url is string =>
  url !== null && /^(https:\/\/|mailto:)/.test(url);

/** Where the operator is reached, and the rules; nothing where the server names none. */
function OperatorLinks({ operator }: { readonly operator: OperatorFacts | null }) {
  const links = [
    [operator?.contact ?? null, t.operatorContact],
    [operator?.rules ?? null, t.operatorRules],
  ] as const;
  const shown = links.filter(([url]) => isLink(url));
  if (shown.length === 0) return null;
  return (
    <p>
      {shown.map(([url, text]) => (
        <span key={text}>
          <a href={url ?? ""} target="_blank" rel="noopener noreferrer">
            {text}
          </a>{" "}
        </span>
      ))}
    </p>
  );
}

/** The same for the settings, where the user can believe another operator than before. */
export function AboutOperator() {
  const operator = useOperator();
  const [believed, setBelieved] = useState(false);
  const before = operator?.named?.before ?? null;
  const believe = async () => {
    await me.forget("operator");
    setBelieved(true);
  };
  return (
    <>
      <OperatorLinks operator={operator} />
      {before !== null && !believed && (
        <>
          <p role="alert">{t.operatorChanged}</p>
          <button type="button" onClick={() => void attempt(believe)}>
            {t.operatorBelieved}
          </button>
        </>
      )}
    </>
  );
}

const offeredMax = 20;

/** The latest of the same person, with the one that was pointed at. */
async function offered(message: StoredMessage): Promise<readonly StoredMessage[]> {
  const all = await me.store.messages(message.conversation, { limit: 200 });
  const theirs = all.filter((one) => one.from === message.from && !one.isOwn);
  const latest = theirs.slice(-offeredMax);
  return latest.some(({ key }) => key === message.key) ? latest : [message, ...latest];
}

/** The report stands in a conversation, in which the operator may answer. */
async function nameOperator(did: string): Promise<void> {
  const known = await me.store.person(did);
  if ((known?.name ?? "") === "") await me.store.savePerson(did, { name: t.operatorName });
}

type Props = { readonly message: StoredMessage; readonly onClose: () => void };

export function Report({ message, onClose }: Props) {
  const operator = useOperator();
  const theirs = useStored(() => offered(message), [message.key]);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set([message.key]));
  const [reason, setReason] = useState("");
  const [blocks, setBlocks] = useState(false);
  const [agrees, setAgrees] = useState(false);
  const { from } = message;
  const named = operator?.named ?? null;
  const isOther = (named?.before ?? null) !== null;
  const toggleMessage = (key: string) => {
    const next = new Set(chosen);
    if (!next.delete(key)) next.add(key);
    setChosen(next);
  };
  const send = async () => {
    const messages = (theirs ?? []).filter(({ key }) => chosen.has(key));
    if (messages.length === 0) throw new Error(t.reportNone);
    if (isOther && !agrees) throw new Error(t.operatorChanged);
    const { recipient } = await me.report(
      messages,
      reason.trim(),
      agrees && named !== null ? { operator: named.did } : {},
    );
    await nameOperator(recipient.did);
    if (blocks && from !== null) await me.store.savePerson(from, { isBlocked: true });
    onClose();
    toast(t.reported);
  };
  return (
    <Dialog title={t.reportTitle} onClose={onClose}>
      <p>{operator !== null && named === null ? t.failures.no_operator : t.reportText}</p>
      <OperatorLinks operator={operator} />
      {named !== null && (
        <Form submit={t.sendReport} onSubmit={send}>
          <p>
            {t.operatorGoesTo} <code>{named.did}</code>
          </p>
          {isOther && <p role="alert">{t.operatorChanged}</p>}
          {isOther && (
            <Check isOn={agrees} onChange={() => setAgrees(!agrees)}>
              {t.operatorAgreed}
            </Check>
          )}
          <fieldset class="fields">
            <legend>{t.reportWhich}</legend>
            {(theirs ?? []).map((one) => (
              <Check
                key={one.key}
                isOn={chosen.has(one.key)}
                onChange={() => toggleMessage(one.key)}
              >
                <bdi>{summaryOf(one, "")}</bdi> <time>{timeOf(one.sentAt)}</time>
              </Check>
            ))}
          </fieldset>
          <Input label={t.reportReason} value={reason} onText={setReason} maxLength={500} />
          {from !== null && (
            <Check isOn={blocks} onChange={() => setBlocks(!blocks)}>
              {t.reportBlocks}
            </Check>
          )}
        </Form>
      )}
    </Dialog>
  );
}
