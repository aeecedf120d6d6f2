/** An open conversation: its head, its messages, and the line to write. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Person, StoredMessage } from "../client/package.ts";
import { isSelfCertifying } from "../core/ledger/names.ts";
import { Composer } from "./composer.tsx";
import { changeOf, GroupState, isChange, type Names, useNames } from "./groups.tsx";
import { useMessages } from "./history.ts";
import { Bubble, type By } from "./message.tsx";
import {
  Avatar,
  BlockButton,
  Form,
  Icon,
  IconButton,
  Input,
  nameOf,
  Phrase,
  useSession,
  useStored,
} from "./parts.tsx";
import { type Panel, showConversation } from "./place.ts";
import { me } from "./session.ts";
import { dayOf, oneLine } from "./text.ts";
import { t } from "./words/language.ts";

type ConversationProps = {
  readonly id: string;
  /** The message to begin with. */
  readonly at: string | null;
  readonly open: (panel: Panel) => void;
};

export function ConversationView({ id, at, open }: ConversationProps) {
  const person = useStored(() => me.store.person(id), [id]);
  const { isConnected } = useSession();
  const [answered, setAnswered] = useState<StoredMessage | null>(null);
  const [sendings, setSendings] = useState(0);
  const isPerson = id.startsWith("did:");
  const group = useStored(async () => (isPerson ? null : me.groups.get(id)), [id]);
  const names = useNames();
  const name = nameOf(person, id, group);
  const isWritten =
    group?.standing === "joined" ||
    (isPerson && person?.isKnown !== false && person?.isBlocked !== true);
  const members = (group?.members ?? [])
    .filter((did) => did !== me.did)
    .map((did) => ({ did: did as string, name: names(did) }));
  const about = () => open(isPerson ? { is: "person", did: id } : { is: "group", id });
  const isStranger = isPerson && person !== null && !person.isKnown;
  return (
    <main class="conversation" aria-label={t.conversationWith(name)}>
      <header class="bar">
        <IconButton
          shape="back"
          label={t.back}
          class="round narrow"
          onClick={() => showConversation(null)}
        />
        <button type="button" class="who" disabled={!isPerson && group === null} onClick={about}>
          <Avatar {...{ id, name, person }} />
          <bdi class="name">{name}</bdi>
          {isPerson && !isSelfCertifying(id) && <span class="unproven">{t.notProven}</span>}
        </button>
        <span class="state narrow" role="status">
          {isConnected ? "" : t.connecting}
        </span>
        {isPerson && <IconButton shape="shield" label={t.checkWho} onClick={about} />}
        {group !== null && <IconButton shape="more" label={t.aboutGroup} onClick={about} />}
      </header>
      <Messages
        {...{ id, at, names, sendings }}
        isGroup={!isPerson}
        onReply={setAnswered}
        onForward={(message) => open({ is: "forward", message })}
        onReport={(message) => open({ is: "report", message })}
      />
      <Writing id={id} names={names} />
      {isStranger && !person.isBlocked && <Request person={person} />}
      {group !== null && group.standing !== "joined" && <GroupState group={group} />}
      {isWritten && (
        <Composer
          key={id}
          {...{ name, answered, members }}
          to={id}
          onAnswered={() => setAnswered(null)}
          onSend={() => setSendings((count) => count + 1)}
        />
      )}
      {person?.isBlocked === true && (
        <div class="request">
          <p>{t.blockedText}</p>
          <BlockButton {...person} />
        </div>
      )}
      {id === "unverified" && <p class="request">{t.unprovenText}</p>}
    </main>
  );
}

/** Somebody whom this person has never written to. */
function Request({ person }: { readonly person: Person }) {
  const [name, setName] = useState(oneLine(person.claimed?.name ?? ""));
  const acceptPerson = () =>
    me.store.savePerson(person.did, {
      isKnown: true,
      ...(name.trim() === "" ? {} : { name: name.trim() }),
    });
  return (
    <section class="request" aria-label={t.request}>
      <p>{t.requestText}</p>
      <Form submit={t.accept} onSubmit={acceptPerson}>
        <Input value={name} onText={setName} maxLength={60} label={t.nameForThem} />
      </Form>
      <BlockButton {...person} />
    </section>
  );
}

type MessagesProps = Pick<ConversationProps, "id" | "at"> & {
  readonly names: Names;
  readonly isGroup: boolean;
  /** Messages that were sent since this was opened: who sends one sees it. */
  readonly sendings: number;
  readonly onReply: (message: StoredMessage) => void;
  readonly onForward: (message: StoredMessage) => void;
  readonly onReport: (message: StoredMessage) => void;
};
/** Pixels from an edge at which more is read. */
const edge = 600;

/**
 * The box counts from its end (`column-reverse`), so what is in sight stays there while earlier
 * messages come above, and the end while new ones come.
 */
function useScrolling({ shown, hasOlder, older }: ReturnType<typeof useMessages>) {
  const list = useRef<HTMLDivElement>(null);
  const [isFarUp, setFarUp] = useState(false);
  const below = () => -(list.current?.scrollTop ?? 0);
  const isAtEnd = () => below() < 60;
  const look = () => {
    const { current: box } = list;
    if (box === null) return;
    setFarUp(below() > box.clientHeight);
    if (hasOlder && box.scrollHeight - box.clientHeight - below() < edge) older();
  };
  useLayoutEffect(() => {
    list.current?.querySelector(".found")?.scrollIntoView({ block: "center" });
  }, [shown === null]);
  useEffect(look, [shown?.length]);
  const showNewest = () => list.current?.scrollTo(0, 0);
  return { list, isAtEnd, isFarUp, look, showNewest };
}

