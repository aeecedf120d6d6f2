/**
 * The engine of the parser campaign: what a target is, how inputs are made, and one attack on one
 * target. Inputs that lead to a new outcome join the corpus, so that later mutations start from
 * them.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { utf8 } from "../../src/core/codec/bytes.ts";

export type Target = {
  readonly name: string;
  readonly samples: readonly Uint8Array[];
  /** One of so many inputs of a run, for parsers that do public-key arithmetic. */
  readonly oneOf?: number;
  /** The outcome as a short text, for novelty; throws when the parser breaks a promise. */
  readonly run: (input: Uint8Array) => string | Promise<string>;
};

export type Figures = {
  readonly inputs: number;
  readonly accepted: number;
  readonly outcomes: number;
};

const vectors = join(import.meta.dir, "..", "vectors");
export const read = (path: string): unknown =>
  JSON.parse(readFileSync(join(vectors, path), "utf8"));
export const listOf = (path: string): Record<string, unknown>[] =>
  read(path) as Record<string, unknown>[];

export function check(holds: boolean, promise: string): void {
  if (!holds) throw new Error(`broken promise: ${promise}`);
}

// ---------------------------------------------------------------------------------------- mutation

/** A small generator of numbers with a seed (mulberry32), so that every failure can be repeated. */
export function createRandom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const tokens = [
  "{",
  "}",
  "[",
  "]",
  '"',
  ",",
  ":",
  "\\u0000",
  "\\ud800",
  "null",
  "1e400",
  "-0",
  "\u0000",
  "\ufeff",
  "é",
  "__proto__",
];

function mutate(input: Uint8Array, random: (below: number) => number): Uint8Array {
  let bytes = input.slice();
  for (let step = random(4); step >= 0; step--) {
    const at = random(bytes.length + 1);
    switch (random(6)) {
      case 0:
        if (bytes.length > 0) bytes[at % bytes.length] = random(256);
        break;
      case 1:
        if (bytes.length > 0)
          bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ (1 << random(8));
        break;
      case 2:
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          bytes.subarray(Math.min(bytes.length, at + 1 + random(16))),
        ]);
        break;
      case 3:
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          utf8(tokens[random(tokens.length)] as string),
          bytes.subarray(at),
        ]);
        break;
      case 4: {
        const from = random(bytes.length + 1);
        bytes = Buffer.concat([
          bytes.subarray(0, at),
          bytes.subarray(from, from + random(32)),
          bytes.subarray(at),
        ]);
        break;
      }
      default:
        bytes = bytes.slice(0, at);
    }
  }
  return bytes;
}

const corpusMax = 500;

/** Runs one target over so many inputs. Throws with the input in hex when it breaks a promise. */
export async function attack(target: Target, most: number, seed: number): Promise<Figures> {
  const inputs = Math.ceil(most / (target.oneOf ?? 1));
  const random = createRandom(seed);
  const corpus = [...target.samples];
  const outcomes = new Set<string>();
  let accepted = 0;
  for (let i = 0; i < inputs; i++) {
    const parent = corpus[random(corpus.length)] as Uint8Array;
    const input = i < target.samples.length ? parent : mutate(parent, random);
    let outcome: string;
    try {
      const answer = target.run(input);
      outcome = typeof answer === "string" ? answer : await answer;
    } catch (error) {
      throw new Error(
        `${target.name}, seed ${seed}, input ${i}: ${Buffer.from(input).toString("hex")}`,
        {
          cause: error,
        },
      );
    }
    if (outcome.startsWith("accepted")) accepted += 1;
    if (outcomes.has(outcome) || corpus.length >= corpusMax) continue;
    outcomes.add(outcome);
    corpus.push(input);
  }
  return { inputs, accepted, outcomes: outcomes.size };
}
