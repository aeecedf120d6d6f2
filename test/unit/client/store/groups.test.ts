/**
 * What a device keeps of a group: who is asked, what own devices tell one another, what waits, and
 * where messages show.
 */
import { expect, test } from "bun:test";
import { attempt, type ClientError } from "../../../../src/client/base/failure.ts";
import {
  type GroupRow,
  mergeRows,
  newRow,
  overtaken,
  renderBundle,
  type SignedHandOver,
  type SignedStatement,
  standingOf,
  upgradeRow,
} from "../../../../src/client/groups/bundles.ts";
import { follow, found } from "../../../../src/client/groups/handing.ts";
import {
  emptyGroup,
  type GroupState,
  hear,
  isIn,
  membersOf,
  nearState,
  outOnly,
  statementText,
  successorOf,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import { ed25519PublicKey, signEd25519 } from "../../../../src/client/keys/crypto.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import {
  type Examined,
  hearBundle,
  type Judged,
} from "../../../../src/client/store/group-hearing.ts";
import {
  factsOf,
  groupAt,
  markMisfiled,
  putGroup,
} from "../../../../src/client/store/group-rows.ts";
import { keyOfGroup } from "../../../../src/client/store/keys.ts";
import { type MessageRow, placeMessage } from "../../../../src/client/store/rows.ts";
import type { Sending } from "../../../../src/client/store/sending.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { encodeBase64, encodeHex } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs, minuteMs } from "../../../../src/core/codec/time.ts";
import { deriveDid } from "../../../../src/core/ledger/names.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";

const [admin, own, other] = [
  identityOf("admin").did,
  identityOf("own").did,
  identityOf("other").did,
];
const nowMs = 1_790_000_000_000;
const open = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));
const begun = (maker: Did, nonce: string, members: readonly Did[]): GroupState =>
  withChange(emptyGroup(maker, nonce), { name: "Hiking", add: members }, nowMs);
const signed = (statement: GroupState): SignedStatement => {
  return { statement, key: "aa".repeat(32), signature: "" };
};
const saying = (state: GroupState, by: Judged = "in_force"): Examined => {
  const nothing = { leavings: [], handOvers: [], isNextOld: false };
  return { from: admin, statements: [{ one: signed(state), by }], ...nothing, sinceMs: nowMs };
};
const hearing = (table: Table, said: Examined, isKnown: boolean, atMs = nowMs) =>
  table.change((batch) => {
    const id = said.statements[0]?.one.statement.id ?? said.leavings[0]?.one.id ?? "";
    return hearBundle(table, batch, { id, said }, { own, root: "", isKnown, nowMs: atMs });
  });

test("a known maker's group is joined at once, a stranger's asks, and who was taken out is asked again", async () => {
  const table = await open();
  const state = begun(admin, "n", [admin, own, other]);
  await hearing(table, saying(state), true);
  const facts = async () => {
    const row = await groupAt(table, state.id);
    return row === null ? null : factsOf(row, own);
  };
  expect(await facts()).toMatchObject({ admin, name: "Hiking", standing: "joined" });
  const later = withChange(state, { name: "Climbing" }, nowMs + 5_000);
  await hearing(table, saying(later), true);
  expect(await facts()).toMatchObject({ name: "Climbing", standing: "joined" });
  const without = withChange(later, { remove: [own] }, nowMs + 9_000);
  await hearing(table, saying({ ...later, ...outOnly(without, own) }), true);
  expect(await facts()).toMatchObject({ name: "Climbing", standing: "out" });
  await hearing(table, saying(withChange(without, { add: [own] }, nowMs + 20_000)), true);
  expect(await facts()).toMatchObject({ standing: "asked" });
  const strange = begun(other, "n", [other, own]);
  await hearing(table, saying(strange), false);
  const asked = await groupAt(table, strange.id);
  expect(asked && factsOf(asked, own).standing).toBe("asked");
});

