/** An open conversation: its head, its messages in a window over a long list, and the line to write. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Person, StoredMessage, Waypost } from "../client/package.ts";
import { Composer } from "./composer.tsx";
import { Bubble } from "./message.tsx";
import { Avatar, BlockButton, Form, Icon, IconButton, Input, nameOf, useStored } from "./parts.tsx";
import { type Panel, show } from "./place.ts";
import { dayOf } from "./text.ts";
import { useMessages } from "./window.ts";

type Props = {
  readonly me: Waypost;
  readonly id: string;
  /** The message to begin with. */
  readonly at: string | null;
  readonly open: (panel: Panel) => void;
};

export function ConversationView({ me, id, at, open }: Props) {
  const person = useStored(me, () => me.store.person(id), [id]);
  const [answered, setAnswered] = useState<StoredMessage | null>(null);
  const name = nameOf(person, id);
  const isPerson = id.startsWith("did:");
  const isStranger = isPerson && person !== null && !person.isKnown;
  return (
    <main class="conversation" aria-label={`Conversation with ${name}`}>
      <header class="bar">
        <IconButton shape="back" label="Back" class="round narrow" onClick={() => show(null)} />
        <button type="button" class="who" disabled={!isPerson} onClick={() => open({ is: "person", did: id })}>
          <Avatar id={id} name={name} />
          <bdi class="name">{name}</bdi>
        </button>
        {isPerson && (
          <IconButton shape="shield" label="Check who this is" onClick={() => open({ is: "person", did: id })} />
        )}
      </header>
      <Messages me={me} id={id} at={at} onReply={setAnswered} />
      {isStranger && !person.isBlocked && <Request me={me} person={person} />}
      {isPerson && !isStranger && person?.isBlocked !== true && (
        <Composer me={me} to={id} name={name} answered={answered} onAnswered={() => setAnswered(null)} key={id} />
      )}
      {person?.isBlocked === true && (
        <div class="request">
          <p>You have blocked this person.</p>
          <BlockButton me={me} {...person} />
        </div>
      )}
      {id === "unverified" && (
        <p class="request">Nothing proves who wrote these. Do not believe them because of a name.</p>
      )}
    </main>
  );
}

/** Somebody whom this person has never written to. */
function Request({ me, person }: { readonly me: Waypost; readonly person: Person }) {
  const [name, setName] = useState("");
  const accept = () =>
    me.store.savePerson(person.did, { isKnown: true, ...(name.trim() === "" ? {} : { name: name.trim() }) });
  return (
    <section class="request" aria-label="Request">
      <p>Somebody whom you don't know writes to you. Do you want to answer?</p>
      <Form submit="Accept" onSubmit={accept}>
        <Input value={name} onText={setName} maxLength={60} label="What do you call them?" isBare />
      </Form>
      <BlockButton me={me} {...person} />
    </section>
  );
}

type MessagesProps = Pick<Props, "me" | "id" | "at"> & { readonly onReply: (message: StoredMessage) => void };
/** Pixels from an edge at which more is read. */
const edge = 600;

type Listed = ReturnType<typeof useMessages>;

