/** One message: its text or file, what it answers, reactions, and what has become of it. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { DeliveryState, StoredMessage } from "../client/package.ts";
import { askFor, isFile, isReport, mayBePicture, pictureOf, saveFile } from "./files.ts";
import { type Names, react } from "./groups.tsx";
import { mayPlay, Player } from "./media.tsx";
import {
  Button,
  Icon,
  type IconShape,
  isOfInputMethod,
  useSession,
  useStored,
  useUrl,
} from "./parts.tsx";
import { summaryOf } from "./people.tsx";
import { attempt, failureText, me } from "./session.ts";
import { cut, durationOf, oneLine, type Piece, piecesOf, sizeText, timeOf } from "./text.ts";
import { t } from "./words/language.ts";

type BubbleProps = {
  readonly message: StoredMessage;
  readonly onReply: () => void;
  readonly onForward: () => void;
  readonly onReport: () => void;
};
export type By = {
  readonly names: Names;
  readonly sender: string;
  readonly isGroup: boolean;
  /** The next message belongs to the same series, and has its time. */
  readonly isContinued: boolean;
};

const reactions = ["👍", "❤️", "😂", "😮", "😢", "🙏"];

export function Bubble(props: BubbleProps & By) {
  const { message, names, sender, isGroup, isContinued, onReply, onForward, onReport } = props;
  const [isOpen, setOpen] = useState(false);
  const [isEditing, setEditing] = useState(false);
  const more = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    more.current?.focus({ preventScroll: true });
  };
  const { isOwn, verified, distrusted, conversation, lastsSeconds = 0 } = message;
  const [showsReaders, setShowsReaders] = useState(false);
  const calls = message.mentions?.includes(me.did) === true && !isOwn;
  const doubts =
    !isOwn && conversation !== "unverified" && (verified !== true || distrusted !== null);
  return (
    <article class={`message ${isOwn ? "own" : "others"}`} aria-label={sender}>
      <div class={calls ? "bubble calls" : "bubble"}>
        {isGroup && !isOwn && <bdi class="sender">{sender}</bdi>}
        {message.isForwarded === true && <p class="mark">{t.forwarded}</p>}
        {calls && <span class="hidden">{t.callsYou}</span>}
        {message.replyTo !== null && <Quoted answer={message} />}
        {isEditing ? (
          <EditForm message={message} onDone={() => setEditing(false)} />
        ) : (
          <MessageContent message={message} />
        )}
        {doubts && <p class="doubt">{t.unprovenMessage}</p>}
        <footer class={isContinued && message.revised === null ? "continued" : ""}>
          {message.revised === "edited" && <span>{t.edited}</span>}
          {lastsSeconds > 0 && (
            <span title={t.disappears(durationOf(lastsSeconds))}>
              <Icon shape="waiting" label={t.disappears(durationOf(lastsSeconds))} />
            </span>
          )}
          <time dateTime={dateTimeOf(message.sentAt)}>{timeOf(message.sentAt)}</time>
          {isOwn && <Delivery message={message} />}
        </footer>
        {message.reactions.length > 0 && (
          <p class="reactions">
            {reactionsOf(message).map(([reaction, from]) => (
              <span key={reaction} title={from.map(names).join(", ")}>
                {reaction}
                {from.length > 1 && <span class="times"> {from.length}</span>}
              </span>
            ))}
          </p>
        )}
      </div>
      <button
        ref={more}
        type="button"
        class="round more"
        aria-label={t.moreAbout}
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon shape="more" />
      </button>
      {isOpen && (
        <Actions
          {...{ message, onReply, onForward, onReport }}
          onEdit={() => setEditing(true)}
          onReaders={() => setShowsReaders(!showsReaders)}
          onDone={close}
        />
      )}
      {showsReaders && <Readers message={message} names={names} />}
    </article>
  );
}

const reactionsShown = 6;

/** Each reaction with those who gave it, the most frequent first. */
function reactionsOf({ reactions: given }: StoredMessage): [reaction: string, from: string[]][] {
  const by = new Map<string, string[]>();
  for (const { from, reaction } of given) {
    const shown = cut(reaction, 1);
    by.set(shown, [...(by.get(shown) ?? []), from]);
  }
  return [...by].toSorted(([, a], [, b]) => b.length - a.length).slice(0, reactionsShown);
}

const dateTimeOf = (at: Date): string => (Number.isFinite(at.getTime()) ? at.toISOString() : "");