test("the first hand-over that is followed holds, a second one is shown, and one whose key was replaced ends", async () => {
  const table = await open();
  const state = begun(admin, "n", [admin, own, other]);
  await hearing(table, saying(state), true);
  const { id, maker, nonce } = state;
  const byAdmin = (next: Did) => ({ id, maker, nonce, next, key: "aa".repeat(32), signature: "" });
  const naming = (next: Did, founds: boolean): Examined => {
    const founded = successorOf({ ...state, next }) as GroupState;
    const said = saying(founds ? founded : state);
    return { ...said, handOvers: [{ one: byAdmin(next), by: "in_force" }] };
  };
  const rowAt = async () => (await groupAt(table, id)) as GroupRow;
  await hearing(table, naming(other, false), true);
  expect((await rowAt()).state.next).toBe(other);
  await hearing(table, { ...saying(state), isNextOld: true }, true);
  expect((await rowAt()).state.next).toBeUndefined();
  expect((await rowAt()).handOvers).toEqual([]);
  const unknown = naming(other, true);
  const waiting = { ...unknown, handOvers: [{ one: byAdmin(other), by: "unknown" as const }] };
  await hearing(table, { ...waiting, statements: [] }, true);
  expect(factsOf(await rowAt(), own)).toMatchObject({ id, admin, next: null });
  await hearing(table, unknown, true);
  const facts = { id, admin: other, next: null, second: null, standing: "joined" };
  expect(factsOf(await rowAt(), own)).toMatchObject(facts);
  await hearing(table, naming(own, true), true);
  expect(factsOf(await rowAt(), own)).toMatchObject({ ...facts, second: own });
  // What the former admin says of it counts for nothing.
  await hearing(table, saying(withChange(state, { remove: [other] }, nowMs + 9_000)), true);
  expect(factsOf(await rowAt(), own)).toMatchObject({ ...facts, second: own });
});

test("a hand-over by a replaced key counts where its next admin has founded, and where another member shows it too", async () => {
  const [carol, mallory] = [identityOf("carol").did, identityOf("mallory").did];
  const table = await open();
  const state = begun(admin, "n", [admin, own, other, carol, mallory]);
  await hearing(table, saying(state), true);
  const { id, maker, nonce } = state;
  const shows = (from: Did, next: Did, isFounded = true) => {
    const founded = saying(successorOf({ ...state, next }) as GroupState);
    const one = { id, maker, nonce, next, key: "aa".repeat(32), signature: "" };
    const handOvers = [{ one, by: "earlier" as const }];
    const { statements } = isFounded ? founded : saying(state, "earlier");
    return hearing(table, { ...founded, statements, from, handOvers }, true);
  };
  const facts = async () => factsOf((await groupAt(table, id)) as GroupRow, own);
  const before = { admin, next: null, second: null, standing: "joined" };
  // Who has the key, and shows it again and again; or others, of what they can't have followed.
  for (const from of [mallory, mallory, admin, own]) await shows(from, mallory);
  expect(await facts()).toMatchObject(before);
  for (const from of [other, mallory]) await shows(from, carol, false);
  await shows(carol, carol);
  expect(await facts()).toMatchObject({ ...before, admin: carol });
  expect((await groupAt(table, id))?.shown).toBeUndefined();
});

test("strangers put somebody into at most fifty groups that wait for an answer; people who are known go on", async () => {
  const table = await open();
  const put = (maker: Did, isKnown: boolean, nonce: string) =>
    hearing(table, saying(begun(maker, nonce, [maker, own])), isKnown);
  const asked = await Array.fromAsync({ length: 51 }, (_, i) => put(admin, false, `${i}`));
  expect(asked.map((heard) => heard !== null)).toEqual([...Array<boolean>(50).fill(true), false]);
  expect(await put(other, true, "known")).not.toBeNull();
});

test("what can't be judged waits, and a leaving waits for what put its member in", async () => {
  const table = await open();
  const state = begun(admin, "n", [admin, own]);
  await hearing(table, saying(state), true);
  const ahead = withChange(state, { name: "Later" }, nowMs + 3 * 86_400_000);
  const unknown = withChange(state, { name: "By another key" }, nowMs + 4_000);
  const leaving = { id: state.id, did: other, version: 9, key: "", signature: "" };
  await hearing(table, saying(ahead), true);
  await hearing(table, saying(unknown, "unknown"), true);
  const gone = { ...saying(state), leavings: [{ one: leaving, by: "in_force" as const }] };
  await hearing(table, gone, true);
  const row = (await groupAt(table, state.id)) as GroupRow;
  expect([row.state.name[0], row.state.left, row.waiting.length]).toEqual(["Hiking", {}, 3]);
  // No one's word but the maker's, and with the time that was waited for.
  await hearing(
    table,
    { ...saying(ahead), statements: [{ one: signed(ahead), by: "other" }] },
    true,
  );
  expect((await groupAt(table, state.id))?.state.name[0]).toBe("Hiking");
  await hearing(table, saying(ahead), true, nowMs + 3 * 86_400_000);
  expect((await groupAt(table, state.id))?.state.name[0]).toBe("Later");
});

