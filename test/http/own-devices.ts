/** Several devices of one identity over the nodes of a test, and what they show. */
import { expect } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { type peopleAtNodes, waiting } from "../support/people.ts";
import { looking } from "../support/wait.ts";

type Place = {
  readonly url: string;
  readonly keys: WaypostOptions["keys"];
  readonly store: StoreDriver;
  readonly waiting: typeof waiting;
};

export function devicesAt({ at, keep }: Pick<ReturnType<typeof peopleAtNodes>, "at" | "keep">) {
  const place = (store = memoryStore()): Place => ({
    url: at.url,
    keys: memoryKeys(),
    store,
    waiting,
  });
  /** A second device of an identity, linked. */
  const linked = async (first: Waypost, where = place()): Promise<Waypost> => {
    const linking = await Waypost.link(where);
    await first.devices.acceptLink(linking.code, "second");
    return keep(linking.opened);
  };
  return { place, linked };
}

/**
 * Keys of a device that is killed right behind a write, as `isLast` says of it: nothing is written
 * from then on.
 */
export function killedKeys(
  keys: KeyStore,
  isLast: (name: string, before: string | null, after: string) => boolean,
): { readonly keys: KeyStore; readonly isDead: () => boolean } {
  let isDead = false;
  const demandLife = () => {
    if (isDead) throw new Error("killed");
  };
  const killed: KeyStore = {
    load: (name) => keys.load(name),
    save: async (name, text) => {
      demandLife();
      await keys.save(name, text);
    },
    replace: async (name, before, after) => {
      demandLife();
      const isDone = await keys.replace(name, before, after);
      isDead ||= isLast(name, before, after);
      return isDone;
    },
  };
  return { keys: killed, isDead: () => isDead };
}

/** What a device shows, as soon as it is what is wanted. */
export async function until<T>(
  read: () => Promise<T>,
  isWanted: (value: T) => boolean,
): Promise<T> {
  const endMs = performance.now() + 60_000;
  for (const look = looking(20); ; await look.pause()) {
    const value = await read();
    if (isWanted(value) || performance.now() > endMs) return value;
  }
}

export const textsOf = async (me: Waypost, conversation: string) =>
  (await me.store.messages(conversation, { limit: 2_000 })).map(({ text }) => text);

export const shows = async (me: Waypost, conversation: string, texts: readonly (string | null)[]) =>
  expect(
    await until(
      () => textsOf(me, conversation),
      (all) => Bun.deepEquals(all, [...texts]),
    ),
  ).toEqual([...texts]);
