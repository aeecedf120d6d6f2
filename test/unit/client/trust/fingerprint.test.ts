/**
 * Fingerprints: the same on both sides, 100 bits for each person, of what a thief would have to
 * change.
 */
import { expect, test } from "bun:test";
import { fingerprintOf } from "../../../../src/client/trust/fingerprint.ts";
import { printOf } from "../../../../src/client/trust/print.ts";
import { renderPublicKey } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import type { KeyState, SignedMessage } from "../../../../src/core/ledger/key-proof.ts";

const bytes = (n: number) => new Uint8Array(32).fill(n);
const step = { nonce: 0n, hash: bytes(0) };
const signedBy = (n: number): SignedMessage => ({
  signature: new Uint8Array(64),
  message: new Uint8Array(0),
  publicKey: bytes(n),
});

type Facts = {
  readonly roots?: readonly number[];
  readonly baseRoot?: number;
  readonly methods?: readonly number[];
  /** Those of them that are not in `authentication`. */
  readonly silent?: readonly number[];
  /** Who signed the calls since the base. */
  readonly callers?: readonly number[];
};

function stateOf(n: number, facts: Facts = {}): KeyState {
  const { roots = [n], baseRoot = 0, methods = [n], silent = [], callers = [] } = facts;
  const did = `did:svc:${String(n).repeat(22)}` as Did;
  const idOf = (one: number) => `${did}#${one}`;
  return {
    did,
    genesisHash: bytes(0),
    rootKeys: roots.map(bytes),
    baseRoot,
    document: {
      id: did,
      verificationMethod: methods.map((one) => ({
        id: idOf(one),
        type: "Multikey",
        controller: did,
        publicKeyMultibase: renderPublicKey(bytes(one)),
      })),
      authentication: methods.filter((one) => !silent.includes(one)).map(idOf),
      keyAgreement: [],
      service: [],
    },
    steps: [step, ...callers.map(() => step)],
    signatures: [signedBy(n), ...callers.map(signedBy)],
  };
}

const side = (state: KeyState) => ({ did: state.did, print: printOf(state) });
const hexOf = (...state: Parameters<typeof stateOf>) => printOf(stateOf(...state)).toHex();

test("a fingerprint is the same text on both sides, in groups of five", () => {
  const [a, b] = [side(stateOf(1)), side(stateOf(2))];
  const text = fingerprintOf(a, b);
  expect(fingerprintOf(b, a)).toBe(text);
  expect(text).toMatch(/^([0-9A-HJKMNP-TV-Z]{5} ){7}[0-9A-HJKMNP-TV-Z]{5}$/);
  const other = fingerprintOf(a, side(stateOf(2, { roots: [3] })));
  expect([other.slice(0, 23) === text.slice(0, 23), other.slice(24) === text.slice(24)]).toEqual([
    true,
    false,
  ]);
});

test("each thing that a stolen key can change makes another one, and nothing else does", () => {
  const honest = hexOf(1, { roots: [1, 2], baseRoot: 1, methods: [2, 4] });
  const changes: Readonly<Record<string, Facts>> = {
    "another root key": { roots: [1, 3], baseRoot: 1, methods: [2, 4] },
    "a document by the key before": { roots: [1, 2], baseRoot: 0, methods: [2, 4] },
    "a further method that signs": { roots: [1, 2], baseRoot: 1, methods: [2, 4, 9] },
    "a method less": { roots: [1, 2], baseRoot: 1, methods: [2] },
    "a method that signed, and then removed itself": {
      ...{ roots: [1, 2], baseRoot: 1, methods: [2, 4] },
      callers: [9, 9],
    },
  };
  const same: Readonly<Record<string, Facts>> = {
    "another order": { roots: [1, 2], baseRoot: 1, methods: [4, 2] },
    "a method that can't sign": { roots: [1, 2], baseRoot: 1, methods: [2, 4, 5], silent: [5] },
    "calls by the root key": { roots: [1, 2], baseRoot: 1, methods: [2, 4], callers: [2] },
    "calls by a listed method": { roots: [1, 2], baseRoot: 1, methods: [2, 4], callers: [4, 4] },
    "a former root key": { roots: [7, 2], baseRoot: 1, methods: [2, 4] },
  };
  const isSame = (all: typeof same) =>
    Object.entries(all).map(([name, facts]) => [name, hexOf(1, facts) === honest]);
  expect(isSame(changes)).toEqual(Object.keys(changes).map((name) => [name, false]));
  expect(isSame(same)).toEqual(Object.keys(same).map((name) => [name, true]));
});

test("a fingerprint has the digits that docs/trust.md describes", () => {
  const state = stateOf(1, { roots: [1, 2], baseRoot: 1, methods: [4, 2] });
  const [two, four] = ["02".repeat(32), "04".repeat(32)];
  const text = `svc:fingerprint:v2|${state.did}|${two}|1|${two}|${four}`;
  const digest = new Bun.CryptoHasher("sha256").update(text).digest();
  const number = BigInt(`0x${digest.toString("hex")}`) >> 156n;
  const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const shown = Array.from(
    { length: 20 },
    (_, i) => digits[Number((number >> BigInt(5 * (19 - i))) & 31n)],
  ).join("");
  const whole = fingerprintOf(side(state), side(stateOf(2)));
  expect(whole.replaceAll(" ", "").slice(0, 20)).toBe(shown);
});
