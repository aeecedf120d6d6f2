/**
 * Invitations of this identity: who brings one back is accepted without a question. The text proves
 * itself by a key that all own devices have, so nothing is kept of it until it is used, and new
 * keys of the identity end those that were given out.
 * Source: docs/client.md "People and groups".
 */
import { concatBytes, decodeHex, encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { hkdf } from "../keys/crypto.ts";
import { keyOfPerson, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import { putPerson } from "./rows.ts";
import type { Batch } from "./table.ts";

export type InvitationTerms = {
  /** Until when it accepts. */
  readonly untilMs: number;
  /** Whether it accepts the first person alone. */
  readonly isOnce: boolean;
};

/** One byte of terms, five of the time in seconds, eight that distinguish it, and the proof. */
const [headBytes, proofBytes] = [14, 16];
const textMax = 64;
const keyPurpose = utf8("waypost:invitation");

const proofOf = (rootSeed: Uint8Array, head: Uint8Array): Uint8Array =>
  hkdf(rootSeed, head, keyPurpose, proofBytes);

export function makeInvitation(rootSeed: Uint8Array, { untilMs, isOnce }: InvitationTerms): string {
  const head = new Uint8Array(headBytes);
  const view = new DataView(head.buffer);
  const untilSeconds = Math.floor(untilMs / secondMs);
  view.setUint8(0, isOnce ? 1 : 0);
  view.setUint8(1, Math.floor(untilSeconds / 2 ** 32));
  view.setUint32(2, untilSeconds % 2 ** 32);
  crypto.getRandomValues(head.subarray(6));
  return encodeHex(concatBytes(head, proofOf(rootSeed, head)));
}

type Opened = { readonly id: string; readonly isOnce: boolean };

/** `null` for what this identity has not made under its present keys, and for what is over. */
export function openInvitation(rootSeed: Uint8Array, text: string, nowMs: number): Opened | null {
  const bytes = text.length > textMax ? null : decodeHex(text);
  if (bytes?.length !== headBytes + proofBytes) return null;
  const head = bytes.subarray(0, headBytes);
  if (!equalBytes(proofOf(rootSeed, head), bytes.subarray(headBytes))) return null;
  const view = new DataView(head.slice().buffer);
  const untilMs = (view.getUint8(1) * 2 ** 32 + view.getUint32(2)) * secondMs;
  if (untilMs <= nowMs) return null;
  return { id: encodeHex(head.subarray(6)), isOnce: view.getUint8(0) === 1 };
}

/**
 * Accepts a person who brings a good one. Who has used it stands in their row,
 * which own devices share.
 */
export async function acceptInvited(
  { table, identity, nowMs }: OwnStore,
  batch: Batch,
  did: Did,
  text: string,
): Promise<void> {
  const opened = openInvitation(identity.secrets.rootSeed, text, nowMs());
  if (opened === null) return;
  if (opened.isOnce)
    for await (const [, { invitedBy }] of table.all<Person>(rowsOf.people))
      if (invitedBy === opened.id) return;
  await putPerson(table, batch, did, { isKnown: true, invitedBy: opened.id, setMs: nowMs() });
  batch.log(keyOfPerson(table, did));
}