/** Keeps what is in sight where it is: the end, or a message while others come before it. */
function useScrolling({ shown, hasNewer, hasOlder, older, newer, latest }: Listed, id: string, at: string | null) {
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(at === null);
  const isPlaced = useRef(false);
  const held = useRef<{ readonly key: string; readonly top: number } | null>(null);
  const toEnd = () => {
    if (list.current !== null) list.current.scrollTop = list.current.scrollHeight;
  };
  const hold = (box: HTMLDivElement) => {
    const { top } = box.getBoundingClientRect();
    const children = [...box.querySelectorAll<HTMLElement>("[data-key]")];
    const first = children.find((child) => child.getBoundingClientRect().bottom >= top);
    if (first !== undefined) held.current = { key: first.dataset["key"] ?? "", top: first.getBoundingClientRect().top };
  };
  useLayoutEffect(() => {
    const { current: kept } = held;
    held.current = null;
    const child = kept === null ? null : list.current?.querySelector(`[data-key="${CSS.escape(kept.key)}"]`);
    const found = list.current?.querySelector(".found");
    if (found && !isPlaced.current) {
      isPlaced.current = true;
      found.scrollIntoView({ block: "center" });
    } else if (isAtEnd.current && !hasNewer) toEnd();
    else if (child && kept && list.current) list.current.scrollTop += child.getBoundingClientRect().top - kept.top;
  }, [shown?.[0]?.key, shown?.at(-1)?.key, hasNewer]);
  useEffect(() => {
    const { current: box } = list;
    if (box === null) return;
    // Pictures and the keyboard of a phone change heights: who was at the end stays there.
    const observer = new ResizeObserver(() => {
      if (isAtEnd.current && held.current === null) toEnd();
    });
    observer.observe(box);
    if (box.firstElementChild !== null) observer.observe(box.firstElementChild);
    return () => observer.disconnect();
  }, [id, shown === null]);
  const onScroll = () => {
    const { current: box } = list;
    if (box === null) return;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    isAtEnd.current = below < 60;
    if (box.scrollTop < edge && hasOlder) {
      hold(box);
      older();
    } else if (below < edge && hasNewer) {
      hold(box);
      newer();
    }
  };
  const showNewest = () => {
    isAtEnd.current = true;
    latest();
    toEnd();
  };
  return { list, isAtEnd, onScroll, showNewest };
}

function Messages({ me, id, at, onReply }: MessagesProps) {
  const listed = useMessages(me, id, at);
  const { shown, hasNewer, hasOlder } = listed;
  const { list, isAtEnd, onScroll, showNewest } = useScrolling(listed, id, at);
  useEffect(() => {
    const read = () => {
      if (document.hasFocus() && isAtEnd.current) void me.store.markRead(id).catch(() => undefined);
    };
    read();
    addEventListener("focus", read);
    return () => removeEventListener("focus", read);
  }, [id, shown?.at(-1)?.key]);
  return (
    <div class="messages" ref={list} onScroll={onScroll} role="log" aria-label="Messages">
      <div class="column">
        {!hasOlder && shown !== null && <Beginning isEmpty={shown.length === 0} />}
        {shown?.map((message, i) => (
          <Line
            key={message.key}
            {...{ me, message, onReply, before: shown[i - 1] ?? null, isFound: message.id === at }}
          />
        ))}
      </div>
      {hasNewer && (
        <button type="button" class="newest" onClick={showNewest}>
          <Icon shape="down" /> Newest
        </button>
      )}
    </div>
  );
}

type LineProps = {
  readonly me: Waypost;
  readonly message: StoredMessage;
  readonly before: StoredMessage | null;
  readonly isFound: boolean;
  readonly onReply: (message: StoredMessage) => void;
};

/** Drawn again only when its message changed: the list has many. */
function Line({ me, message, before, isFound, onReply }: LineProps) {
  const day = dayOf(message.arrivedAt);
  const isNewDay = before === null || dayOf(before.arrivedAt) !== day;
  const isJoined = !isNewDay && before.isOwn === message.isOwn && +message.arrivedAt - +before.arrivedAt < 300_000;
  const bubble = useMemo(() => <Bubble me={me} message={message} onReply={() => onReply(message)} />, [message]);
  return (
    <div data-key={message.key} class={`${isJoined ? "joined" : ""} ${isFound ? "found" : ""}`}>
      {isNewDay && <p class="day">{day}</p>}
      {bubble}
    </div>
  );
}

function Beginning({ isEmpty }: { readonly isEmpty: boolean }) {
  return (
    <p class="beginning">
      <Icon shape="shield" />
      {isEmpty ? "Say something. " : ""}Only you and this person can read what you write here. The server carries it
      sealed.
    </p>
  );
}