test("a leaving of a version that no clock has reached waits, and keeps nobody from coming again", async () => {
  const table = await open();
  const state = begun(admin, "n", [admin, own, other]);
  await hearing(table, saying(state), true);
  const leaving = { id: state.id, did: other, version: Number.MAX_SAFE_INTEGER };
  const one = { ...leaving, key: "", signature: "" };
  await hearing(table, { ...saying(state), leavings: [{ one, by: "in_force" }] }, true);
  const members = async () => membersOf((await groupAt(table, state.id))?.state as GroupState);
  expect(await members()).toEqual(membersOf(state));
  const gone = withChange(state, { remove: [other] }, nowMs + 2_000);
  await hearing(table, saying(gone), true);
  await hearing(table, saying(withChange(gone, { add: [other] }, nowMs + 4_000)), true);
  expect(await members()).toEqual(membersOf(state));
});

test("own devices come to the same whoever speaks first, keep a removal, and one whose change has lost is told", () => {
  const state = begun(own, "n", [own, admin, other]);
  const row: GroupRow = { ...newRow(state), root: "r1", joined: 1 };
  const removal = withChange(state, { remove: [other] }, nowMs + 1_000);
  const naming = withChange(state, { name: "Mine" }, nowMs + 2_000);
  const again = withChange(state, { name: "Theirs" }, nowMs + 3_000);
  const phone = { ...row, state: removal, was: { [other]: state.members[other]?.[1] ?? 0 } };
  const tablet = { ...row, state: naming, was: { "": state.name[1] } };
  const by = { own, root: "r1" };
  for (const merged of [mergeRows(phone, tablet, by), mergeRows(tablet, phone, by)]) {
    expect([merged.state.name[0], isIn(merged.state, other)]).toEqual(["Mine", false]);
    expect(membersOf(merged.state)).toEqual([admin, own].toSorted());
  }
  const unknowing = { ...row, state: again, was: { "": state.name[1] } };
  const knowing = { ...row, state: again, was: { "": naming.name[1] } };
  const lost = (held: GroupRow, given: GroupRow, root = "r1") =>
    overtaken(held, given, mergeRows(held, given, { own, root }));
  expect([lost(tablet, unknowing), lost(tablet, knowing), lost(phone, tablet)]).toEqual([
    true,
    false,
    false,
  ]);
  // A change under keys that another device has replaced meanwhile counts no more.
  expect(lost(tablet, { ...row, root: "r2" }, "r2")).toBe(true);
});

test("under new keys the state of the device that made them is the beginning, and what an earlier key said is healed", () => {
  const state = begun(own, "n", [own, admin]);
  const thief = withChange(state, { name: "Stolen", add: [other] }, nowMs + 5_000);
  const held: GroupRow = { ...newRow(thief), root: "r1", joined: 1 };
  const given: GroupRow = { ...newRow(state), root: "r2", joined: 1 };
  for (const merged of [
    mergeRows(held, given, { own, root: "r2" }),
    mergeRows(given, held, { own, root: "r2" }),
  ]) {
    expect([merged.root, merged.state.name[0]]).toEqual(["r2", "Hiking"]);
    expect(isIn(merged.state, other)).toBe(false);
  }
});

