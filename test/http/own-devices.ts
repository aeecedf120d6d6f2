/** Several devices of one identity over the nodes of a test, and what they show. */
import { expect } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
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
