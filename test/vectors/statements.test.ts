/**
 * Statements of groups and heads of keyrings: the bytes that are signed, how states join, and what
 * is healed.
 * Source: docs/protocol.md "Groups", docs/trust.md "Own devices".
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { type Head, headText, parseHead } from "../../src/client/devices/keyring.ts";
import {
  type GroupState,
  type HandOver,
  handOverText,
  heal,
  joinStates,
  type Leaving,
  leavingText,
  membersOf,
  parseStatement,
  type Statement,
  stateDigest,
  statementText,
  successorOf,
} from "../../src/client/groups/statements.ts";
import { verifySignature } from "../../src/client/keys/crypto.ts";
import { decodeBase64, decodeHex, decodeUtf8 } from "../../src/core/codec/bytes.ts";

const read = <T>(file: string): T =>
  JSON.parse(readFileSync(new URL(file, import.meta.url), "utf8")) as T;

type Signed = { readonly text: string; readonly signature: string };
type Named = { readonly digest: string };
type Joined = { readonly a: GroupState; readonly b: GroupState; readonly digest: string } & {
  readonly name: string;
  readonly members: readonly string[];
};
type Healed = { readonly held: GroupState; readonly said: Statement } & {
  readonly after: Pick<Statement, "name" | "members">;
};
const groups = read<{
  readonly rootKey: string;
  readonly statement: Statement & Signed & { readonly digest: string };
  readonly leaving: Leaving & Pick<Signed, "text">;
  readonly handOver: Pick<HandOver, "id" | "next"> &
    Pick<Signed, "text"> &
    Named & {
      readonly successor: Named & { readonly id: string };
    };
  readonly joins: readonly Joined[];
  readonly heals: readonly Healed[];
}>("groups/statements.json");
const heads = read<Signed & { readonly head: Head; readonly secretsSha256: string }>(
  "keyrings/heads.json",
);

const holds = (text: Uint8Array, signature: string): Promise<boolean> =>
  verifySignature(
    decodeBase64(signature) ?? new Uint8Array(0),
    text,
    decodeHex(groups.rootKey) ?? new Uint8Array(0),
  );

test("a statement and a leaving have the bytes that are signed, and their state its digest", async () => {
  const { statement, leaving } = groups;
  const parsed = parseStatement(statement) as Statement;
  expect(parsed.id).toBe(statement.id);
  expect(decodeUtf8(statementText(parsed))).toBe(statement.text);
  expect(await holds(statementText(parsed), statement.signature)).toBe(true);
  expect(stateDigest({ ...parsed, left: {} })).toBe(statement.digest);
  expect(decodeUtf8(leavingText(leaving))).toBe(leaving.text);
});

test("a hand-over has the bytes that are signed, changes the digest, and names the next group", () => {
  const { statement, handOver } = groups;
  const parsed = parseStatement(statement) as Statement;
  const { maker, nonce } = parsed;
  const { id, next, text, digest, successor } = handOver;
  expect(decodeUtf8(handOverText({ id, maker, nonce, next }))).toBe(text);
  const state: GroupState = { ...parsed, left: {}, next };
  expect(stateDigest(state)).toBe(digest);
  const founded = successorOf(state) as GroupState;
  expect([founded.id, founded.maker, founded.nonce]).toEqual([successor.id, next, id]);
  expect(stateDigest(founded)).toBe(successor.digest);
  expect(successorOf({ ...parsed, left: {} })).toBeNull();
});

test("states join to the same one from both sides", () => {
  expect(groups.joins.length).toBeGreaterThan(3);
  for (const { a, b, name, members, digest } of groups.joins)
    for (const state of [joinStates(a, b), joinStates(b, a), joinStates(joinStates(a, b), b)])
      expect([state.name[0], membersOf(state), stateDigest(state)]).toEqual([
        name,
        [...members] as never,
        digest,
      ]);
});

test("what an earlier key said is healed", () => {
  expect(groups.heals.length).toBeGreaterThan(2);
  for (const { held, said, after } of groups.heals) {
    const { name, members } = heal(held, said);
    expect({ name, members }).toEqual(after);
  }
});

test("a head has the bytes that its root key signs", async () => {
  const head = parseHead(heads.head) as Head;
  const text = headText(head, heads.secretsSha256);
  expect(decodeUtf8(text)).toBe(heads.text);
  expect(await holds(text, heads.signature)).toBe(true);
  const [device] = head.devices;
  const other = { ...head, devices: [{ ...device, key: "ff".repeat(32) }] } as Head;
  expect(await holds(headText(other, heads.secretsSha256), heads.signature)).toBe(false);
});
