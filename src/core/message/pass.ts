/**
 * Passes: how a sender shows a Cache that the recipient's user has accepted somebody,
 * without a name. A recipient gives each person a pass in a sealed message; the Cache
 * checks it by the recipient's secret, and sees a pseudonym for a person and a quarter of a
 * year.
 * Source: docs/interface.md "Passes".
 */
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concatBytes, decodeBase64Url, encodeBase64Url, encodeHex, utf8 } from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";
import { dayMs } from "../codec/time.ts";

/** Of a request that submits an envelope. Envelopes have no place for it. */
export const passHeader = "svc-pass";

export const passSecretBytes = 32;

const idBytes = 8;
const proofBytes = 16;

/**
 * What a person holds: 8 bytes that name the pass and its last day, and the key of 32 bytes
 * that proves it.
 */
export type Pass = { readonly id: Uint8Array; readonly key: Uint8Array };

/** The quarter (UTC, `2026-Q4`) in which a pass is given, and its last day in days since 1970. */
type PassPeriod = { readonly quarter: string; readonly lastDay: number };

/** What a sender shows for one envelope. */
type ShownPass = { readonly id: Uint8Array; readonly proof: Uint8Array };

/**
 * The pass of a person until `lastDay` (days since 1970, UTC). `namingKey` is the
 * recipient's own, and never leaves it: from it a Cache can't learn who a pass is for. The
 * same person, quarter and keys make the same pass.
 */
export function makePass(
  { secret, namingKey }: { readonly secret: Uint8Array; readonly namingKey: Uint8Array },
  person: Did,
  { quarter, lastDay }: PassPeriod,
): Pass {
  const name = hmac(sha256, namingKey, utf8(`${person}\n${quarter}`)).subarray(0, idBytes - 2);
  const id = concatBytes(Uint8Array.of(lastDay >> 8, lastDay & 0xff), name);
  return { id, key: passKey(secret, id) };
}

function passKey(secret: Uint8Array, id: Uint8Array): Uint8Array {
  return hmac(sha256, secret, concatBytes(utf8("svc:pass-key:v1|"), id));
}

/** The value of `Svc-Pass` for an envelope: base64url of the id and the proof, 32 characters. */
export function showPass({ id, key }: Pass, envelope: Uint8Array): string {
  return encodeBase64Url(concatBytes(id, proofOf(key, envelope)));
}

function proofOf(key: Uint8Array, envelope: Uint8Array): Uint8Array {
  const text = concatBytes(utf8("svc:pass:v1|"), sha256(envelope));
  return hmac(sha256, key, text).subarray(0, proofBytes);
}

/** As it is given in a message: base64url of id and key, 54 characters. */
export function renderPass({ id, key }: Pass): string {
  return encodeBase64Url(concatBytes(id, key));
}

/** `null` for a text that is not a pass. */
export function parsePass(text: string): Pass | null {
  const bytes = /^[A-Za-z0-9_-]{54}$/.test(text) ? decodeBase64Url(text) : null;
  return bytes === null ? null : { id: bytes.subarray(0, idBytes), key: bytes.subarray(idBytes) };
}

/** Days since 1970, UTC, until which a pass counts. */
export function lastDayOf({ id }: Pick<Pass, "id">): number {
  return ((id[0] as number) << 8) | (id[1] as number);
}

/** `null` for a text that is not a pass. */
export function parseShownPass(text: string | null): ShownPass | null {
  if (text === null || !/^[A-Za-z0-9_-]{32}$/.test(text)) return null;
  const bytes = decodeBase64Url(text);
  if (bytes === null) return null;
  return { id: bytes.subarray(0, idBytes), proof: bytes.subarray(idBytes) };
}

/** The id as Caches, operators and revocations write it: 16 hex digits. */
export function passName(id: Uint8Array): string {
  return encodeHex(id);
}

/** What a Cache knows of a mailbox's passes. */
export type PassRule = {
  /** The secret in force, and the one until now. */
  readonly secrets: readonly Uint8Array[];
  /** Names of passes that don't count any more. */
  readonly revoked: ReadonlySet<string>;
};

/** Whether the pass was made by the secret, for this envelope, and still counts. */
export function isValidPass(
  { id, proof }: ShownPass,
  { secrets, revoked }: PassRule,
  shown: { readonly envelope: Uint8Array; readonly nowMs: number },
): boolean {
  if (Math.floor(shown.nowMs / dayMs) > lastDayOf({ id }) || revoked.has(passName(id)))
    return false;
  return secrets.some((secret) =>
    equalInConstantTime(proofOf(passKey(secret, id), shown.envelope), proof),
  );
}

/** Of equal length. Its time does not depend on where they differ. */
function equalInConstantTime(a: Uint8Array, b: Uint8Array): boolean {
  let differing = 0;
  for (let i = 0; i < a.length; i++) differing |= (a[i] as number) ^ (b[i] as number);
  return differing === 0;
}

/**
 * The quarter of a pass that is given now, and its last day: the end of the next quarter.
 * So it lasts for three to six months.
 */
export function passPeriod(nowMs: number): PassPeriod {
  const now = new Date(nowMs);
  const quarter = Math.floor(now.getUTCMonth() / 3);
  const afterNext = Date.UTC(now.getUTCFullYear(), (quarter + 2) * 3);
  return { quarter: `${now.getUTCFullYear()}-Q${quarter + 1}`, lastDay: afterNext / dayMs - 1 };
}

/** The periods of all passes that may still count. */
export function passPeriods(nowMs: number): PassPeriod[] {
  const now = new Date(nowMs);
  const begunMs = Date.UTC(now.getUTCFullYear(), Math.floor(now.getUTCMonth() / 3) * 3);
  return [passPeriod(nowMs), passPeriod(begunMs - dayMs)];
}
