/** Values arrive in the other thread as they were sent: values of every kind, in order, and sharing nothing. */
import { describe, expect, test } from "bun:test";
import { MessageChannel } from "node:worker_threads";
import fc from "fast-check";
import { Channel, Ring } from "../../src/plugins/port/channel.ts";
import { type TurnExtras, TurnReader, TurnWriter } from "../../src/plugins/port/values.ts";

/** What a ring holds. */
const ringBytes = 256 * 1024;

const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 300 }),
  fc.uint8Array({ minLength: 300, maxLength: 400 }).map((part) => Buffer.concat(Array(50).fill(part)).subarray(3)),
);
const text = fc.oneof(fc.string(), fc.string({ unit: "binary", maxLength: 400 }), fc.string({ unit: "grapheme" }));
const leaf = fc.oneof(
  fc.constantFrom(
    null,
    undefined,
    true,
    false,
    -0,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    2 ** 31,
    -(2 ** 31),
    255,
    256,
  ),
  fc.integer(),
  fc.double(),
  fc.bigInt(),
  text,
  fc.string({ minLength: 0, maxLength: 4 }).map((half) => `\ud800${half}`),
  bytes.map((one) => new Uint8Array(one)),
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    leaf,
    fc.array(tie("value"), { maxLength: 6 }),
    fc.dictionary(fc.oneof(fc.constantFrom("id", "__proto__", "kind"), text), tie("value"), {
      maxKeys: 6,
      noNullPrototype: true,
    }),
    fc.array(fc.tuple(text, tie("value")), { maxLength: 4 }).map((entries) => new Map(entries)),
  ),
}));

/** A pair that has spoken before, and so knows names. */
const writer = new TurnWriter();
const reader = new TurnReader();

function pass(from: TurnWriter, to: TurnReader): TurnExtras {
  const { bytes, extras } = from.take();
  to.begin(bytes.length, extras, (room) => void room.set(bytes));
  return extras;
}

describe("the values of a turn", () => {
  test("arrive as they were sent, in their order", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(value, fc.boolean()), { maxLength: 8 }), (values) => {
        // Bytes that are given away are moved, so both sides begin with their own.
        for (const [one, isOwned] of values) writer.record(() => writer.value(structuredClone(one), isOwned));
        pass(writer, reader);
        for (const [one] of values) {
          expect(reader.record()).toBe(true);
          expect(reader.value()).toStrictEqual(one);
        }
        expect(reader.record()).toBe(false);
      }),
      { numRuns: 300 },
    );
  });

  test("of which one can't cross leave nothing of it behind", () => {
    const large = new Uint8Array(20_000);
    const into: Record<string, unknown> = { large };
    into["self"] = into;
    for (const wrong of [{ large, run: () => {} }, [new Map([[1, Symbol("s")]])], into]) {
      const small = new Uint8Array([1, 2]);
      writer.record(() => writer.value(small, false));
      expect(() => writer.record(() => writer.value([small, "after", wrong], false))).toThrow();
      writer.record(() => writer.value(["other", "after", "other"], false));
      const { moved, cloned } = pass(writer, reader);
      expect([moved, cloned]).toEqual([[], []]);
      expect([reader.record(), reader.value()]).toEqual([true, small]);
      expect([reader.record(), reader.value()]).toEqual([true, ["other", "after", "other"]]);
      expect(reader.record()).toBe(false);
    }
  });

  test("that are more texts than a turn gives numbers to still arrive", () => {
    const texts = Array.from({ length: 70_000 }, (_, n) => `text ${n}`);
    const twice = [...texts, ...texts];
    writer.record(() => writer.value(twice, false));
    pass(writer, reader);
    expect(reader.record()).toBe(true);
    expect(reader.value()).toEqual(twice);
  });

  test("with names without end still arrive, and names stop being remembered", () => {
    const own = { writer: new TurnWriter(), reader: new TurnReader() };
    let lists = 0;
    for (let n = 0; n < 6_000; n++) {
      const record = { [`name ${n}`]: n, other: [n] };
      own.writer.record(() => own.writer.value(record, false));
      lists += pass(own.writer, own.reader).lists.length;
      own.reader.record();
      expect(own.reader.value()).toEqual(record);
    }
    expect(lists).toBe(4_096);
  });
});

