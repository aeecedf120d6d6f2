/** Frames between Relay processes: they come back as they were, however they are cut, and nothing else is one. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { concatBytes, utf8 } from "../../src/core/codec/bytes.ts";
import {
  createPeerReader,
  encodePeerFrame,
  frameSlackBytes,
  headBytesMax,
  type PeerFrame,
  peerVersion,
} from "../../src/nodes/relay/live/peer-frames.ts";
import { createPerson, uuidOf } from "../support/cache-node.ts";

const { did } = createPerson(1);
const bytesMax = 4_096 + frameSlackBytes;

const text = fc.string({ maxLength: 200, unit: "grapheme" });
const count = fc.nat({ max: Number.MAX_SAFE_INTEGER });
const texts = fc.array(text, { maxLength: 5 });
const frame: fc.Arbitrary<PeerFrame> = fc.oneof(
  fc.record({ kind: fc.constant("claim" as const), id: count, tag: text, untilMs: count }),
  fc.record({ kind: fc.constant("join" as const), id: count, did: fc.constant(did), deviceId: text, key: text }),
  fc.record({
    kind: fc.constant("deliver" as const),
    id: count,
    to: fc.constant(did),
    messageId: fc.constant(uuidOf(7) as never),
    timeoutMs: count,
    grants: fc.array(fc.record({ serviceId: text, endpoints: texts, keys: texts }), { maxLength: 3 }),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 3_000 }),
  }),
  fc.record({
    kind: fc.constant("answer" as const),
    id: count,
    end: fc.constantFrom("acknowledged", "silent", "gone", "yes", "no", "unavailable"),
  }),
  fc.record({ kind: fc.constant("hello" as const), version: fc.constant(peerVersion), from: text, bytesMax: count }),
  fc.record({ kind: fc.constant("refuse" as const), reason: text }),
  fc.record({ kind: fc.constant("ping" as const) }),
  fc.record({ kind: fc.constant("presence" as const), did: fc.constant(did), sessions: count }),
  fc.record({ kind: fc.constant("joined" as const), id: count }),
);

const encode = (one: PeerFrame): Uint8Array => concatBytes(...(encodePeerFrame(one) ?? []));
const none = new Uint8Array(0);
const raw = (head: string, bytes: Uint8Array = none): Uint8Array<ArrayBuffer> => {
  const lengths = new DataView(new ArrayBuffer(8));
  lengths.setUint32(0, 4 + utf8(head).length + bytes.length);
  lengths.setUint32(4, utf8(head).length);
  return new Uint8Array(concatBytes(new Uint8Array(lengths.buffer), utf8(head), bytes));
};
const read = (bytes: Uint8Array): PeerFrame[] | null => createPeerReader(bytesMax).push(bytes);

describe("frames between Relay processes", () => {
  test("come back as they were, in order, wherever the stream is cut", () => {
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 6 }), fc.array(fc.nat({ max: 40_000 })), (frames, cuts) => {
        const stream = concatBytes(...frames.map(encode));
        const places = [0, ...cuts.filter((at) => at < stream.length).sort((a, b) => a - b), stream.length];
        const reader = createPeerReader(bytesMax);
        const back = places.slice(1).map((end, at) => reader.push(stream.slice(places[at], end)));
        expect(back).not.toContain(null);
        expect(back.flatMap((read) => read ?? [])).toEqual(frames);
      }),
      { numRuns: 300 },
    );
  });

  test("are never made of other bytes, which never throw", () => {
    const spoiled = fc.tuple(frame, fc.nat(), fc.integer({ min: 1, max: 255 })).map(([one, at, change]) => {
      const bytes = encode(one);
      bytes[at % bytes.length]! ^= change;
      return bytes;
    });
    const anyHead = fc.oneof(fc.json(), fc.string()).map((head) => raw(head));
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 300 }), spoiled, anyHead), (bytes) => {
        const frames = read(bytes);
        for (const one of frames ?? []) expect(read(encode(one))).toEqual([one]);
      }),
      { numRuns: 2_000 },
    );
  });

  const wrong: [string, string, Uint8Array][] = [
    ["an unknown kind", '{"kind":"shout"}', none],
    ["a member too many", '{"kind":"ping","id":1}', none],
    ["a member too few", '{"kind":"answer","id":1}', none],
    ["another type", '{"kind":"joined","id":"1"}', none],
    ["a number that is no count", '{"kind":"joined","id":-1}', none],
    ["another end", '{"kind":"answer","id":1,"end":"maybe"}', none],
    ["another DID method", '{"kind":"presence","did":"did:web:x","sessions":1}', none],
    ["two names alike", '{"kind":"ping","kind":"ping"}', none],
    ["no object", "[]", none],
    ["bytes behind a head that has none", '{"kind":"ping"}', utf8("x")],
    [
      "a delivery without an envelope",
      `{"kind":"deliver","id":1,"to":"${did}","messageId":"${uuidOf(1)}","timeoutMs":1,"grants":[]}`,
      none,
    ],
    [
      "a grant that is none",
      `{"kind":"deliver","id":1,"to":"${did}","messageId":"${uuidOf(1)}","timeoutMs":1,"grants":[{}]}`,
      utf8("x"),
    ],
  ];
  test.each(wrong)("with %s are refused", (_name, head, bytes) => expect(read(raw(head, bytes))).toBeNull());

  test("that are too long are refused by their length alone, and not made", () => {
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, bytesMax + 1);
    expect(read(length)).toBeNull();
    expect(read(new Uint8Array(4))).toBeNull();
    expect(encodePeerFrame({ kind: "refuse", reason: "x".repeat(headBytesMax) })).toBeNull();
  });

  test.each([
    ["grants", 100, 0],
    ["endpoints", 1, 4_500],
  ])("with more %s than a reader takes are not made, so that they can't end the link", (_name, grants, endpoints) => {
    const grant = { serviceId: "s", endpoints: Array.from({ length: endpoints }, () => "e"), keys: [] };
    const delivery = { kind: "deliver", id: 1, to: did, messageId: uuidOf(1) as never, timeoutMs: 1 } as const;
    const given = (count: number) => ({ ...delivery, grants: Array(count).fill(grant), bytes: utf8("x") });
    expect(encodePeerFrame(given(grants))).toBeNull();
    expect(encodePeerFrame(given(0))).not.toBeNull();
  });

  test("with as many grants as there may be are read", () => {
    const grant = { serviceId: "s", endpoints: Array(8).fill("e"), keys: Array(8).fill("k") };
    const to = { kind: "deliver", id: 1, to: did, messageId: uuidOf(1) as never, timeoutMs: 1 } as const;
    const full: PeerFrame = { ...to, grants: Array(64).fill(grant), bytes: utf8("x") };
    expect(read(encode(full))).toEqual([full]);
  });

  test("whose head would reach beyond them are refused", () => {
    const bytes = raw('{"kind":"ping"}');
    new DataView(bytes.buffer).setUint32(4, 100);
    expect(read(bytes)).toBeNull();
  });

  test("of another version are read as far as the version, whatever else they hold", () => {
    expect(read(raw('{"kind":"hello","version":9,"mood":["new"]}'))).toEqual([
      { kind: "hello", version: 9, from: "", bytesMax: 0 },
    ]);
    expect(read(raw(`{"kind":"hello","version":${peerVersion},"mood":["new"]}`))).toBeNull();
  });
});
