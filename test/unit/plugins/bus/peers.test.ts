/** Processes of one bus know each other's subjects, also after messages between them were lost. */
import { expect, test } from "bun:test";
import { type PeerMessage, Peers } from "../../../../src/plugins/bus/peers.ts";

/** Processes that hear each other at once, unless one of them is cut off. */
function network(batchMs = 0) {
  const all = new Map<string, Peers>();
  const cut = new Set<string>();
  const missed: string[] = [];
  const sent: string[] = [];
  const reach = (from: string, to: string) => all.has(to) && !cut.has(from) && !cut.has(to);
  const open = (name: string): Peers => {
    const send = (to: string, message: PeerMessage) => {
      const others = [...all.keys()].filter((one) => one !== name);
      for (const one of to === "all" ? others : [to]) {
        if (!reach(name, one)) continue;
        sent.push(message.type);
        all.get(one)?.receive(JSON.parse(JSON.stringify(message)));
      }
      return true;
    };
    const link = { send, onMissed: () => missed.push(name) };
    const peers = new Peers(name, link, { batchMs, endsMs: 10 * batchMs, heardMsMax: 50 });
    all.set(name, peers);
    peers.greet();
    return peers;
  };
  return { open, cut, missed, end: (name: string) => all.delete(name), sent };
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

/** Until timers that are due have run. */
const turn = (ms = 5) => Bun.sleep(ms);

test("one message to each process says the subjects of one turn, which confirms it, and many fit into pages", async () => {
  const { open, sent } = network();
  const [a, b] = [open("a"), open("b")];
  sent.length = 0;
  const subjects = Array.from({ length: 5_000 }, (_, n) => `subject ${n}`);
  await Promise.all(subjects.map((subject) => a.follow(subject)));
  expect(sent).toEqual(["change", "heard"]);
  const c = open("c");
  for (const at of [b, c])
    expect(subjects.filter((subject) => at.following(subject)[0] !== "a")).toEqual([]);
  expect(sent.filter((type) => type === "all")).toHaveLength(3);
});

test("changes that follow each other quickly are one message, and what only ends is not confirmed", async () => {
  // So long that only a hello ends it.
  const { open, sent } = network(24 * 3_600_000);
  const [a, b] = [open("a"), open("b")];
  sent.length = 0;
  await a.follow("first");
  expect(sent).toEqual(["change", "heard"]);
  sent.length = 0;
  a.unfollow("first");
  const second = a.follow("second");
  await turn();
  expect([sent, b.following("first")]).toEqual([[], ["a"]]);
  a.sayHello();
  await second;
  expect(sent).toEqual(["change", "heard", "hello"]);
  expect([b.following("first"), b.following("second")]).toEqual([[], ["a"]]);
  sent.length = 0;
  a.unfollow("second");
  a.sayHello();
  expect([sent, b.following("second")]).toEqual([["change", "hello"], []]);
  a.close();
});

test("what only ends waits for what begins, or for its time", async () => {
  const { open, sent } = network(20);
  const [a, b] = [open("a"), open("b")];
  await a.follow("first");
  sent.length = 0;
  a.unfollow("first");
  await turn(60);
  expect([sent, b.following("first")]).toEqual([[], ["a"]]);
  await a.follow("second");
  expect([sent, b.following("first"), b.following("second")]).toEqual([
    ["change", "heard"],
    [],
    ["a"],
  ]);
  sent.length = 0;
  a.unfollow("second");
  await turn(300);
  expect([sent, b.following("second")]).toEqual([["change"], []]);
});

test("who misses a change asks at once for all, when the next one comes", async () => {
  const { open, cut, missed, sent } = network();
  const [a, b] = [open("a"), open("b")];
  await a.follow("first");
  cut.add("b");
  a.unfollow("first");
  await turn();
  cut.delete("b");
  expect(b.following("first")).toEqual(["a"]);
  sent.length = 0;
  await a.follow("second");
  expect([b.following("first"), b.following("second"), missed]).toEqual([[], ["a"], ["a"]]);
  expect(sent.filter((type) => type === "want")).toHaveLength(1);
});

test("an answer with all subjects costs one look at each", async () => {
  const { open } = network();
  const a = open("a");
  let subjects = 0;
  const costOf = (count: number): number => {
    for (; subjects < count; subjects++) void a.follow(`subject ${subjects}`);
    a.sayHello();
    const costs = [1, 2, 3].map((n) => {
      const before = process.cpuUsage();
      open(`late ${count} ${n}`);
      const { user, system } = process.cpuUsage(before);
      return user + system;
    });
    return Math.min(...costs);
  };
  const small = costOf(10_000);
  // Linear: 12 times. A look at all subjects for each page would be 144 times.
  expect(costOf(120_000) / small).toBeLessThan(50);
});

test("a hello in the turn of a change makes no process ask for everything", async () => {
  const { open, sent, missed } = network();
  const [a, b] = [open("a"), open("b")];
  await a.follow("first");
  sent.length = 0;
  const ready = a.follow("second");
  a.sayHello();
  await ready;
  expect(sent).toEqual(["change", "heard", "hello"]);
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
