/**
 * Several tabs of one page over one store: all read, write and learn of changes; one leads, which
 * receives and sends. Where the browser has no Web Locks a second tab is refused.
 * Source: docs/client.md "A local store", "Web Locks API".
 */
import { localError, pause } from "../base/failure.ts";
import type { StoreDriver } from "./driver.ts";
import { soleTab, type Tabs } from "./own-store.ts";

/** How long a tab without Web Locks waits for another to say that it has the store. */
const answerMs = 300;

export async function joinTabs(driver: StoreDriver, place: string): Promise<Tabs> {
  const { sharedAs } = driver;
  if (sharedAs === null) return { ...soleTab };
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
  const tabs: Tabs = {
    onNews: () => undefined,
    tell: (news) => channel.postMessage(news),
    leading,
    close,
  };
  if (locks !== undefined) channel.onmessage = ({ data }) => tabs.onNews(data);
  return tabs;
}

/** Throws `busy` when another tab answers. Of two that ask at once neither has the store. */
async function claimAlone(channel: BroadcastChannel): Promise<void> {
  let isTaken = false;
  channel.onmessage = ({ data }) => {
    if (data === "taken") isTaken = true;
    else channel.postMessage("taken");
  };
  channel.postMessage("opened");
  await pause(answerMs, new AbortController().signal);
  if (!isTaken) return;
  channel.close();
  throw localError("busy", "another tab has the store open, and this browser has no Web Locks");
}