test("a group of the version before goes on with its members, and who was in it and is not is out", async () => {
  const table = await open();
  const { id } = emptyGroup(admin, "n");
  const before = {
    ...{ id, admin: other, maker: admin, nonce: "n", version: 7, name: "Before" },
    ...{ members: { [admin]: 1, [own]: 3 }, left: {}, joined: 7 },
  };
  await table.change(async (batch) => batch.put(keyOfGroup(table, id), before));
  const row = (await groupAt(table, id)) as GroupRow;
  expect(factsOf(row, own)).toEqual({
    ...{ id, name: "Before", admin },
    members: [admin, own].toSorted(),
    standing: "joined",
    next: null,
    second: null,
  });
  const upgraded = upgradeRow(before, [other, own]);
  expect(upgraded.state.members[other]).toEqual(["out", 7]);
  // The maker's next statement goes on from there.
  await hearing(table, saying(withChange(upgraded.state, { name: "After" }, nowMs)), true);
  expect(factsOf((await groupAt(table, id)) as GroupRow, own).name).toBe("After");
});

test("messages that came before the state show in the group once it says that their sender is in it", async () => {
  const table = await open();
  const state = begun(admin, "n", [admin, own, other]);
  const row = (id: string, from: Did): MessageRow => ({
    ...{ id, from, verified: true, trust: "proven", distrusted: null, name: "" },
    ...{ mediaType: "text/plain", sizeBytes: 1, replyTo: null, group: null, wantsReceipt: false },
    ...{ messageIds: [id], sentMs: nowMs, conversation: from, isOwn: false, arrivedMs: nowMs },
    ...{ reaction: null, target: null, digest: id, body: { is: "inline", base64: "eA==" }, to: [] },
  });
  const [first, second, foreign] = [1, 2, 3].map((i) => `6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3${i}`);
  const senders = [other, admin, identityOf("foreign").did] as const;
  await table.change(async (batch) => {
    for (const [i, id] of [first, second, foreign].entries()) {
      const key = await placeMessage(table, batch, row(id as string, senders[i] as Did));
      markMisfiled(table, batch, state.id, key);
    }
  });
  await hearing(table, saying(state), true);
  const conversations = await table.values<{ id: string; unread: number }>("c/");
  const counts = Object.fromEntries(conversations.map(({ id, unread }) => [id, unread]));
  expect(counts).toEqual({ [state.id]: 2, [senders[2]]: 1 });
  const shown = (await table.values<MessageRow>("m/")).map(({ id, conversation }) => [
    id,
    conversation,
  ]);
  expect(shown.toSorted()).toEqual(
    [
      [first, state.id],
      [second, state.id],
      [foreign, senders[2]],
    ].toSorted() as never,
  );
  await table.change((batch) => putGroup(table, batch, newRow(state)));
  expect(standingOf(await groupAt(table, state.id), own)).toBe("asked");
});

test("a statement by a key that the record does not show so far waits, counts once it does, and not for ever", async () => {
  const table = await open();
  const at = { nowMs };
  const store = await ownStoreOf(table, own, { nowMs: () => at.nowMs });
  const first = new Uint8Array(32).fill(5);
  const roots = [await ed25519PublicKey(first)];
  const trust = { provenOf: () => null, prove: async () => ({ rootKeys: roots }) };
  Object.assign(store.identity.client, { trust });
  const { talk } = await partsOf(store, { send: async () => [] });
  const maker = deriveDid(new Uint8Array(32), roots[0] as Uint8Array);
  const said = async (state: GroupState, seed: Uint8Array) => {
    const key = encodeHex(await ed25519PublicKey(seed));
    const signature = encodeBase64(await signEd25519(statementText(state), seed));
    const bundle = renderBundle({
      statements: [{ statement: state, key, signature }],
      leavings: [],
    });
    const examined = await talk.judging.examine(
      state.id,
      maker,
      JSON.parse(JSON.stringify(bundle)),
    );
    const listener = { own, root: "", isKnown: true, nowMs: at.nowMs };
    return table.change((batch) =>
      hearBundle(table, batch, { id: state.id, said: examined as Examined }, listener),
    );
  };
  const state = begun(maker, "n", [maker, own]);
  const nameNow = async () => (await groupAt(table, state.id))?.state.name[0];
  await said(state, first);
  const next = new Uint8Array(32).fill(9);
  await said(withChange(state, { name: "Later" }, nowMs + 5_000), next);
  await talk.hearWaiting();
  expect(await nameNow()).toBe("Hiking");
  roots.push(await ed25519PublicKey(next));
  await talk.hearWaiting();
  expect(await nameNow()).toBe("Later");
  // By the key before nothing counts, and by one that never is in the record it waits for two days.
  await said(withChange(state, { name: "Stolen" }, nowMs + 9_000), first);
  await said(withChange(state, { name: "Foreign" }, nowMs + 9_000), new Uint8Array(32).fill(8));
  at.nowMs += 2 * 86_400_000;
  await talk.hearWaiting();
  expect([await nameNow(), (await groupAt(table, state.id))?.waiting]).toEqual(["Later", []]);
});

