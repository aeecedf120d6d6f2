/** Processes of one bus know each other's subjects, also after messages between them were lost. */
import { expect, test } from "bun:test";
import { type PeerMessage, Peers } from "../../../../src/plugins/bus/peers.ts";

/** Processes that hear each other at once, unless one of them is cut off. */
function network() {
  const all = new Map<string, Peers>();
  const cut = new Set<string>();
  const missed: string[] = [];
  let sent = 0;
  const reach = (from: string, to: string) => all.has(to) && !cut.has(from) && !cut.has(to);
  const open = (name: string): Peers => {
    const pass = (to: string, message: PeerMessage) => {
      if (!reach(name, to)) return false;
      sent++;
      all.get(to)?.receive(JSON.parse(JSON.stringify(message)));
      return true;
    };
    const peers = new Peers(name, {
      send: (to, message) =>
        void (to === "all" ? [...all.keys()] : [to]).map((one) => pass(one, message)),
      tell: async (to, message) => pass(to, message),
      onMissed: () => missed.push(name),
    });
    all.set(name, peers);
    peers.greet();
    return peers;
  };
  return { open, cut, missed, end: (name: string) => all.delete(name), sent: () => sent };
}

test("a process knows who has subscribed, before it and after it, and who no longer has", async () => {
  const { open, missed } = network();
  const a = open("a");
  await a.follow("early");
  const b = open("b");
  expect(b.following("early")).toEqual(["a"]);
  await b.follow("late");
  expect([a.following("late"), a.following("early"), a.following("never")]).toEqual([
    ["b"],
    [],
    [],
  ]);
  b.unfollow("late");
  await b.follow("other");
  expect([a.following("late"), a.following("other")]).toEqual([[], ["b"]]);
  expect(missed).toEqual([]);
});

test("one message a process tells the subjects of one turn, and many fit into pages", async () => {
  const { open, sent } = network();
  const [a, b] = [open("a"), open("b")];
  const before = sent();
  const subjects = Array.from({ length: 5_000 }, (_, n) => `subject ${n}`);
  await Promise.all(subjects.map((subject) => a.follow(subject)));
  expect(sent() - before).toBe(1);
  const c = open("c");
  for (const at of [b, c])
    expect(subjects.filter((subject) => at.following(subject)[0] !== "a")).toEqual([]);
});

test("a hello in the turn of a change makes nobody ask for everything", async () => {
  const { open, sent, missed } = network();
  const [a, b] = [open("a"), open("b")];
  await a.follow("first");
  const before = sent();
  const ready = a.follow("second");
  a.sayHello();
  await ready;
  // The change and the hello, to the other and to itself.
  expect(sent() - before).toBe(3);
  expect([b.following("second"), missed]).toEqual([["a"], []]);
});

test("what was lost is known again after the next hello, and the one whose subjects were not known missed messages", async () => {
  const { open, cut, missed } = network();
  const [a, b] = [open("a"), open("b")];
  await a.follow("kept");
  cut.add("a");
  a.unfollow("kept");
  await a.follow("new");
  cut.delete("a");
  expect([b.following("kept"), b.following("new")]).toEqual([["a"], []]);
  a.sayHello();
  expect([b.following("kept"), b.following("new"), missed]).toEqual([[], ["a"], ["a"]]);
});

test("a process that does not answer is forgotten until it says hello, and then has missed messages", async () => {
  const { open, cut, end, missed } = network();
  const [a, b] = [open("a"), open("b")];
  await b.follow("s");
  cut.add("b");
  await a.follow("t");
  expect(a.following("s")).toEqual([]);
  cut.delete("b");
  b.sayHello();
  b.sayHello();
  expect([a.following("s"), b.following("t"), missed]).toEqual([["b"], ["a"], ["b"]]);
  end("b");
  await a.follow("u");
  expect(a.following("s")).toEqual([]);
});

test("who was cut off and is back makes the others read again, and only then", async () => {
  const { open, missed } = network();
  const [a, b] = [open("a"), open("b")];
  await b.follow("s");
  a.greet();
  a.sayHello();
  expect(missed).toEqual([]);
  a.announceLoss();
  expect(missed).toEqual(["b"]);
});
