/**
 * The decoder of envelopes against the first one, which needed more passes: for every input the
 * same envelope, or a refusal with the same code at a member that both name: the first one also
 * applies rules between members without form. `ENVELOPE_INPUTS=1000000` tries more; a failing input
 * is printed.
 */
import { expect, test } from "bun:test";
import { configSchema } from "../../src/config/schema.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { type Fault, isFault } from "../../src/core/fault.ts";
import { decodeEnvelope, type Envelope } from "../../src/core/message/envelope.ts";
import { decodeEnvelope as decodeAsBefore } from "../oracles/envelope.ts";
import invalidEnvelopes from "../vectors/envelope/invalid/envelopes.json";
import validEnvelopes from "../vectors/envelope/valid/envelopes.json";
import signedEnvelopes from "../vectors/envelope/valid/signed.json";

const inputs = Number(process.env["ENVELOPE_INPUTS"] ?? 100_000);
const limits = { ...configSchema.parse({}).limits, header_bytes_max: 64, chunk_bytes_max: 512 };

/** Numbers below `below`, the same in every run: mulberry32. */
function createDice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const dice = createDice(20_261_122);
const pick = <T>(list: readonly T[]): T => list[dice(list.length)] as T;

const samples: Record<string, unknown>[] = [
  ...validEnvelopes,
  ...signedEnvelopes,
  ...invalidEnvelopes,
].flatMap((vector) => ("envelope" in vector ? [vector.envelope as Record<string, unknown>] : []));
const names = [
  ...new Set(samples.flatMap((sample) => Object.keys(sample))),
  "recipient",
  "created_at",
  "context",
  "x",
];

/**
 * Values that stand near a rule: forms that are written differently, ends of ranges, other types.
 */
const values: readonly (() => unknown)[] = [
  () =>
    pick([
      "",
      "0",
      "a",
      "aaaa",
      "AA==",
      "AAA=",
      "AB==",
      "A A=",
      "AAAA\n",
      "====",
      "ü",
      "\u0000",
      "x".repeat(300),
    ]),
  () => pick([0, -0, 1, 2, 99, 100, 999, 1_000, 65_534, 65_535, 65_536, -1, 0.5, 1e21, 2 ** 53]),
  () => pick([true, false, null, [], {}, [[]], [{}], { a: 1 }, ["a", 1, null], { "": "" }]),
  () => `${dice(120)}${pick(["w", "d", "h", "m", "s", "S", ""])}`,
  () =>
    pick([
      "P1D",
      "PT1H",
      "P1W",
      "1d12h",
      "00h",
      "01h",
      "30d",
      "31d",
      "720h",
      "99w",
      "4w",
      "5w",
      "1h1h",
      "PT",
      "P",
    ]),
  () => new Date(dice(2 ** 31) * 1_000 + dice(1_000)).toISOString(),
  () => new Date(dice(2 ** 31) * 1_000).toISOString().replace(".000", ""),
  () =>
    `2026-${two()}-${two()}T${two()}:${two()}:${two()}${pick([".000", ".5", ".12a", "", ".1234567891"])}${pick(["Z", "z", "+01:00", ""])}`,
  () => String(dice(2 ** 31) * pick([1, 1_000, 1_000_000])),
  () => `did:svc:${"1".repeat(14 + dice(6))}${pick(["", "0", "#k1", "I", "z"])}`,
  () => `0190b3b4-0000-7000-8000-${String(dice(1_000)).padStart(12, pick(["0", "F", "f", "g"]))}`,
  () => ({ ciphertext_b64: Buffer.alloc(dice(700), dice(256)).toString("base64") }),
  () => ({
    ciphertext_b64: Buffer.alloc(dice(64), 7)
      .toString("base64")
      .replace(/A/, pick(["", " ", "-", "=", "é"])),
  }),
  () => ({
    a: "\ud800",
    [pick(["__proto__", "constructor", "b", "c\\d", "toString"])]: pick([1, "e", 1e5]),
  }),
];

function two(): string {
  return String(dice(64)).padStart(2, "0");
}

/** One envelope, changed in its members, then in its text, then in its bytes. */
function nextInput(): Uint8Array {
  const members: Record<string, unknown> = { ...pick(samples) };
  for (let changes = dice(4); changes > 0; changes--) {
    const name = pick(names);
    if (dice(4) === 0) delete members[name];
    else members[name] = pick(values)();
  }
  let text = JSON.stringify(members, null, pick([undefined, undefined, undefined, 1, "\t"]));
  for (let changes = pick([0, 0, 0, 1, 2]); changes > 0; changes--) text = changedText(text);
  const bytes = utf8(text);
  for (let changes = pick([0, 0, 0, 0, 1, 2]); changes > 0; changes--)
    bytes[dice(bytes.length)] = dice(256);
  return dice(50) === 0 ? bytes.subarray(0, dice(bytes.length)) : bytes;
}

/**
 * Parts of JSON where they belong and where they don't: members twice, escapes, white space, other
 * numbers.
 */
const parts = [
  '"to":"x",',
  '"ttl":"1h",',
  '"a":{"b":1,"b":1},',
  '"payload":{"a":1e2,"b":1e1,"c":0,"c":0},',
  '"payload":{"n":1e3,"m":10e2,"k":1,"k":1},',
  "\\u0061",
  "\\ud800",
  "\\/",
  " ",
  "\n",
  ",",
  ":",
  '"',
  "{}",
  "[1,2]",
  "1e400",
  "-0",
  "00",
  '"__proto__":1,',
  "\u2028",
  "é",
  "[".repeat(33),
] as const;

function changedText(text: string): string {
  const at = dice(3) === 0 ? 1 : dice(text.length);
  const left = dice(4) === 0 ? at + dice(8) : at;
  return text.slice(0, at) + pick(parts) + text.slice(left);
}

/** All of an envelope, in JSON. */
function shown({ sender, header, bytes, ...rest }: Envelope): string {
  const signer = sender && {
    ...sender,
    signature: sender.signature.toHex(),
    signedBytes: sender.signedBytes.toHex(),
  };
  return JSON.stringify({ ...rest, header: header?.toHex() ?? null, bytes: bytes.toHex(), signer });
}

/** The members at fault, each under its first name. */
const pointersOf = ({ extra }: Fault): string[] =>
  (extra.errors ?? []).map(
    ({ pointer }) => ({ "/recipient": "/to", "/created_at": "/timestamp" })[pointer] ?? pointer,
  );

function agree(ours: Envelope | Fault, before: Envelope | Fault): boolean {
  if (!isFault(ours) || !isFault(before))
    return !isFault(ours) && !isFault(before) && shown(ours) === shown(before);
  const [pointers, known] = [pointersOf(ours), pointersOf(before)];
  const isNamed =
    ours.code !== "envelope_invalid" || pointers.some((pointer) => known.includes(pointer));
  return ours.code === before.code && isNamed;
}

test(`${inputs} inputs are decoded or refused as by the first decoder`, () => {
  const kinds = new Set<string>();
  for (let i = 0; i < inputs; i++) {
    const input = nextInput();
    const [ours, before] = [decodeEnvelope(input, limits), decodeAsBefore(input, limits)];
    kinds.add(isFault(ours) ? ours.code : "decoded");
    if (agree(ours, before)) continue;
    expect({ input: new TextDecoder().decode(input), outcome: ours }).toEqual({
      input: new TextDecoder().decode(input),
      outcome: before,
    });
  }
  // The inputs reach every way out.
  expect([...kinds].sort()).toEqual(["decoded", "envelope_invalid", "invalid_json", "too_large"]);
}, 600_000);