test("shared memory gives turns as they were put in, and says when it has no room", () => {
  const [one, other] = [new Ring(), new Ring()];
  const far = new Ring(one.shared);
  expect(other.put(new Uint8Array(ringBytes + 1))).toBe(false);
  const lengths = fc.array(fc.integer({ min: 0, max: ringBytes / 2 }), { minLength: 1, maxLength: 6, size: "max" });
  const refused = new Set<boolean>();
  let filler = 0;
  fc.assert(
    fc.property(lengths, (turns) => {
      const put = turns
        .map((length) => new Uint8Array(length).fill(++filler))
        .filter((bytes) => {
          const isIn = one.put(bytes);
          refused.add(!isIn);
          return isIn;
        });
      const last = put.pop();
      if (last !== undefined) one.takeBack(last.length);
      for (const bytes of put) {
        const room = new Uint8Array(bytes.length);
        far.take(room);
        expect(room).toEqual(bytes);
      }
    }),
    { numRuns: 200 },
  );
  expect(refused).toEqual(new Set([true, false]));
});

describe("a channel", () => {
  const pair = () => {
    const { port1, port2 } = new MessageChannel();
    const end = () => [port1, port2].forEach((port) => void port.close());
    return { here: new Channel(port1), there: new Channel(port2), end };
  };

  test("leaves the caller its bytes and gives each side its own", async () => {
    const { here, there, end } = pair();
    const kept: Uint8Array[] = [];
    there.serve("bytes", (_, [given]) => {
      kept.push(given as Uint8Array);
      return (given as Uint8Array).slice();
    });
    for (const length of [0, 10, 20_000, 300_000]) {
      const sent = Buffer.alloc(length + 5, 7).subarray(5);
      const asked = here.call("bytes", "echo", [sent]);
      sent.fill(1);
      const answer = (await asked) as Uint8Array;
      expect(sent.every((byte) => byte === 1)).toBe(true);
      expect(answer).toEqual(new Uint8Array(length).fill(7));
      answer.fill(9);
      expect(kept.at(-1)).toEqual(new Uint8Array(length).fill(7));
    }
    end();
  });

  test("carries turns that are larger than the shared memory, in order", async () => {
    const { here, there, end } = pair();
    const seen: number[] = [];
    there.serve("order", (_, [n, parts]) => {
      seen.push(Number(n));
      return parts;
    });
    const parts = Array.from({ length: 40 }, (_, n) => new Uint8Array(15_000).fill(n));
    const answers = await Promise.all(
      [0, 1, 2, 3].map(async (n) => {
        await Bun.sleep(n);
        return here.call("order", "keep", [n, n % 2 === 0 ? parts : parts.slice(0, 1)]);
      }),
    );
    expect(answers).toEqual([parts, parts.slice(0, 1), parts, parts.slice(0, 1)]);
    expect(seen).toEqual([0, 1, 2, 3]);
    end();
  });

  test("rejects what can't cross, and everybody else of the turn is answered or rejected", async () => {
    const { here, there, end } = pair();
    there.serve("echo", (method, [given]) => (method === "wrong" ? { run: () => {} } : given));
    const functions = { run: () => {} };
    class Held {
      readonly run = () => {};
    }
    const asked = [
      here.call("echo", "back", [{ first: 1 }]),
      here.call("echo", "back", [functions]),
      here.call("echo", "wrong", []),
      here.call("nobody", "there", []),
    ];
    const ends = await Promise.allSettled(asked);
    expect(ends.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "rejected"]);
    // Only cloning finds this out, when the turn is sent: names that were new in it are sent again.
    const late = await Promise.allSettled([here.call("echo", "back", [{ second: 2 }, new Held()])]);
    expect(late.map(({ status }) => status)).toEqual(["rejected"]);
    expect(await here.call("echo", "back", [{ second: 2 }])).toEqual({ second: 2 });
    end();
  });
});
