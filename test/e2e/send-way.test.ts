/**
 * The way of a message through the SDK: in which files functions run when a text is sent to somebody who was written to before,
 * from `send` to the bytes that the Relay has. A reader who follows it opens these files, so their number is bounded.
 * Source: docs/architecture.md "The life of a request".
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { peopleAtNodes } from "../support/people.ts";
import { command, findRuntimes } from "./packed-sdk.ts";

const root = join(import.meta.dir, "..", "..");
// It runs sources as they are, and counts calls.
const node = findRuntimes().find(({ name }) => name === "node 24")?.command ?? null;
if (node === null) console.log("SKIPPED: the way of a message, for want of test/runtimes");

/** May only become fewer. */
const way = [
  "base/failure.ts",
  "base/shapes.ts",
  "base/turns.ts",
  "keys/crypto.ts",
  "keys/hpke.ts",
  "keys/key-stores.ts",
  "keys/xwing.ts",
  "mail/content.ts",
  "mail/own-identity.ts",
  "mail/plan.ts",
  "mail/seal-hybrid.ts",
  "mail/seal.ts",
  "mail/send.ts",
  "net/directory.ts",
  "net/http.ts",
  "session.ts",
  "store/copies.ts",
  "store/driver.ts",
  "store/evidence.ts",
  "store/files.ts",
  "store/keys.ts",
  "store/lane.ts",
  "store/lasting.ts",
  "store/outbox.ts",
  "store/own-store.ts",
  "store/passes.ts",
  "store/places.ts",
  "store/rows.ts",
  "store/sending.ts",
  "store/table.ts",
  "trust/bundles.ts",
  "trust/client.ts",
  "trust/trust.ts",
  "waypost.ts",
];

const people = peopleAtNodes();

test.if(node !== null)(
  "a text to somebody who was written to before runs through few files",
  async () => {
    const friend = await people.openStored();
    const program = join(import.meta.dir, "send-way.mjs");
    const flags = ["--experimental-transform-types", "--no-warnings"];
    const words = [...(node ?? []), ...flags, program, root, people.at.url, friend.did];
    const ran: string[][] = JSON.parse(await command(words, root));
    // What a timer runs meanwhile, it runs once.
    const [first = [], ...others] = ran;
    const files = first.filter((path) => others.every((one) => one.includes(path)));
    expect(files.sort()).toEqual(way);
  },
  60_000,
);