/** What has become of an own message at each member. */
function Readers({ message, names }: Pick<BubbleProps, "message"> & Pick<By, "names">) {
  return (
    <ul class="readers" aria-label={t.whoHasIt}>
      {message.delivery?.to.map(({ did, state }) => (
        <li key={did}>
          <bdi>{names(did)}</bdi>: {t.states[state]}
        </li>
      ))}
    </ul>
  );
}

type ActionsProps = BubbleProps & {
  readonly onEdit: () => void;
  readonly onReaders: () => void;
  readonly onDone: () => void;
};

function Actions(props: ActionsProps) {
  const { message, onReply, onForward, onReport, onEdit, onReaders, onDone } = props;
  const { conversation, text } = message;
  const own = message.reactions.find(({ from }) => from === me.did)?.reaction;
  const done = (work: () => unknown) => {
    onDone();
    void attempt(work);
  };
  const canAnswer = conversation !== "unverified" && message.revised !== "deleted";
  const isOwnText = message.isOwn && text !== null && !isFile(message);
  return (
    <fieldset
      class="actions"
      aria-label={t.actions}
      onKeyDown={({ key }) => key === "Escape" && onDone()}
    >
      {canAnswer &&
        reactions.map((one) => (
          <button
            type="button"
            class="emoji"
            aria-pressed={one === own}
            key={one}
            onClick={() => done(() => react(message, one === own ? "" : one))}
          >
            {one}
          </button>
        ))}
      {canAnswer && (
        <button type="button" class="plain" onClick={() => done(onReply)}>
          {t.answer}
        </button>
      )}
      {message.revised !== "deleted" && message.content === "whole" && (
        <Button onClick={() => done(onForward)}>{t.forward}</Button>
      )}
      {message.isOwn && message.group !== null && (
        <Button onClick={() => done(onReaders)}>{t.whoHasIt}</Button>
      )}
      {text !== null && !isFile(message) && navigator.clipboard !== undefined && (
        <Button onClick={() => done(() => navigator.clipboard.writeText(text))}>{t.copy}</Button>
      )}
      {isOwnText && <Button onClick={() => done(onEdit)}>{t.edit}</Button>}
      {!message.isOwn && message.revised !== "deleted" && (
        <Button onClick={() => done(onReport)}>{t.report}</Button>
      )}
      <Button danger onClick={() => done(() => me.store.remove(message))}>
        {t.deleteHere}
      </Button>
      {message.isOwn && canAnswer && (
        <Button
          danger
          ask={t.deleteForAllAsk}
          onClick={() => done(() => me.store.deleteForAll(message))}
        >
          {t.deleteForAll}
        </Button>
      )}
    </fieldset>
  );
}

function MessageContent({ message }: Pick<BubbleProps, "message">) {
  if (message.revised === "deleted") return <p class="text gone">{t.wasDeleted}</p>;
  if (isReport(message)) return <p class="text gone">{t.reportMessage}</p>;
  return isFile(message) ? (
    <FileContent message={message} />
  ) : (
    <TextContent text={message.text ?? ""} />
  );
}

type EditProps = Pick<BubbleProps, "message"> & { readonly onDone: () => void };

/** In the place of the text; Escape leaves it as it was. */
function EditForm({ message, onDone }: EditProps) {
  const [text, setText] = useState(message.text ?? "");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const saveEdit = () => {
    const next = text.trim();
    if (next === "") return;
    onDone();
    if (next !== message.text) void attempt(() => me.store.edit(message, next));
  };
  return (
    <form
      class="editing"
      onSubmit={(event) => {
        event.preventDefault();
        saveEdit();
      }}
    >
      <textarea
        ref={field}
        dir="auto"
        rows={Math.min(8, text.split("\n").length + 1)}
        value={text}
        maxLength={16_000}
        aria-label={t.changedMessage}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onDone();
          if (event.key !== "Enter" || event.shiftKey || isOfInputMethod(event)) return;
          event.preventDefault();
          saveEdit();
        }}
      />
      <div class="buttons">
        <button type="submit" class="main">
          {t.save}
        </button>
        <Button onClick={onDone}>{t.cancel}</Button>
      </div>
    </form>
  );
}

function Quoted({ answer }: { readonly answer: StoredMessage }) {
  const message = useStored(() => me.store.answered(answer), [answer.replyTo]);
  return (
    <blockquote>
      <bdi>{message === null ? t.quoteMissing : summaryOf(message)}</bdi>
    </blockquote>
  );
}

const textShown = 3_000;

