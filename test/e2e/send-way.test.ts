/**
 * The way of a message through the SDK: in which files functions run when a text is sent to
 * somebody who was written to before, from `send` to the bytes that the Relay has. A reader who
 * follows it opens these files, so their number is bounded.
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

/** What decides, saves, seals and posts it, and what became of it. May only become fewer. */
const steps = [
  "waypost.ts",
  "session.ts",
  "store/sending.ts",
  "store/files.ts",
  "store/rows.ts",
  "store/places.ts",
  "store/keys.ts",
  "store/table.ts",
  "store/own-store.ts",
  "store/outbox.ts",
  "store/lane.ts",
  "store/copies.ts",
  "store/passes.ts",
  "mail/own-identity.ts",
  "mail/content.ts",
  "mail/plan.ts",
  "mail/send.ts",
  "mail/seal.ts",
  "mail/seal-hybrid.ts",
  "trust/client.ts",
  "trust/trust.ts",
  "trust/bundles.ts",
  "net/directory.ts",
  "net/http.ts",
];
/**
 * What those call as one calls a library: failures, shapes, cryptography, and where a program keeps
 * its keys and rows.
 */
const below = [
  "base/failure.ts",
  "base/shapes.ts",
  "keys/crypto.ts",
  "keys/hpke.ts",
  "keys/xwing.ts",
  "keys/key-stores.ts",
  "store/driver.ts",
  "store/person-shape.ts",
];
/**
 * What is informed of it: proofs are kept for other devices, and messages that last for a time are
 * looked at.
 */
const informed = ["store/evidence.ts", "store/lasting.ts"];

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
    expect(files.sort()).toEqual([...steps, ...below, ...informed].sort());
  },
  60_000,
);
