/** What both pages do: they open an identity with a store in the browser, and show what was said. `?node=` names the node. */
import { indexedDbKeys, indexedDbStore, Waypost } from "@waypost/client";

const url = new URLSearchParams(location.search).get("node") ?? "http://127.0.0.1:7400";
let opening = null;

/** Once for a page: a framework may run its effects twice. */
export function open() {
  opening ??= Waypost.open({ url, keys: indexedDbKeys(), store: indexedDbStore() });
  return opening;
}

/** Shows the texts that this identity has sent to itself, now and after each change. Resolves to what ends it. */
export async function follow(show) {
  const me = await open();
  const look = async () => show((await me.store.messages(me.did)).map(({ text }) => text));
  const stop = me.on((event) => event.type === "changed" && void look());
  await look();
  return stop;
}

export async function say(text) {
  const me = await open();
  await me.send(me.did, text);
}
