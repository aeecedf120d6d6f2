/**
 * The list of conversations: those who are known, requests of strangers, and
 * who has written what last.
 */
import { useState } from "preact/hooks";
import type { Conversation, StoredMessage } from "../client/package.ts";
import { isFile, isReport } from "./files.ts";
import { changeOf, isChange, type Names, useNames } from "./groups.tsx";
import { Avatar, Button, Icon, IconButton, nameOf, useSession, useStored } from "./parts.tsx";
import { type Panel, showConversation } from "./place.ts";
import { excerptOf, type Found, useSearch } from "./search.ts";
import { me } from "./session.ts";
import { folded, oneLine, whenOf } from "./text.ts";
import { t } from "./words/language.ts";

const isRequest = ({ person, group }: Conversation): boolean =>
  group === null ? person !== null && !person.isKnown : group.standing === "asked";

const titleOf = ({ person, id, group }: Conversation): string => nameOf(person, id, group);

/** One line of what a message says, and in a group who says it. */
export function summaryOf(
  message: StoredMessage | null,
  sender = message?.isOwn ? t.you : "",
): string {
  if (message === null) return "";
  if (isChange(message)) return `${sender} ${changeOf(message)}`;
  if (message.revised === "deleted") return t.messageDeleted;
  if (isReport(message)) return t.reportMessage;
  const said = isFile(message)
    ? t.fileSummary(oneLine(message.name) || t.withoutName)
    : oneLine(message.text ?? "", 90);
  return sender === "" ? said : `${sender}: ${said}`;
}

/** Pinned ones first, else as they are. */
const pinnedFirst = (all: readonly Conversation[]): readonly Conversation[] =>
  all.toSorted((a, b) => Number(b.isPinned) - Number(a.isPinned));

/** Those who have written or were written to, then people with whom nothing was said yet. */
export async function allOf(): Promise<Conversation[]> {
  const [begun, people] = await Promise.all([me.store.conversations(), me.store.people()]);
  const ids = new Set<string>([me.did, ...begun.map(({ id }) => id)]);
  const silent = people.filter((person) => person.isKnown && !ids.has(person.did));
  return [
    ...begun,
    ...(await Promise.all(
      silent.map(async (person) => ({
        id: person.did,
        person,
        group: null,
        unread: 0,
        last: null,
        ...(await me.store.chosen(person.did)),
      })),
    )),
  ];
}

type PeopleProps = { readonly selected: string | null; readonly open: (panel: Panel) => void };

export function People({ selected, open }: PeopleProps) {
  const { isConnected } = useSession();
  const [sought, setSought] = useState("");
  const conversations = useStored(() => allOf(), []);
  const messages = useSearch(sought);
  const names = useNames();
  const shown = (conversations ?? []).filter(({ person }) => person?.isBlocked !== true);
  const found = shown.filter((one) => folded(titleOf(one)).includes(folded(sought.trim())));
  const requests = found.filter(isRequest);
  const known = pinnedFirst(found.filter((one) => !isRequest(one) && !one.isArchived));
  const away = found.filter((one) => !isRequest(one) && one.isArchived);
  return (
    <nav class="people" aria-label={t.conversations}>
      <header class="bar">
        <h1>Waypost</h1>
        <span class="state" role="status">
          {isConnected ? "" : t.connecting}
        </span>
        <IconButton shape="settings" label={t.settings} onClick={() => open({ is: "settings" })} />
        <IconButton
          shape="add"
          label={t.addSomebody}
          class="round filled"
          onClick={() => open({ is: "invite" })}
        />
      </header>
      {shown.length > 0 && (
        <input
          class="search"
          type="search"
          dir="auto"
          placeholder={t.search}
          aria-label={t.searchAll}
          value={sought}
          onInput={({ currentTarget }) => setSought(currentTarget.value)}
        />
      )}
      <div class="scroll">
        {requests.length > 0 && (
          <Part title={t.requests} {...{ conversations: requests, selected, names }} />
        )}
        {requests.length > 1 && (
          <Button danger ask={t.deleteRequestsAsk} onClick={() => refuseAll(requests)}>
            {t.deleteRequests}
          </Button>
        )}
        {known.length > 0 && (
          <Part
            title={requests.length > 0 ? t.people : ""}
            {...{ conversations: known, selected, names }}
          />
        )}
        {away.length > 0 && (
          <details open={sought !== "" || away.some(({ id }) => id === selected)}>
            <summary>
              {t.archived} <span class="size">{away.length}</span>
            </summary>
            <Part title="" {...{ conversations: away, selected, names }} />
          </details>
        )}
        {messages !== null && <FoundMessages {...messages} sought={sought} />}
        {conversations !== null && shown.length === 0 && (
          <div class="empty">
            <p>{t.noConversations}</p>
            <Button main onClick={() => open({ is: "invite" })}>
              {t.inviteSomebody}
            </Button>
          </div>
        )}
      </div>
    </nav>
  );
}

