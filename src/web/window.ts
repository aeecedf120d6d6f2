/**
 * A window over a conversation: pages are read from the store as one scrolls, and at most some hundred messages are in
 * the document at once, however long the conversation is.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import type { StoredMessage, Waypost } from "../client/package.ts";
import { lookedMax, searchPage } from "./search.ts";

const page = 60;
/** Messages in the document: some screens in each direction. */
const windowMax = 180;

type Window = {
  /** Oldest first; `null` until the first page is read. */
  readonly shown: readonly StoredMessage[] | null;
  readonly hasOlder: boolean;
  readonly hasNewer: boolean;
  readonly older: () => void;
  readonly newer: () => void;
  readonly latest: () => void;
};

type Held = {
  readonly all: readonly StoredMessage[];
  readonly from: number;
  readonly to: number;
  readonly isWhole: boolean;
};

/** From the newest, or around the message `at`. */
async function firstOf({ store }: Waypost, id: string, at: string | null): Promise<Held> {
  const limit = at === null ? page : searchPage;
  let all: StoredMessage[] = [];
  for (;;) {
    const [before] = all;
    const more = await store.messages(id, { limit, ...(before === undefined ? {} : { before }) });
    all = [...more, ...all];
    const isWhole = more.length < limit;
    const i = more.findIndex((message) => message.id === at);
    if (i >= 0) return { all, from: Math.max(0, i - page / 2), to: Math.min(all.length, i + page / 2), isWhole };
    if (at === null || isWhole || all.length >= lookedMax)
      return { all, from: Math.max(0, all.length - page), to: all.length, isWhole };
  }
}

export function useMessages(me: Waypost, id: string, at: string | null): Window {
  const [held, setHeld] = useState<Held | null>(null);
  const isReading = useRef(false);
  useEffect(() => {
    let isOver = false;
    setHeld(null);
    void firstOf(me, id, at).then((first) => isOver || setHeld(first));
    const stop = me.on((event) => {
      if (event.type !== "changed" || event.conversation !== id) return;
      if (event.what === "removed" || event.what === "message" || event.what === "state")
        void changed(me, id, event).then((change) => isOver || setHeld((now) => (now === null ? now : change(now))));
    });
    return () => {
      isOver = true;
      stop();
    };
  }, [me, id]);
  if (held === null) return { shown: null, hasOlder: false, hasNewer: false, older: none, newer: none, latest: none };
  const { all, from, to, isWhole } = held;
  // Of what is held when the change is made: a page may have come since this was drawn.
  const change = (how: (now: Held) => Held) => setHeld((now) => (now === null ? now : how(now)));
  const older = () => {
    if (from > 0) return change(olderIn);
    const [before] = all;
    if (isWhole || isReading.current || before === undefined) return;
    isReading.current = true;
    void me.store
      .messages(id, { before, limit: page })
      .then((more) => change((now) => withOlder(now, more)))
      .finally(() => {
        isReading.current = false;
      });
  };
  const newer = () => change(newerIn);
  const latest = () => change(latestIn);
  return {
    shown: all.slice(from, to),
    hasOlder: from > 0 || !isWhole,
    hasNewer: to < all.length,
    older,
    newer,
    latest,
  };
}

function none(): void {
  // Nothing is there yet.
}

function olderIn(now: Held): Held {
  const from = Math.max(0, now.from - page);
  return { ...now, from, to: Math.min(now.to, from + windowMax) };
}

function newerIn(now: Held): Held {
  const to = Math.min(now.all.length, now.to + page);
  return { ...now, from: Math.max(now.from, to - windowMax), to };
}

const latestIn = (now: Held): Held => ({ ...now, from: Math.max(0, now.all.length - page), to: now.all.length });

/** Shown when the window is still where they belong, and not when one has gone to the newest meanwhile. */
function withOlder(now: Held, more: readonly StoredMessage[]): Held {
  const [all, isWhole] = [[...more, ...now.all], more.length < page];
  if (now.from > 0) return { all, from: now.from + more.length, to: now.to + more.length, isWhole };
  return { all, from: 0, to: Math.min(now.to + more.length, windowMax), isWhole };
}

/** What a change of the store does to the window. */
async function changed(
  me: Waypost,
  id: string,
  { what, id: messageId }: { readonly what: string; readonly id: string | null },
): Promise<(now: Held) => Held> {
  if (what === "removed")
    return (now) => {
      const all = messageId === null ? [] : now.all.filter((one) => one.id !== messageId);
      return { ...now, all, to: Math.min(now.to, all.length) };
    };
  const fresh = messageId === null ? await me.store.messages(id, { limit: page }) : [await me.store.message(messageId)];
  return (now) => fresh.reduce((held, message) => (message === null ? held : withMessage(held, message)), now);
}

/** In the order of keys, which is that of the store. A window that reached the end still does. */
function withMessage(now: Held, message: StoredMessage): Held {
  const { all } = now;
  let at = all.length;
  while (at > 0 && (all[at - 1] as StoredMessage).key >= message.key) at -= 1;
  if (all[at]?.key === message.key) return { ...now, all: all.with(at, message) };
  // Before what was read: the page with it is read when one scrolls there.
  if (at === 0 && !now.isWhole) return now;
  const isAtEnd = now.to === all.length;
  const to = isAtEnd ? all.length + 1 : now.to;
  return { ...now, all: all.toSpliced(at, 0, message), to, from: Math.max(now.from, isAtEnd ? to - windowMax : 0) };
}
