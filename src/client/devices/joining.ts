/**
 * The secrets of an identity on two of its devices, as one set: what another device gives is joined
 * with what is here.
 * Source: docs/trust.md ("Own devices").
 */
import { sha256 } from "#sha256";
import { encodeHex } from "../../core/codec/bytes.ts";
import { withoutNext } from "../identity/new-keys.ts";
import { joinSecrets } from "../keys/agreements.ts";
import type { Identity } from "../keys/keys.ts";

/** As another device has it; what only this one has stays. */
export function withGiven(stored: Identity, given: Identity, nowMs: number): Identity {
  const { storeKey } = stored;
  const { agreements, bundleKeys } = withSecrets(stored, given, nowMs);
  const names = given.methods.map(nameOfKey);
  const others = stored.methods.filter((one) => !names.includes(nameOfKey(one)));
  return { ...given, storeKey, methods: [...others, ...given.methods], agreements, bundleKeys };
}

/** With the secrets of another device: the same object when there are none that are new. */
export function withSecrets(stored: Identity, given: Identity, nowMs: number): Identity {
  const named = { nameOf: nameOfKey, nowMs };
  const agreements = joinSecrets(stored.agreements, given.agreements, named);
  const bundleKeys = joinSecrets(stored.bundleKeys, given.bundleKeys, named);
  const known = stored.methods.map(nameOfKey);
  const added = given.methods
    .filter((one) => !known.includes(nameOfKey(one)))
    .map((one) => ({ ...one, isShared: true }));
  const isSame = agreements === stored.agreements && bundleKeys === stored.bundleKeys;
  if (isSame && added.length === 0) return stored;
  const { methods } = withoutNext(stored);
  const next = stored.methods.filter((one) => !methods.includes(one));
  // Of an id the last counts: those of a replacement that this device makes.
  return { ...stored, agreements, bundleKeys, methods: [...methods, ...added, ...next] };
}

export const nameOfKey = ({ id, secret }: Identity["methods"][number]): string =>
  `${id}|${encodeHex(sha256(secret))}`;