/** How long somebody is said to write, unless they stop or it comes. */
const writingMs = 30_000;

function Writing({ id, names }: Pick<ConversationProps, "id"> & { readonly names: Names }) {
  /** Who began last. */
  const [writer, setWriter] = useState<{ readonly did: string } | null>(null);
  useEffect(
    () =>
      me.on((event) => {
        const isHere =
          (event.type === "changed" || event.type === "typing") && event.conversation === id;
        if (!isHere) return;
        if (event.type === "typing" && event.isTyping) setWriter({ did: event.from });
        else if (event.type === "typing")
          setWriter((now) => (now?.did === event.from ? null : now));
        else if (event.what === "message") setWriter(null);
      }),
    [id],
  );
  useEffect(() => {
    const timer = setTimeout(() => setWriter(null), writingMs);
    return () => clearTimeout(timer);
  }, [writer]);
  return (
    <p class="writing" role="status">
      {writer !== null && (
        <Phrase text={t.isWriting}>
          <bdi>{names(writer.did)}</bdi>
        </Phrase>
      )}
    </p>
  );
}

function Messages({
  id,
  at,
  names,
  isGroup,
  sendings,
  onReply,
  onForward,
  onReport,
}: MessagesProps) {
  const listed = useMessages(id, at);
  const { shown, hasOlder } = listed;
  const { list, isAtEnd, isFarUp, look, showNewest } = useScrolling(listed);
  useEffect(() => {
    if (sendings > 0) showNewest();
  }, [sendings]);
  /** Up to which arrival was marked: scrolling asks many times a second. */
  const marked = useRef<number | null>(null);
  // What arrives late may stand above the last one.
  const arrivedMs = lastArrivalOf(shown ?? []);
  /** Whenever the end is in sight and the page has the focus, all that is shown is read. */
  const markRead = () => {
    // Before they are read from the store, none is in sight: the place may be an old message.
    if (arrivedMs === null || arrivedMs === marked.current) return;
    if (!document.hasFocus() || !isAtEnd()) return;
    marked.current = arrivedMs;
    void me.store.markRead(id).catch(() => {
      marked.current = null;
    });
  };
  useEffect(() => {
    markRead();
    addEventListener("focus", markRead);
    return () => removeEventListener("focus", markRead);
  }, [id, arrivedMs]);
  const scrolled = () => {
    look();
    markRead();
  };
  return (
    <>
      <div class="messages" ref={list} onScroll={scrolled} role="log" aria-label={t.messages}>
        <div class="column">
          {!hasOlder && shown !== null && (
            <Beginning isEmpty={shown.length === 0} isGroup={isGroup} />
          )}
          {shown?.map((message, i) => (
            <Line
              key={message.key}
              {...{
                message,
                isGroup,
                names,
                onReply,
                onForward,
                onReport,
                before: shown[i - 1] ?? null,
                after: shown[i + 1] ?? null,
                isFound: message.id === at,
              }}
              sender={names(message.from)}
            />
          ))}
        </div>
      </div>
      {isFarUp && (
        <div class="newest">
          <button type="button" onClick={showNewest}>
            <Icon shape="down" /> {t.newest}
          </button>
        </div>
      )}
    </>
  );
}

/** `null` of none. */
const lastArrivalOf = (messages: readonly StoredMessage[]): number | null =>
  messages.reduce<number | null>(
    (last, { arrivedAt }) => Math.max(last ?? 0, arrivedAt.getTime()),
    null,
  );

type LineProps = Omit<By, "isContinued"> & {
  readonly message: StoredMessage;
  readonly before: StoredMessage | null;
  readonly after: StoredMessage | null;
  readonly isFound: boolean;
  readonly onReply: (message: StoredMessage) => void;
  readonly onForward: (message: StoredMessage) => void;
  readonly onReport: (message: StoredMessage) => void;
};

const seriesMs = 300_000;

/** Whether two messages, one after the other, are one person's of one moment. */
const isSeries = (before: StoredMessage | null, message: StoredMessage | null): boolean =>
  before !== null &&
  message !== null &&
  before.from === message.from &&
  !isChange(before) &&
  !isChange(message) &&
  dayOf(before.arrivedAt) === dayOf(message.arrivedAt) &&
  +message.arrivedAt - +before.arrivedAt < seriesMs;

/** Drawn again only when its message changed: the list has many. */
function Line(props: LineProps) {
  const { message, before, after, names, sender, isGroup, isFound } = props;
  const { onReply, onForward, onReport } = props;
  const day = dayOf(message.arrivedAt);
  const isNewDay = before === null || dayOf(before.arrivedAt) !== day;
  const isJoined = isSeries(before, message);
  const isContinued = isSeries(message, after);
  const bubble = useMemo(
    () =>
      isChange(message) ? (
        <p class="day">
          <bdi>{sender}</bdi> <bdi>{changeOf(message)}</bdi>
        </p>
      ) : (
        <Bubble
          {...{ message, names, sender, isGroup, isContinued }}
          onReply={() => onReply(message)}
          onForward={() => onForward(message)}
          onReport={() => onReport(message)}
        />
      ),
    [message, sender, isContinued],
  );
  return (
    <div class={`${isJoined ? "joined" : ""} ${isFound ? "found" : ""}`}>
      {isNewDay && <p class="day">{day}</p>}
      {bubble}
    </div>
  );
}

function Beginning({ isEmpty, isGroup }: { readonly isEmpty: boolean; readonly isGroup: boolean }) {
  return (
    <p class="beginning">
      <Icon shape="shield" />
      {isEmpty ? `${t.saySomething} ` : ""}
      {isGroup ? t.onlyMembers : t.onlyPerson}
    </p>
  );
}