async function refuseAll(requests: readonly Conversation[]): Promise<void> {
  for (const { id, group } of requests) {
    if (group !== null) await (await me.groups.get(id))?.leave();
    await me.store.removeConversation(id);
  }
  showConversation(null);
}

/** Up and down go from one conversation to the next. */
function moveByKey(event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const rows = [...document.querySelectorAll<HTMLElement>(".people .row")];
  const at = rows.indexOf(event.currentTarget);
  if (step === undefined) return;
  event.preventDefault();
  rows[at + step]?.focus();
}

type PartProps = {
  readonly title: string;
  readonly conversations: readonly Conversation[];
  readonly selected: string | null;
  readonly names: Names;
};

function Part({ title, conversations, selected, names }: PartProps) {
  return (
    <section aria-label={title || t.people}>
      {title !== "" && <h2 class="label">{title}</h2>}
      <ul>
        {conversations.map((one) => (
          <li key={one.id}>
            <Row conversation={one} isSelected={one.id === selected} names={names} />
          </li>
        ))}
      </ul>
    </section>
  );
}

type FoundProps = {
  readonly found: readonly Found[];
  readonly isOver: boolean;
  readonly sought: string;
};

function FoundMessages({ found, isOver, sought }: FoundProps) {
  const none = isOver ? t.noneFound : t.searching;
  return (
    <section aria-label={t.foundMessages}>
      <p class="label" role="status">
        {found.length > 0 ? t.messages : none}
      </p>
      <ul>
        {found.map(({ conversation, message }) => (
          <li key={message.key}>
            <button
              type="button"
              class="row"
              onClick={() => showConversation(conversation.id, message.id)}
            >
              <span class="lines">
                <Top name={titleOf(conversation)} at={message.arrivedAt} />
                <bdi class="last">{oneLine(excerptOf(message, sought), 90)}</bdi>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Top({ name, at }: { readonly name: string; readonly at: Date | null }) {
  return (
    <span class="top">
      <bdi class="name">{name}</bdi>
      {at !== null && <time>{whenOf(at)}</time>}
    </span>
  );
}

type RowProps = Pick<PartProps, "names"> & {
  readonly conversation: Conversation;
  readonly isSelected: boolean;
};

function Row({ conversation, isSelected, names }: RowProps) {
  const { id, person, group, unread, last, isPinned, isMuted } = conversation;
  const name = titleOf(conversation);
  const count = unread > 99 ? "99+" : String(unread);
  const isNamed = group !== null || (last !== null && isChange(last));
  return (
    <button
      type="button"
      class="row"
      aria-current={isSelected ? "page" : undefined}
      onKeyDown={moveByKey}
      onClick={() => showConversation(id)}
    >
      <Avatar {...{ id, name, person }} />
      <span class="lines">
        <Top name={name} at={last?.arrivedAt ?? null} />
        <span class="top">
          <bdi class="last">{summaryOf(last, isNamed ? names(last?.from ?? null) : undefined)}</bdi>
          {(isPinned || isMuted) && (
            <span class="size">
              {isPinned && <Icon shape="pin" label={t.pinned} />}
              {isMuted && <Icon shape="mute" label={t.muted} />}
            </span>
          )}
          {unread > 0 && (
            <span class={isMuted ? "count quiet" : "count"}>
              {count}
              <span class="hidden"> {t.unread}</span>
            </span>
          )}
          {last?.delivery?.state === "failed" && (
            <span class="doubt">
              <Icon shape="failed" label={t.notSentShort} />
            </span>
          )}
        </span>
      </span>
    </button>
  );
}