function PieceOfText({ text, isLink, host, style }: Piece) {
  if (isLink)
    return (
      <a href={text} target="_blank" rel="noopener noreferrer">
        {text}
        {host !== null && ` (${host})`}
      </a>
    );
  if (style === "bold") return <b>{text}</b>;
  if (style === "code") return <code>{text}</code>;
  return text;
}

function TextContent({ text }: { readonly text: string }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? text : cut(text, textShown);
  return (
    <p class="text" dir="auto">
      {piecesOf(shown).map((piece, i) => (
        <PieceOfText key={i} {...piece} />
      ))}
      {shown !== text && <Button onClick={() => setWhole(true)}>{t.showAll}</Button>}
    </p>
  );
}

function FileContent({ message }: Pick<BubbleProps, "message">) {
  const sent = useSession().sending[message.id] ?? 1;
  const [isShown, setShown] = useState(false);
  /**
   * The message as it was when its content was asked for: it is another one
   * when that came, or did not.
   */
  const [asked, setAsked] = useState<StoredMessage | null>(null);
  const name = oneLine(message.name, 48) || t.file;
  if (message.content === "removed") return <p class="text gone">{t.fileRemoved(name)}</p>;
  const size = sizeText(message.sizeBytes);
  const isHere = message.content === "whole";
  const open = async () => {
    if (isHere) return saveFile(me.store, message);
    setAsked(message);
    await askFor(me.store, message);
  };
  const offer = asked === message ? t.coming : t.loadFromOther;
  return (
    <>
      {mayBePicture(message) && (
        <Picture message={message} name={name} onShown={() => setShown(true)} />
      )}
      {mayPlay(message) && <Player message={message} name={name} />}
      {isShown ? (
        <Button onClick={open} label={t.saveFile(name, size)}>
          {t.save}, <bdi>{size}</bdi>
        </Button>
      ) : (
        <button type="button" class="file" onClick={() => attempt(open)}>
          <Icon shape="file" />
          <span class="lines">
            <bdi class="name">{name}</bdi>
            <span class="size">
              <bdi>{size}</bdi> · {isHere ? t.save : offer}
            </span>
          </span>
        </button>
      )}
      {sent < 1 && <progress value={sent} max={1} aria-label={t.sendingFile(name)} />}
    </>
  );
}

const inSight = (element: Element): Promise<void> =>
  new Promise((resolve) => {
    const look: IntersectionObserverCallback = (entries, observer) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      resolve();
    };
    new IntersectionObserver(look, { rootMargin: "400px" }).observe(element);
  });

/** Read when it comes into sight, and given back when it goes. */
function Picture({
  message,
  name,
  onShown,
}: Pick<BubbleProps, "message"> & { name: string; onShown: () => void }) {
  const place = useRef<HTMLDivElement>(null);
  const loadPicture = async () => {
    if (place.current !== null) await inSight(place.current);
    return pictureOf(me.store, message);
  };
  const url = useUrl(loadPicture, [message.key]);
  if (url === "") return null;
  const hide = () => place.current?.setAttribute("hidden", "");
  return (
    <div class="picture" ref={place}>
      {url !== null && <img src={url} alt={t.pictureOf(name)} onLoad={onShown} onError={hide} />}
    </div>
  );
}

const stateShapes: Readonly<Record<DeliveryState, IconShape>> = {
  waiting: "waiting",
  uncertain: "failed",
  failed: "failed",
  sent: "sent",
  received: "received",
  read: "received",
};

function Delivery({ message }: Pick<BubbleProps, "message">) {
  const { state, to } = message.delivery ?? { state: "waiting", to: [] };
  const label = t.states[state];
  const readers = to.filter((one) => one.state === "read").length;
  const of = to.length > 1 && readers > 0 ? `, ${t.readBy(readers, to.length)}` : "";
  if (state !== "failed" && state !== "uncertain")
    return (
      <span class={state === "read" ? "read" : ""} title={`${label}${of}`}>
        <Icon shape={stateShapes[state]} label={`${label}${of}`} />
      </span>
    );
  const failed = to.find((one) => one.reason !== null);
  return (
    <span class="doubt">
      {state === "failed" ? t.notSent : t.mayHaveArrived}
      {failed === undefined
        ? "."
        : `: ${oneLine(failureText({ code: failed.code, message: failed.reason }), 120)}`}{" "}
      <Button onClick={() => me.store.resend(message.id)}>{t.sendAgain}</Button>
    </span>
  );
}
