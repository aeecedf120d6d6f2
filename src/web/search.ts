/**
 * Search on this device: names, and the words of the newest messages of each conversation.
 * Nothing leaves the device.
 */
import { useEffect, useState } from "preact/hooks";
import type { Conversation, StoredMessage } from "../client/package.ts";
import { isFile } from "./files.ts";
import { isChange } from "./groups.tsx";
import { me } from "./session.ts";
import { folded, isSought, originalIndex } from "./text.ts";

/** Messages of a conversation, and of all. */
export const lookedMax = 5_000;
const lookedAllMax = 20_000;
const foundMax = 40;
export const searchPage = 250;
/** How long somebody types before it begins. */
const pauseMs = 250;

export type Found = { readonly conversation: Conversation; readonly message: StoredMessage };

/** What is said in it: words, or the name of a file. */
function saidIn(message: StoredMessage): string {
  if (isFile(message)) return message.name;
  return isChange(message) ? "" : (message.text ?? "");
}

/** The latest conversation first, and there the newest message. */
async function* search(sought: string): AsyncGenerator<Found> {
  let looked = 0;
  for (const conversation of await me.store.conversations()) {
    if (conversation.person?.isBlocked === true) continue;
    let before: StoredMessage | undefined;
    for (
      let here = 0;
      here < lookedMax && looked < lookedAllMax;
      here += searchPage, looked += searchPage
    ) {
      const page: StoredMessage[] = await me.store.messages(conversation.id, {
        limit: searchPage,
        ...(before === undefined ? {} : { before }),
      });
      for (const message of page.toReversed())
        if (folded(saidIn(message)).includes(sought)) yield { conversation, message };
      [before] = page;
      if (page.length < searchPage) break;
    }
  }
}

/** `null` while nothing is sought. */
export function useSearch(
  text: string,
): { readonly found: readonly Found[]; readonly isOver: boolean } | null {
  const [state, setState] = useState<ReturnType<typeof useSearch>>(null);
  const sought = folded(text.trim());
  useEffect(() => {
    setState(null);
    if (!isSought(sought)) return;
    let isStale = false;
    const run = async () => {
      const found: Found[] = [];
      for await (const one of search(sought)) {
        if (isStale) return;
        found.push(one);
        setState({ found: [...found], isOver: false });
        if (found.length === foundMax) break;
      }
      if (!isStale) setState({ found, isOver: true });
    };
    const timer = setTimeout(() => void run().catch(() => undefined), pauseMs);
    return () => {
      isStale = true;
      clearTimeout(timer);
    };
  }, [sought]);
  return state;
}

/** The words around what was sought. */
export function excerptOf(message: StoredMessage, text: string): string {
  const said = saidIn(message);
  const at = originalIndex(said, folded(text.trim()));
  return at > 30
    ? `…${said.slice(at - 24, at).replace(/^\S*\s+/, "")}${said.slice(at, at + 200)}`
    : said.slice(0, 200);
}
