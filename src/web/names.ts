/**
 * People whose names look the same: letters that are not seen, accents, case and width distinguish
 * no one. Their names get a part of the address behind them, so that a stranger who takes a
 * friend's name is told apart.
 */
import { me } from "./session.ts";
import { twinsOf } from "./text.ts";

let twins: ReadonlySet<string> = new Set();

export const isTwin = (did: string): boolean => twins.has(did);

/** Follows the people of the store. Returns what ends it. */
export function followNames(): () => void {
  const loadTwins = async () => {
    twins = twinsOf(await me.store.people());
  };
  void loadTwins().catch(() => undefined);
  return me.on((event) => {
    if (event.type === "changed" && (event.what === "person" || event.what === "message"))
      void loadTwins().catch(() => undefined);
  });
}
