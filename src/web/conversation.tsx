/** An open conversation: its head, its messages in a window over a long list, and the line to write. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Person, StoredMessage, Waypost } from "../client/package.ts";
import { Composer } from "./composer.tsx";
import { Bubble } from "./message.tsx";
import { Avatar, Icon, IconButton, nameOf, useStored } from "./parts.tsx";
import { type Panel, show } from "./place.ts";
import { attempt } from "./session.ts";
import { dayOf } from "./text.ts";
import { useMessages } from "./window.ts";

type Props = { readonly me: Waypost; readonly id: string; readonly open: (panel: Panel) => void };

export function ConversationView({ me, id, open }: Props) {
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
      <Messages me={me} id={id} onReply={setAnswered} />
      {isStranger && <Request me={me} person={person} />}
      {isPerson && !isStranger && person?.isBlocked !== true && (
        <Composer me={me} to={id} name={name} answered={answered} onAnswered={() => setAnswered(null)} key={id} />
      )}
      {person?.isBlocked === true && (
        <div class="request">
          <p>You have blocked this person.</p>
          <button
            type="button"
            class="plain"
            onClick={() => attempt(me.store.savePerson(person.did, { isBlocked: false }))}
          >
            Unblock
          </button>
        </div>
      )}
      {id === "unverified" && (
        <p class="request">Nothing proves who wrote these. Do not believe them because of a name.</p>
      )}
    </main>
  );
}

/** Somebody whom this person has never written to. */
function Request({ me, person: { did } }: { readonly me: Waypost; readonly person: Person }) {
  const [name, setName] = useState("");
  const decide = (change: Partial<Person>) => attempt(me.store.savePerson(did, change));
  return (
    <section class="request" aria-label="Request">
      <p>Somebody whom you don't know writes to you. Do you want to answer?</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          decide({ isKnown: true, ...(name.trim() === "" ? {} : { name: name.trim() }) });
        }}
      >
        <input
          value={name}
          maxLength={60}
          placeholder="What do you call them?"
          aria-label="What do you call them?"
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
        <button type="submit" class="main">
          Accept
        </button>
        <button
          type="button"
          class="plain danger"
          onClick={() => {
            decide({ isBlocked: true });
            show(null);
          }}
        >
          Block
        </button>
      </form>
    </section>
  );
}

type MessagesProps = Pick<Props, "me" | "id"> & { readonly onReply: (message: StoredMessage) => void };
/** Pixels from an edge at which more is read. */
const edge = 600;

type Listed = ReturnType<typeof useMessages>;

/** Keeps what is in sight where it is: the end, or a message while others come before it. */
function useScrolling({ shown, hasNewer, hasOlder, older, newer, latest }: Listed, id: string) {
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
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
    if (isAtEnd.current && !hasNewer) toEnd();
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

function Messages({ me, id, onReply }: MessagesProps) {
  const listed = useMessages(me, id);
  const { shown, hasNewer, hasOlder } = listed;
  const { list, isAtEnd, onScroll, showNewest } = useScrolling(listed, id);
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
        {shown?.map((message, i) => {
          const day = dayOf(message.arrivedAt);
          const before = shown[i - 1];
          const isNewDay = before === undefined || dayOf(before.arrivedAt) !== day;
          const isJoined =
            !isNewDay && before.isOwn === message.isOwn && +message.arrivedAt - +before.arrivedAt < 300_000;
          return (
            <div key={message.key} data-key={message.key} class={isJoined ? "joined" : ""}>
              {isNewDay && <p class="day">{day}</p>}
              <Bubble me={me} message={message} onReply={() => onReply(message)} />
            </div>
          );
        })}
      </div>
      {hasNewer && (
        <button type="button" class="newest" onClick={showNewest}>
          <Icon shape="down" /> Newest
        </button>
      )}
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