test("a member who shows another state is answered once an hour, since what was sealed to a key they lost says nothing", async () => {
  const table = await open();
  const at = { nowMs };
  const store = await ownStoreOf(table, own, { nowMs: () => at.nowMs });
  Object.assign(store.identity.client, { trust: { provenOf: () => null } });
  const state = withChange(emptyGroup(own, "n"), { name: "Hiking", add: [own, other] }, nowMs);
  await table.change((batch) =>
    putGroup(table, batch, { ...newRow(state), joined: Number.MAX_SAFE_INTEGER }),
  );
  const answered: Did[] = [];
  const send = async (to: readonly Did[]) => {
    answered.push(...to);
    return [];
  };
  const { talk } = await partsOf(store, { send });
  const counts: number[] = [];
  for (const passedMs of [0, 60 * minuteMs - 1, 1, 60 * minuteMs, -120 * minuteMs]) {
    at.nowMs += passedMs;
    await talk.answer({ group: state.id, from: other, digest: "another" });
    counts.push(answered.length);
  }
  // A clock that was set back delays nothing.
  expect(counts).toEqual([1, 1, 2, 3, 4]);
  expect(new Set(answered)).toEqual(new Set([other]));
});

test("for ten minutes a device waits for the one that made new keys, and for those that a hand-over needs; then the user goes on", async () => {
  const table = await open();
  const at = { nowMs };
  const store = await ownStoreOf(table, own, { nowMs: () => at.nowMs });
  Object.assign(store.identity.client, { trust: { provenOf: () => null } });
  const meanwhile = { come: async () => undefined as unknown };
  const send: Sending["send"] = async (_to, _content, _options, within = null) => {
    await meanwhile.come();
    await table.change(async (batch) => void (await within?.put?.(batch)));
    return [];
  };
  const { talk, groups } = await partsOf(store, { send });
  const state = withChange(emptyGroup(own, "n"), { name: "Hiking", add: [own, other] }, nowMs);
  const { id } = state;
  await talk.create(state);
  const rowNow = async () => (await groupAt(table, id)) as GroupRow;
  const row = await rowNow();
  await table.change((batch) => putGroup(table, batch, { ...row, root: "ee".repeat(32) }));
  talk.hasMadeKeys = async () => false;
  const codeOf = async (work: () => Promise<void>) =>
    ((await attempt(work)) as ClientError | undefined)?.code ?? null;
  const rename = (name: string) =>
    codeOf(() => talk.change(id, (now, atMs) => withChange(now, { name }, atMs)));
  expect(await rename("too early")).toBe("behind");
  at.nowMs += 10 * minuteMs;
  expect(await rename("too early")).toBe("behind");
  at.nowMs += 1;
  expect(await rename("Climbing")).toBeNull();
  expect((await rowNow()).state.name[0]).toBe("Climbing");

  const { handing } = groups;
  handing.answerMs = 0;
  handing.deviceDids = async () => [own, admin];
  const handOver = () => codeOf(() => handing.handOver(id, other));
  // A change that is under way when it is asked for loses nothing of it.
  let asked: Promise<string | null> | null = null;
  meanwhile.come = async () => {
    meanwhile.come = async () => undefined;
    asked = handOver();
    while ((await rowNow()).handing === undefined) await Bun.sleep(1);
  };
  expect(await rename("Under way")).toBeNull();
  expect(await (asked as Promise<string | null> | null)).toBe("devices_awaited");
  expect((await rowNow()).handing?.to).toBe(other);
  expect([await handOver(), await rename("meanwhile")]).toEqual([
    "devices_awaited",
    "handing_over",
  ]);
  at.nowMs += 10 * minuteMs;
  expect([await handOver(), (await rowNow()).state.next]).toEqual(["devices_awaited", undefined]);
  at.nowMs += 1;
  await handOver();
  expect((await rowNow()).state.next).toBe(other);
  expect([await rename("too late"), await handOver()]).toEqual(["not_admin", null]);
});

