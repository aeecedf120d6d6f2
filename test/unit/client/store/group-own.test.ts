/**
 * What a device keeps of groups that another device of its identity shows: what waits, what counts,
 * and what was kept before.
 */
import { expect, test } from "bun:test";
import { ClientError } from "../../../../src/client/base/failure.ts";
import {
  fitting,
  type GroupRow,
  newRow,
  renderBundle,
  type SignedHandOver,
  type SignedLeaving,
  type SignedStatement,
} from "../../../../src/client/groups/bundles.ts";
import {
  emptyGroup,
  type GroupState,
  groupIdOf,
  handOverText,
  leavingText,
  membersOf,
  parseStatement,
  statementText,
  successorOf,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import { ed25519PublicKey, signEd25519 } from "../../../../src/client/keys/crypto.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { OwnGroups } from "../../../../src/client/store/group-own.ts";
import { factsOf, groupAt, putGroup } from "../../../../src/client/store/group-rows.ts";
import { rowsOf } from "../../../../src/client/store/keys.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { encodeBase64, encodeHex, renderPublicKey } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { deriveDid } from "../../../../src/core/ledger/names.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";

const nowMs = 1_790_000_000_000;
const [own, mallory] = [identityOf("own").did, identityOf("mallory").did];
const seedOf = (byte: number) => new Uint8Array(32).fill(byte);
const firstKey = await ed25519PublicKey(seedOf(5));
const maker = deriveDid(new Uint8Array(32), firstKey);
const nextKey = await ed25519PublicKey(seedOf(6));
const next = deriveDid(new Uint8Array(32), nextKey);

async function signed(text: Uint8Array, byte: number) {
  const key = encodeHex(await ed25519PublicKey(seedOf(byte)));
  return { key, signature: encodeBase64(await signEd25519(text, seedOf(byte))) };
}
const stated = async (statement: GroupState, byte = 5): Promise<SignedStatement> => ({
  statement,
  ...(await signed(statementText(statement), byte)),
});
async function handedOver({ id, nonce }: GroupState, byte = 5): Promise<SignedHandOver> {
  const one = { id, maker, nonce, next };
  return { ...one, ...(await signed(handOverText(one), byte)) };
}

const begun = withChange(
  emptyGroup(maker, "n"),
  { name: "Hiking", add: [maker, own, next] },
  nowMs,
);
const joined = begun.members[own]?.[1] ?? 0;
const rowOf = (state: GroupState, statements: readonly SignedStatement[]): GroupRow => ({
  ...newRow(state),
  statements,
  joined,
});

/** A device whose look-ups of keys answer `roots`, or fail. */
async function device() {
  const at = {
    ...{ nowMs, isAway: false, roots: { [maker]: [firstKey], [next]: [nextKey] } },
    /** How long ago it was shown what is remembered of keys. */
    agoMs: null as number | null,
  };
  const shown: Did[] = [];
  const table = await Table.open(memoryStore(), seedOf(7));
  const store = await ownStoreOf(table, own, { nowMs: () => at.nowMs });
  const asked: Did[] = [];
  const prove = async (did: Did) => {
    asked.push(did);
    if (at.isAway) throw new ClientError("unreachable", "unreachable", "away");
    return { rootKeys: at.roots[did] ?? [] };
  };
  const provenOf = (did: Did) => {
    const { agoMs } = at;
    const state = { rootKeys: at.roots[did] ?? [] };
    return agoMs === null ? null : { state, shownMs: performance.now() - agoMs };
  };
  Object.assign(store.identity.client, { trust: { provenOf, prove } });
  const send = async (to: readonly Did[]) => {
    shown.push(...to);
    return [];
  };
  const { talk } = await partsOf(store, { send });
  const groups = new OwnGroups(store, talk);
  const factsNow = async () => {
    const row = await groupAt(table, begun.id);
    if (row === null) return null;
    const { name, admin, standing } = factsOf(row, own);
    return { name, admin, standing, owed: (row.owed ?? []).length };
  };
  return { at, table, talk, groups, shown, asked, store, factsNow };
}
const hiking = { name: "Hiking", admin: maker, standing: "joined", owed: 0 } as const;

test("what can't be looked up waits, counts once it can, and ends after thirty days", async () => {
  const { at, table, talk, groups, factsNow } = await device();
  at.isAway = true;
  const given = rowOf(begun, [await stated(begun)]);
  await groups.take(given);
  expect(await factsNow()).toEqual({ ...hiking, name: "", standing: "out", owed: 1 });
  await groups.take(given);
  expect((await factsNow())?.owed).toBe(1);
  at.isAway = false;
  await talk.hearWaiting();
  expect(await factsNow()).toEqual(hiking);
  const foreign = withChange(begun, { name: "Foreign" }, nowMs + 5_000);
  await groups.take(rowOf(foreign, [await stated(foreign, 9)]));
  expect(await factsNow()).toEqual({ ...hiking, owed: 1 });
  at.nowMs += 30 * dayMs;
  await talk.hearWaiting();
  expect(await factsNow()).toEqual(hiking);
  expect((await groupAt(table, begun.id))?.waiting).toEqual([]);
});

test("while the Directory is away keys count that it showed in the last quarter of an hour, and no others", async () => {
  const { at, groups, talk, factsNow } = await device();
  at.isAway = true;
  at.agoMs = 15 * 60_000 + 1;
  await groups.take(rowOf(begun, [await stated(begun)]));
  expect(await factsNow()).toEqual({ ...hiking, name: "", standing: "out", owed: 1 });
  at.agoMs = 14 * 60_000;
  await talk.hearWaiting();
  expect(await factsNow()).toEqual(hiking);
});

test("what an earlier key has signed waits, and its signer is asked once a day", async () => {
  const { at, groups, talk, shown, factsNow } = await device();
  at.roots = { ...at.roots, [maker]: [firstKey, await ed25519PublicKey(seedOf(8))] };
  await groups.take(rowOf(begun, [await stated(begun)]));
  await talk.hearWaiting();
  expect(await factsNow()).toEqual({ ...hiking, name: "", standing: "out", owed: 1 });
  expect(shown).toEqual([maker]);
  at.nowMs += dayMs;
  await talk.hearWaiting();
  await talk.hearWaiting();
  expect(shown).toEqual([maker, maker]);
  await groups.take(rowOf(begun, [await stated(begun, 8)]));
  await talk.hearWaiting();
  expect(await factsNow()).toEqual(hiking);
});

test("nothing of a state counts that isn't signed, and no way that no hand-over leads", async () => {
  const { groups, talk, factsNow, table } = await device();
  await groups.take(rowOf(begun, [await stated(begun)]));
  const stolen = withChange(begun, { name: "Stolen", add: [mallory] }, nowMs + 5_000);
  await groups.take(rowOf(stolen, [await stated(begun)]));
  await groups.take({ ...rowOf(stolen, []), joined: Number.MAX_SAFE_INTEGER });
  await groups.take(rowOf({ ...stolen, id: "another" }, []));
  expect(await factsNow()).toEqual(hiking);
  expect((await groupAt(table, begun.id))?.joined).toBe(joined);
  const founded = successorOf({ ...begun, next }) as GroupState;
  const { id, nonce } = begun;
  const gone = { id, maker, nonce, next, atMs: nowMs };
  const way = { ...rowOf(founded, [await stated(founded, 6)]), former: [gone] };
  for (const handOvers of [[], [await handedOver(begun, 9)]]) {
    await groups.take({ ...way, handOvers });
    expect(await factsNow()).toMatchObject({ ...hiking, owed: handOvers.length === 0 ? 1 : 2 });
  }
  await groups.take({ ...way, handOvers: [await handedOver(begun)] });
  expect(await factsNow()).toEqual({ ...hiking, admin: next, owed: 2 });
  await talk.hearWaiting();
  expect(await factsNow()).toEqual({ ...hiking, admin: next });
});

test("no way that another device says counts without ids of its makers, or against one that was followed", async () => {
  const { groups, talk, table, factsNow } = await device();
  await groups.take(rowOf(begun, [await stated(begun)]));
  const { nonce } = begun;
  const founded = emptyGroup(mallory, "m");
  for (const id of [begun.id, crypto.randomUUID()]) {
    const former = [{ id, maker, nonce, next: mallory, atMs: 1 }];
    await groups.take({ ...newRow(founded), former });
    await talk.hearWaiting();
    expect(await factsNow()).toEqual({ ...hiking, owed: 1 });
  }
  const way = successorOf({ ...begun, next }) as GroupState;
  const gone = { id: begun.id, maker, nonce, next, atMs: nowMs };
  const handOvers = [await handedOver(begun)];
  await groups.take({ ...rowOf(way, [await stated(way, 6)]), former: [gone], handOvers });
  expect(await factsNow()).toMatchObject({ admin: next });
  const other = successorOf({ ...begun, next: mallory }) as GroupState;
  const former = [{ ...gone, next: mallory, atMs: 1 }];
  const key = { key: "ab".repeat(32), signature: "" };
  const said = [...handOvers, { id: begun.id, maker, nonce, next: mallory, ...key }];
  await groups.take({ ...rowOf(other, []), former, handOvers: said });
  expect(await factsNow()).toMatchObject({ name: "Hiking", admin: next, standing: "joined" });
  expect((await table.values<GroupRow>(rowsOf.groups)).length).toBe(1);
});

test("a hand-over that counts empties no group: the next admin has said something there first", async () => {
  const { groups, talk, factsNow } = await device();
  await groups.take(rowOf(begun, [await stated(begun)]));
  const way = successorOf({ ...begun, next }) as GroupState;
  const gone = { id: begun.id, maker, nonce: begun.nonce, next, atMs: nowMs };
  const led = { former: [gone], handOvers: [await handedOver(begun)] };
  await groups.take({ ...newRow(emptyGroup(way.maker, way.nonce)), ...led });
  expect(await factsNow()).toEqual({ ...hiking, owed: 1 });
  await groups.take({ ...rowOf(way, [await stated(way, 6)]), ...led });
  await talk.hearWaiting();
  expect(await factsNow()).toEqual({ ...hiking, admin: next });
});

const version = Math.floor(nowMs / 1_000);
/** A DID of the length given, which is made up. */
const inventedDid = (n: number, length: number): string =>
  `did:svc:${String(n)
    .padStart(length - 8, "1")
    .replaceAll("0", "z")}`;
const outOf = (count: number, length: number) =>
  Object.fromEntries(
    Array.from(
      { length: count },
      (_, n) => [inventedDid(n, length), ["out", version - 5]] as const,
    ),
  );

test.each([
  ["a version with a fraction", { name: ["Stolen", version + 7_200.5] }, {}],
  ["a long name", { name: ["x".repeat(200), version - 1] }, {}],
  ["somebody in a version with a fraction", {}, { [mallory]: ["in", version + 7_200.5] }],
  ["a part of nobody", {}, { "not a did": ["out", version - 5] }],
  ["a part that is neither in nor out", {}, { [inventedDid(1, 40)]: ["maybe", version - 5] }],
  ["1,100 made-up people", {}, outOf(1_100, 40)],
  ["600 long DIDs", {}, outOf(600, 98)],
])(
  "whatever another own device says of an own group, others can read what this one says next: %s",
  async (_what, change, members) => {
    const { groups, table } = await device();
    const ours = withChange(emptyGroup(own, "n"), { name: "Hiking", add: [own, mallory] }, nowMs);
    await groups.take(newRow(ours));
    const given = { ...ours, ...change, members: { ...ours.members, ...members } };
    const state: GroupState = JSON.parse(JSON.stringify(given));
    await groups.take(newRow(state));
    const held = (await groupAt(table, ours.id)) as GroupRow;
    const said = withChange(held.state, { remove: [mallory], name: "Climbing" }, nowMs);
    const statement = parseStatement(JSON.parse(JSON.stringify(said)));
    expect(statement?.members).toEqual(said.members);
    const signed = { statement: said, key: "ab".repeat(32), signature: "" };
    const bundle = { statements: [signed], leavings: [], handOvers: [] };
    expect(fitting(bundle).statements.length).toBe(1);
    expect([statement?.name[0], said.members[own]?.[0]]).toEqual(["Climbing", "in"]);
  },
);

test.each([
  ["no row", 5],
  ["no state", { v: 2, state: null }],
  ["no way", { v: 2, state: begun, former: "abc" }],
  ["statements of no form", { ...newRow(begun), statements: [null, { statement: 5 }], joined }],
  ["a group without a nonce", { ...newRow(begun), state: { ...begun, nonce: 5 } }],
  ["wishes and leavings of no form", { ...newRow(begun), handing: [], leavings: [5], second: {} }],
])(
  "of another form than a row has another own device's word says nothing: %s",
  async (_what, said) => {
    const { groups, table } = await device();
    await groups.take(rowOf(begun, [await stated(begun)]));
    const before = JSON.stringify(await groupAt(table, begun.id));
    await groups.take(JSON.parse(JSON.stringify(said)));
    expect(JSON.stringify(await groupAt(table, begun.id))).toBe(before);
  },
);

test("a long list of leavings has room after the newest statement, and none before it", async () => {
  const statements = [await stated(begun)];
  const long = {
    id: begun.id,
    did: own,
    version: 1,
    key: "00".repeat(32),
    signature: "A".repeat(61_000),
  };
  const said = fitting({ statements, leavings: [long, { ...long, signature: "" }], handOvers: [] });
  expect([said.statements.length, said.leavings.map(({ signature }) => signature)]).toEqual([
    1,
    [""],
  ]);
});

test("a device of the next admin takes up the removal that it had heard, or hears from another one, and no unsigned one", async () => {
  const { id, nonce } = begun;
  const left = { id, maker, nonce, next: own };
  const state = successorOf({ ...begun, next: own }) as GroupState;
  const handOver = { ...left, ...(await signed(handOverText(left), 5)) };
  const way = { former: [{ ...left, atMs: nowMs + 9_000 }], handOvers: [handOver] };
  const founded = { ...rowOf(state, []), ...way };
  const without = withChange(begun, { remove: [next] }, nowMs + 5_000);
  const removal = rowOf(without, [await stated(without)]);
  const forged = await stated(without, 9);
  const membersAfter = async (...rows: readonly GroupRow[]) => {
    const { groups, table } = await device();
    for (const row of rows) await groups.take(row);
    const row = await groupAt(table, id);
    return row === null ? [] : membersOf(row.state);
  };
  const [all, rest] = [membersOf(begun), membersOf(without)];
  expect(await membersAfter(removal, founded)).toEqual(rest);
  expect(await membersAfter(founded, removal)).toEqual(rest);
  expect(await membersAfter(rowOf(begun, [await stated(begun)]), founded)).toEqual(all);
  expect(await membersAfter(founded, rowOf(without, [forged]))).toEqual(all);
  const again = { ...founded, removals: [forged] };
  expect(await membersAfter(again, again)).toEqual(all);
});

test("whose device was set back, and changed a group that was handed over meanwhile, is told", async () => {
  const { groups, store, table } = await device();
  const { rootSeed } = store.identity.secrets;
  const publicKey = await ed25519PublicKey(rootSeed);
  const key = encodeHex(publicKey);
  const resolve = async () => ({ root_pubkey: renderPublicKey(publicKey) });
  Object.assign(store.identity.client.directory, { resolve });
  const made = withChange(emptyGroup(own, "n"), { name: "Hiking", add: [own, maker, next] }, nowMs);
  const without = withChange(made, { remove: [next] }, nowMs + 5_000);
  const was = { [next]: made.members[next]?.[1] ?? 0 };
  const mine = { ...rowOf(without, []), root: key, joined, was };
  await table.change((batch) => putGroup(table, batch, mine));
  const gone = { id: made.id, maker: own, nonce: "n", next: maker };
  const signature = encodeBase64(await signEd25519(handOverText(gone), rootSeed));
  const way = successorOf({ ...made, next: maker }) as GroupState;
  const change = await groups.take({
    ...rowOf(way, [await stated(way)]),
    former: [{ ...gone, atMs: nowMs }],
    handOvers: [{ ...gone, key, signature }],
  });
  expect(change).toMatchObject({ conversation: made.id, what: "overtaken" });
  const row = await groupAt(table, made.id);
  expect([row?.state.maker, row?.state.members[next]?.[0]]).toEqual([maker, "in"]);
});

for (const [what, edit] of [
  ["joined", { joined: Number.MAX_SAFE_INTEGER }],
  ["left", { state: { ...begun, left: { [own]: Number.MAX_SAFE_INTEGER } } }],
] as const)
  test(`what waits says of no later invitation that this identity has ${what}`, async () => {
    const { at, table, groups, talk, factsNow } = await device();
    await groups.take(rowOf(begun, [await stated(begun)]));
    const foreign = await stated(withChange(begun, { name: "Foreign" }, nowMs + 1_000), 9);
    await groups.take({ ...rowOf(begun, [foreign]), ...edit });
    const out = withChange(begun, { remove: [own] }, nowMs + 2_000);
    const again = withChange(out, { add: [own] }, nowMs + 4_000);
    at.nowMs += 5_000;
    for (const said of [out, again])
      await groups.take({ ...rowOf(said, [await stated(said)]), joined: 0 });
    expect(await factsNow()).toEqual({ ...hiking, standing: "asked", owed: 1 });
    await talk.hearWaiting();
    expect(await factsNow()).toEqual({ ...hiking, standing: "asked", owed: 1 });
    await table.change(async (batch) => {
      const row = await groupAt(table, begun.id, batch);
      const version = again.members[own]?.[1] ?? 0;
      if (row !== null) await putGroup(table, batch, { ...row, joined: version });
    });
    await talk.hearWaiting();
    expect(await factsNow()).toEqual({ ...hiking, owed: 1 });
  });

test("what came under an earlier root key of this identity counts no more: its device may be removed", async () => {
  const { at, groups, talk, store, factsNow } = await device();
  at.isAway = true;
  await groups.take(rowOf(begun, [await stated(begun)]));
  at.isAway = false;
  const { secrets } = store.identity;
  Object.assign(secrets, { rootSeed: seedOf(11) });
  await talk.hearWaiting();
  expect(await factsNow()).toEqual({ ...hiking, name: "", standing: "out", owed: 0 });
});

test("each signer is looked up once a look, however much of what waits names them", async () => {
  const { table, talk, asked } = await device();
  const leaving = async (version: number) => {
    const one = { id: begun.id, did: next, version };
    return { ...one, ...(await signed(leavingText(one), 9)) };
  };
  const waits = async (...versions: readonly number[]) => {
    const leavings = await Promise.all(versions.map((version) => leaving(joined + version)));
    return { bundle: { statements: [], leavings }, from: maker, sinceMs: nowMs };
  };
  const row = { ...rowOf(begun, []), waiting: [await waits(1, 2), await waits(3, 4)] };
  await table.change((batch) => putGroup(table, batch, row));
  await talk.hearWaiting();
  expect(asked.filter((did) => did === next)).toEqual([next]);
  expect((await groupAt(table, begun.id))?.waiting.length).toBe(2);
});

/** Signed by keys that no record shows: so they would wait for it. */
async function madeUp(from: number, count: number) {
  const leavings: SignedLeaving[] = [];
  const handOvers: SignedHandOver[] = [];
  for (let n = from; n < from + count; n++) {
    const { did } = identityOf(`made up ${n}`);
    const gone = { id: begun.id, did, version: joined };
    leavings.push({ ...gone, ...(await signed(leavingText(gone), 9)) });
    const given = { id: groupIdOf(did, "n"), maker: did, nonce: "n", next: mallory };
    handOvers.push({ ...given, ...(await signed(handOverText(given), 9)) });
  }
  return { leavings, handOvers };
}

test("nobody is looked up who is not in the group, whatever who was removed says of them", async () => {
  const { table, talk, asked } = await device();
  await table.change((batch) => putGroup(table, batch, rowOf(begun, [])));
  const stolen = await stated(withChange(begun, { name: "Stolen", add: [mallory] }, nowMs), 9);
  const { leavings, handOvers } = await madeUp(0, 15);
  const members = { id: begun.id, did: next, version: joined };
  const ofMember = { ...members, ...(await signed(leavingText(members), 9)) };
  const bundle = { statements: [stolen], leavings: [...leavings, ofMember], handOvers };
  const json = JSON.parse(JSON.stringify(renderBundle(bundle)));
  const said = await talk.judging.examine(begun.id, mallory, json);
  // The statement may be by a key of its maker that this device doesn't know so far: what it says
  // waits.
  expect(said?.leavings.map(({ one, by }) => [one.did, by])).toEqual([[next, "unknown"]]);
  expect(said?.handOvers).toEqual([]);
  expect(asked).toEqual([maker]);
  // A member may have heard of a leaving; of others' there is nothing to say.
  await talk.judging.examine(begun.id, maker, json);
  expect(asked).toEqual([maker, maker, next]);
});

test("a hand-over is looked at where the one before it counts, and waits behind one that can't be judged", async () => {
  const { at, table, talk, asked } = await device();
  await table.change((batch) => putGroup(table, batch, rowOf(begun, [])));
  const first = await handedOver(begun);
  const further = { id: groupIdOf(next, begun.id), maker: next, nonce: begun.id, next: mallory };
  const second = { ...further, ...(await signed(handOverText(further), 6)) };
  const bundle = { statements: [], leavings: [], handOvers: [second, first] };
  const json = JSON.parse(JSON.stringify(renderBundle(bundle)));
  const verdicts = async (id: string) =>
    (await talk.judging.examine(id, next, json))?.handOvers.map(
      ({ one, by }): readonly string[] => [one.maker, by],
    );
  // In the order in which they came.
  const counting = [
    [next, "in_force"],
    [maker, "in_force"],
  ];
  expect(await verdicts(begun.id)).toEqual(counting);
  // Also shown under the id to which they lead.
  const later = groupIdOf(mallory, further.id);
  expect(await verdicts(later)).toEqual(counting);
  const gone = { id: later, did: next, version: joined };
  const leaving = { ...gone, ...(await signed(leavingText(gone), 6)) };
  const left = JSON.parse(JSON.stringify(renderBundle({ ...bundle, leavings: [leaving] })));
  const said = await talk.judging.examine(later, next, left);
  expect(said?.leavings.map(({ one, by }) => [one.did, by])).toEqual([[next, "in_force"]]);
  asked.length = 0;
  at.roots[maker] = [nextKey];
  expect(await verdicts(begun.id)).toEqual([
    [next, "unknown"],
    [maker, "unknown"],
  ]);
  expect(asked).toEqual([maker]);
});

test("of one bundle eight leavings are looked at, and none that is known already", async () => {
  const { table, talk, asked } = await device();
  const bytes = Array.from({ length: 12 }, (_, n) => 20 + n);
  const keys = await Promise.all(bytes.map((byte) => ed25519PublicKey(seedOf(byte))));
  const dids = keys.map((key) => deriveDid(new Uint8Array(32), key));
  const state = withChange(begun, { add: dids }, nowMs);
  const versions = dids.map(async (did) => {
    const gone = { id: begun.id, did, version: state.members[did]?.[1] ?? 0 };
    return { ...gone, ...(await signed(leavingText(gone), 9)) };
  });
  const all = await Promise.all(versions);
  const known = all.slice(0, 2);
  await table.change((batch) => putGroup(table, batch, { ...rowOf(state, []), leavings: known }));
  const bundle = { statements: [], leavings: all, handOvers: [] };
  const json = JSON.parse(JSON.stringify(renderBundle(bundle)));
  const said = await talk.judging.examine(begun.id, maker, json);
  const looked = all.slice(2, 10).map(({ did }) => did);
  expect(said?.leavings.map(({ one }) => one.did)).toEqual(looked);
  expect(asked).toEqual(looked);
});

test("what an earlier version kept unsigned goes where a statement by the key in force is there", async () => {
  const { at, table, talk, shown, factsNow } = await device();
  const stolen = withChange(begun, { add: [mallory] }, nowMs + 5_000);
  const { isSigned: _, ...before } = rowOf(stolen, [await stated(begun)]);
  const members = async () => membersOf((await groupAt(table, begun.id))?.state as GroupState);
  const put = () => table.change((batch) => putGroup(table, batch, before));
  await put();
  const roots = at.roots;
  at.roots = { ...roots, [maker]: [firstKey, await ed25519PublicKey(seedOf(8))] };
  await talk.hearWaiting();
  expect([await members(), shown]).toEqual([membersOf(stolen), [maker]]);
  at.roots = roots;
  await talk.hearWaiting();
  expect(await members()).toEqual(membersOf(begun));
  expect(await factsNow()).toEqual(hiking);
  expect((await groupAt(table, begun.id))?.isSigned).toBe(true);
});
