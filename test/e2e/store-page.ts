/**
 * The page of `store-tabs.test.ts`: an identity whose store all tabs share, and what this tab was
 * handed over.
 */
import { indexedDbKeys, indexedDbStore, Waypost } from "waypost/client";

const asked = new URLSearchParams(location.search);
const me = await Waypost.open({
  url: asked.get("node") ?? "",
  keys: indexedDbKeys(),
  store: indexedDbStore(),
  name: asked.get("name") ?? "me",
  receipts: true,
});
const page = {
  me,
  changes: 0,
  texts: (id: string) => textsOf(id),
  handed: [] as (string | null)[],
};
me.on((event) => {
  if (event.type === "changed") page.changes++;
});
async function textsOf(conversation: string): Promise<(string | null)[]> {
  return (await me.store.messages(conversation, { limit: 1_000 })).map(({ text }) => text);
}
Object.assign(globalThis, { page });
for await (const message of me.messages()) {
  page.handed.push(message.text);
  // Kept in the order and with the number of times that a reader of all tabs would see.
  const all = JSON.parse(localStorage.getItem("handed") ?? "[]") as (string | null)[];
  localStorage.setItem("handed", JSON.stringify([...all, message.text]));
}