/**
 * A group of this identity that was handed over so often, to and fro. `known`: what is here of it.
 */
async function handedOver(table: Table, times: number, known = (row: GroupRow) => row) {
  const store = await ownStoreOf(table, own, { nowMs: () => nowMs });
  Object.assign(store.identity.client, { trust: { provenOf: () => null } });
  const said: unknown[] = [];
  const send: Sending["send"] = async (_to, content, _options, within = null) => {
    said.push(content);
    await table.change(async (batch) => void (await within?.put?.(batch)));
    return [];
  };
  const parts = await partsOf(store, { send });
  const begins = times % 2 === 0 ? own : other;
  let row = newRow(begun(begins, "n", [own, other]));
  const handOvers: SignedHandOver[] = [];
  for (let n = 0; n < times; n++) {
    const { id, maker, nonce } = row.state;
    const next = maker === own ? other : own;
    handOvers.push({ id, maker, nonce, next, key: "aa".repeat(32), signature: "" });
    const given = { ...row, state: { ...row.state, next } };
    row = found(given, next, nowMs);
  }
  const root = await parts.talk.root();
  row = known({ ...row, root, handOvers, joined: Number.MAX_SAFE_INTEGER });
  await table.change((batch) => putGroup(table, batch, row));
  return { ...parts, row, said };
}

test("a group is handed over sixteen times, and no conversation loses its place by one more", async () => {
  const table = await open();
  const { groups, row } = await handedOver(table, 16);
  expect([row.state.maker, (row.former ?? []).length]).toEqual([own, 16]);
  const refused = await attempt(() => groups.handing.handOver(row.state.id, other));
  expect((refused as ClientError | undefined)?.code).toBe("handed_over_often");
  // Who joined later knows of it by the hand-overs alone.
  const late = await handedOver(await open(), 16, ({ former: _, ...known }) => known);
  const again = await attempt(() => late.groups.handing.handOver(late.row.state.id, other));
  expect((again as ClientError | undefined)?.code).toBe("handed_over_often");
  const named = { ...row, state: { ...row.state, next: other } };
  const successor = successorOf(named.state) as GroupState;
  const founded = new Set([successor.id]);
  expect(follow(named, [], { founded, nowMs }).state.id).toBe(row.state.id);
  expect(found(named, other, nowMs)).toBe(named);
});

test("of hand-overs by this identity only those that the conversation has followed are signed again", async () => {
  const table = await open();
  const { talk, row, said } = await handedOver(table, 3);
  const [, mine] = row.handOvers ?? [];
  const second = { ...(mine as SignedHandOver), next: admin };
  await talk.show({ ...row, handOvers: [second, ...(row.handOvers ?? [])] }, other);
  const [{ next }] = said as [{ next: readonly { maker: Did; next: Did; key: string }[] }];
  const root = await talk.root();
  expect(next.map((one) => [one.maker, one.next, one.key === root])).toEqual([
    [other, own, false],
    [own, other, true],
    [other, own, false],
  ]);
});

test("under new keys the maker says of now what an earlier version had let a device say of a time to come", async () => {
  const table = await open();
  const { talk, row } = await handedOver(table, 0);
  const last = Number.MAX_SAFE_INTEGER;
  const { state } = row;
  const members = { ...state.members, [other]: ["in", last] as const };
  const frozen = { ...state, name: ["Stolen", last] as const, members, left: { [own]: last } };
  const handing = { to: other, by: admin, sinceMs: 1, agreed: [] };
  await table.change((batch) =>
    putGroup(table, batch, { ...row, state: frozen, handing, root: "ee".repeat(32) }),
  );
  await talk.takeOver();
  const now = (await groupAt(table, state.id)) as GroupRow;
  expect([now.state.name[0], membersOf(now.state), now.handing]).toEqual([
    "Stolen",
    [own, other].sort(),
    null,
  ]);
  const next = withChange(now.state, { name: "Climbing", remove: [other] }, nowMs);
  const latest = Math.max(next.name[1], ...Object.values(next.members).map(([, one]) => one));
  expect(latest * 1_000 - nowMs).toBeLessThan(dayMs);
});

