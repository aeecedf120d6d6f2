/**
 * Several tabs of one page over one store: all read, write and hear of changes; one leads, which receives and sends. Where
 * the browser has no Web Locks a second tab is refused, and so is a second user of a store that tabs don't share.
 * Source: docs/client.md "A local store", "Web Locks API".
 */
import { randomUuid } from "../crypto.ts";
import { localError } from "../http.ts";
import type { StoreDriver } from "./driver.ts";

export type Tabs = {
  /** Hears what other tabs tell. */
  onNews: (news: unknown) => void;
  /** Tells the other tabs. */
  readonly tell: (news: unknown) => void;
  /** Resolves when this tab leads; never when it is closed before. */
  readonly leading: Promise<void>;
  readonly close: () => void;
};

/** How long a tab without Web Locks waits for another to say that it has the store. */
const answerMs = 300;
const used = new WeakMap<StoreDriver, Set<string>>();

export async function joinTabs(driver: StoreDriver, place: string): Promise<Tabs> {
  const { sharedAs } = driver;
  if (sharedAs === null) return soleUser(driver, place);
  const name = `waypost:${sharedAs}:${place}`;
  const channel = new BroadcastChannel(name);
  const stop = new AbortController();
  const { locks } = globalThis.navigator ?? {};
  if (locks === undefined) await claimAlone(channel);
  const leading = new Promise<void>((resolve) => {
    if (locks === undefined) return resolve();
    const held = () => {
      resolve();
      return new Promise<void>((release) => stop.signal.addEventListener("abort", () => release()));
    };
    locks.request(`${name}:lead`, { signal: stop.signal }, held).catch(() => undefined);
  });
  const close = () => {
    stop.abort();
    channel.close();
  };
  const tabs: Tabs = { onNews: () => undefined, tell: (news) => channel.postMessage(news), leading, close };
  if (locks !== undefined) channel.onmessage = ({ data }) => tabs.onNews(data);
  return tabs;
}

function soleUser(driver: StoreDriver, place: string): Tabs {
  const places = used.get(driver) ?? new Set();
  if (places.has(place)) throw localError("busy", "this program has the store open already");
  used.set(driver, places.add(place));
  const close = () => void places.delete(place);
  return { onNews: () => undefined, tell: () => undefined, leading: Promise.resolve(), close };
}

/** Throws `busy` when another tab answers. Of two that ask at once the one with the lower number has the store. */
async function claimAlone(channel: BroadcastChannel): Promise<void> {
  const own = randomUuid();
  let isTaken = false;
  let isMine = false;
  channel.onmessage = ({ data }) => {
    if (data?.has !== undefined) isTaken ||= data.has !== own;
    else if (data?.asks !== undefined) channel.postMessage(isMine || data.asks > own ? { has: own } : { asks: own });
  };
  channel.postMessage({ asks: own });
  await new Promise((resolve) => setTimeout(resolve, answerMs));
  isMine = !isTaken;
  if (isMine) return;
  channel.close();
  throw localError("busy", "another tab has the store open, and this browser has no Web Locks");
}
