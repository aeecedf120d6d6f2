/** A closed identity: every call says so by its code, and none reaches a node or the keys. */
import { expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { peopleAtNodes } from "../support/people.ts";

const { open } = peopleAtNodes();

const outcomeOf = async (call: () => unknown): Promise<unknown> => {
  try {
    return (await call()) ?? "nothing thrown";
  } catch (error) {
    return (error as ClientError).code ?? error;
  }
};

/** What can be called, each with what it takes. */
const calls: Readonly<Record<string, (me: Waypost, to: string) => unknown>> = {
  appointGuardians: (me, to) => me.appointGuardians([{ did: to, fingerprint: "x" } as never]),
  backup: (me) => me.backup({ passphrase: "p" }),
  backupState: (me) => me.backupState(),
  fingerprint: (me, to) => me.fingerprint(to),
  forget: (me, to) => me.forget(to),
  guardians: (me) => me.guardians(),
  move: (me) => me.move(),
  operator: (me) => me.operator(),
  ownFingerprint: (me) => me.ownFingerprint(),
  push: (me) => me.push({ endpoint: "https://push.example/1", toJSON: () => ({}) } as never),
  pushKey: (me) => me.pushKey(),
  react: (me, to) => me.react(to, crypto.randomUUID(), "+"),
  receiveWaiting: (me) => me.receiveWaiting(),
  report: (me) => me.report([]),
  rotate: (me) => me.rotate(),
  send: (me, to) => me.send(to, "late"),
  setCompared: (me, to) => me.setCompared(to, "x"),
  typing: (me, to) => me.typing(to),
  watch: (me) => me.watch(),
};
/** Calls of a store, devices and groups, which are read from their tables. */
const stored: Readonly<Record<string, (me: Waypost, to: string) => unknown>> = {
  "devices.acceptLink": (me) => me.devices.acceptLink("x"),
  "devices.invitation": (me) => me.devices.invitation(),
  "devices.list": (me) => me.devices.list(),
  "devices.remove": (me, to) => me.devices.remove(to),
  "devices.replaceKeys": (me) => me.devices.replaceKeys(),
  "devices.replacement": (me) => me.devices.replacement(),
  "groups.create": (me, to) => me.groups.create("late", [to]),
  "groups.find": (me, to) => me.groups.find(to),
  "groups.list": (me) => me.groups.list(),
  "store.conversations": (me) => me.store.conversations(),
  "store.people": (me) => me.store.people(),
  "store.savePerson": (me, to) => me.store.savePerson(to, { name: "late" }),
  "store.usage": (me) => me.store.usage(),
};
/** May be called: they end, or only say what is there. */
const others = ["close", "constructor", "lock", "messages", "on"];

test("every call has its row here", () => {
  const methods = Object.entries(Object.getOwnPropertyDescriptors(Waypost.prototype))
    .filter(([, { value }]) => typeof value === "function")
    .map(([name]) => name);
  expect(methods.sort()).toEqual([...Object.keys(calls), ...others].sort());
});

test("all calls of a closed identity are refused with one code, and messages() yields nothing", async () => {
  const friend = await open();
  const me = await open({ store: memoryStore() });
  await me.close();
  const outcomes = await Promise.all(
    Object.entries({ ...calls, ...stored }).map(
      async ([name, call]) => [name, await outcomeOf(() => call(me, friend.did))] as const,
    ),
  );
  expect(outcomes.filter(([, outcome]) => outcome !== "closed")).toEqual([]);
  expect((await me.messages().next()).done).toBe(true);
  await me.close();
}, 60_000);

test("an identity without a store is closed to its calls as well", async () => {
  const friend = await open();
  const me = await open();
  await me.close();
  const needStore = ["appointGuardians", "guardians", "receiveWaiting", "report", "typing"];
  for (const [name, call] of Object.entries(calls)) {
    const outcome = await outcomeOf(() => call(me, friend.did));
    expect([name, outcome]).toEqual([name, needStore.includes(name) ? "no_store" : "closed"]);
  }
}, 60_000);