test("what an earlier key of this identity says counts from members alone, and fills no state", async () => {
  const table = await open();
  const { row } = await handedOver(table, 0);
  const members = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, n) => [`did:svc:${n}`, ["out", 1]] as const),
    );
  const strike = (from: Did, statement: GroupState) =>
    hearing(table, { ...saying(statement, "earlier"), from }, true);
  const rowNow = async () => (await groupAt(table, row.state.id)) as GroupRow;
  const without = withChange(row.state, { remove: [other] }, nowMs + 5_000);
  await strike(admin, without);
  expect(membersOf((await rowNow()).state)).toEqual([own, other].sort());
  await strike(other, { ...row.state, members: members(600) });
  expect(Object.keys((await rowNow()).state.members).length).toBe(500);
  await strike(other, without);
  expect(membersOf((await rowNow()).state)).toEqual([own]);
  // Who was taken out is no member.
  const again = withChange((await rowNow()).state, { add: [other] }, nowMs + 6_000);
  const mallory = identityOf("mallory").did;
  const out = withChange(
    withChange(again, { add: [mallory] }, nowMs),
    { remove: [mallory] },
    nowMs,
  );
  await table.change(async (batch) => putGroup(table, batch, { ...(await rowNow()), state: out }));
  await strike(mallory, withChange(out, { remove: [other] }, nowMs + 9_000));
  expect(membersOf((await rowNow()).state)).toEqual([own, other].sort());
});

test("at the next admin a removal that a replaced key of the former one has signed takes out no one", async () => {
  const table = await open();
  const before = begun(admin, "n", [admin, own, other]);
  const { id, nonce } = before;
  const state = successorOf({ ...before, next: own }) as GroupState;
  const former = [{ id, maker: admin, nonce, next: own, atMs: nowMs + 5_000 }];
  await table.change(async (batch) => putGroup(table, batch, { ...newRow(state), former }));
  const without = withChange(before, { remove: [other] }, nowMs + 1_000);
  const shown = async (by: Judged) => {
    await hearing(table, { ...saying(without, by), from: other }, true);
    return membersOf(((await groupAt(table, id)) as GroupRow).state);
  };
  expect(await shown("earlier")).toEqual(membersOf(before));
  expect(await shown("in_force")).toEqual([admin, own].sort());
});

test("what an earlier key says of the last hour before a day ahead waits, so that the maker's next word does not", () => {
  const state = begun(own, "n", [own, admin]);
  const ahead = (ms: number) => withChange(state, { name: "Stolen" }, nowMs + ms);
  const heard = (ms: number, signedBy: "earlier" | "in_force") =>
    hear(state, ahead(ms), { own, signedBy, nowMs });
  const last = dayMs - 60 * minuteMs;
  expect(heard(last + minuteMs, "earlier")).toBe("wait");
  expect(heard(last + minuteMs, "in_force")).toMatchObject({ name: ["Stolen", expect.anything()] });
  const healed = heard(last - minuteMs, "earlier") as GroupState;
  const next = withChange(healed, { remove: [admin] }, nowMs);
  expect([healed.name[0], nearState(next, nowMs)]).toEqual(["Hiking", next]);
});

test("however many states a member shows at once, they get one answer", async () => {
  const table = await open();
  const { talk, row, said } = await handedOver(table, 0);
  const shown = Array.from({ length: 60 }, (_, n) => `digest ${n}`);
  await Promise.all(
    shown.map((digest) => talk.answer({ group: row.state.id, from: other, digest })),
  );
  expect(said.length).toBe(1);
});

test("who hands a group over learns that another device has given it to somebody else", async () => {
  const table = await open();
  const { groups, row } = await handedOver(table, 0);
  const { handing } = groups;
  handing.answerMs = 60_000;
  handing.deviceDids = async () => [own, admin];
  const asked = attempt(() => handing.handOver(row.state.id, other));
  const rowNow = async () => (await groupAt(table, row.state.id)) as GroupRow;
  while ((await rowNow()).handing === undefined) await Bun.sleep(1);
  await table.change(async (batch) => {
    const held = (await groupAt(table, row.state.id, batch)) as GroupRow;
    await putGroup(table, batch, { ...held, state: { ...held.state, next: admin } });
  });
  expect(((await asked) as ClientError | undefined)?.code).toBe("not_admin");
});
