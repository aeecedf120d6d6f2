/**
 * The messages of a conversation, from the newest on: earlier pages are read from the
 * store as one scrolls up.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import type { StoredMessage } from "../client/package.ts";
import { lookedMax, searchPage } from "./search.ts";
import { me } from "./session.ts";

const page = 60;

type History = {
  /** Oldest first; `null` until the first page is read. */
  readonly shown: readonly StoredMessage[] | null;
  readonly hasOlder: boolean;
  readonly older: () => void;
};

type Held = { readonly all: readonly StoredMessage[]; readonly isWhole: boolean };

/** The newest, or as many as lead to some before the message `at`. */
async function firstOf(id: string, at: string | null): Promise<Held> {
  const limit = at === null ? page : searchPage;
  let all: StoredMessage[] = [];
  for (;;) {
    const [before] = all;
    const more = await me.store.messages(id, {
      limit,
      ...(before === undefined ? {} : { before }),
    });
    all = [...more, ...all];
    const isWhole = more.length < limit;
    if (at === null || isWhole || all.length >= lookedMax) return { all, isWhole };
    const i = more.findIndex((message) => message.id === at);
    if (i >= 0) return { all: all.slice(Math.max(0, i - page)), isWhole: false };
  }
}

export function useMessages(id: string, at: string | null): History {
  const [held, setHeld] = useState<Held | null>(null);
  const isReading = useRef(false);
  // Of what is held when the change is made: a page may have come since this was drawn.
  const changeHeld = (how: (now: Held) => Held) =>
    setHeld((now) => (now === null ? now : how(now)));
  useEffect(() => {
    let isOver = false;
    setHeld(null);
    void firstOf(id, at).then((first) => isOver || setHeld(first));
    const stop = me.on((event) => {
      if (event.type !== "changed" || event.conversation !== id) return;
      if (event.what === "removed" || event.what === "message" || event.what === "state")
        void historyChange(id, event).then((how) => isOver || changeHeld(how));
    });
    return () => {
      isOver = true;
      stop();
    };
  }, [id]);
  const older = () => {
    const [before] = held?.all ?? [];
    if (held?.isWhole !== false || isReading.current || before === undefined) return;
    isReading.current = true;
    void me.store
      .messages(id, { before, limit: page })
      .then((more) =>
        changeHeld(({ all }) => ({ all: [...more, ...all], isWhole: more.length < page })),
      )
      .finally(() => {
        isReading.current = false;
      });
  };
  return { shown: held?.all ?? null, hasOlder: held?.isWhole === false, older };
}

/** What a change of the store does to what is shown. */
async function historyChange(
  id: string,
  { what, id: messageId }: { readonly what: string; readonly id: string | null },
): Promise<(now: Held) => Held> {
  if (what === "removed")
    return (now) => ({
      ...now,
      all: messageId === null ? [] : now.all.filter((one) => one.id !== messageId),
    });
  const fresh =
    messageId === null
      ? await me.store.messages(id, { limit: page })
      : [await me.store.message(messageId)];
  return (now) =>
    fresh.reduce((held, message) => (message === null ? held : withMessage(held, message)), now);
}

/** In the order of keys, which is that of the store. */
function withMessage(now: Held, message: StoredMessage): Held {
  const { all } = now;
  let at = all.length;
  while (at > 0 && (all[at - 1] as StoredMessage).key >= message.key) at -= 1;
  if (all[at]?.key === message.key) return { ...now, all: all.with(at, message) };
  // Before what was read: the page with it is read when one scrolls there.
  if (at === 0 && !now.isWhole) return now;
  return { ...now, all: all.toSpliced(at, 0, message) };
}
