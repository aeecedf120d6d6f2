/**
 * Fingerprints: a text by which two people compare their keys, because both see the same. 20
 * characters for each. It is shown of whatever the Directory proves now, also while that
 * contradicts what was seen before, next to what it was then; and that two people have compared it
 * is remembered until a key of either changes.
 * Source: docs/trust.md "Fingerprints".
 */
import { encodeBase32 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import type { KeyState } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { localError } from "../base/failure.ts";
import { keptDid, object, renderKept, text } from "../base/shapes.ts";
import { type Client, findName, trustIn } from "./client.ts";
import { printOf } from "./print.ts";
import { distrust, recall, type TrustDemand, type View } from "./trust.ts";

/** The fingerprint that the user has compared with a person. */
const comparedShape = object({ did: keptDid, text });

export type Fingerprint = {
  readonly did: Did;
  /** What both people see now: groups of five characters, the person with the lesser DID first. */
  readonly is: string;
  /**
   * What it was when it was compared, or when the person was believed last; `null`
   * while that is what it is.
   */
  readonly was: string | null;
  /** This user has compared it with the person (`setCompared`), and no key has changed since. */
  readonly isCompared: boolean;
  /**
   * Why nothing is sent to the person: what the Directory shows now
   * contradicts what was seen before.
   */
  readonly distrusted: "identity_changed" | "record_went_back" | null;
};

/** One side: a DID, and what is shown of its keys. */
type Side = { readonly did: Did; readonly print: Uint8Array };

const digitsEach = 20;
const groupDigits = 5;

/** Groups of five, the person with the lesser DID first. */
export function fingerprintOf(a: Side, b: Side): string {
  const both = a.did < b.did ? [a, b] : [b, a];
  return inGroups(both.map(digitsOf).join(""));
}

const digitsOf = ({ print }: Side): string => encodeBase32(print).slice(0, digitsEach);
const inGroups = (text: string): string =>
  (text.match(new RegExp(`.{${groupDigits}}`, "g")) ?? []).join(" ");

/** The half of an identity itself. Throws as `fingerprintBetween`. */
export async function ownFingerprint(client: Client, own: Did): Promise<string> {
  return inGroups(digitsOf(await viewKeys(client, own)));
}

/**
 * Between an identity and a person. Throws `proof_missing` for random DIDs, whose keys nothing
 * proves, and `change_pending` while a root key was replaced and no document by the new one
 * follows: with what stands there a thief of the old one could have begun; where that also
 * contradicts what was seen before, the code of the contradiction at once.
 */
export async function fingerprintBetween(
  client: Client,
  own: Did,
  other: Did,
): Promise<Fingerprint> {
  const [mine, theirs] = await Promise.all([viewKeys(client, own), viewKeys(client, other)]);
  return shownOf(client, mine, theirs);
}

type Comparing = {
  readonly client: Client;
  readonly did: Did;
  readonly trust: TrustDemand | null;
};

/**
 * The same, of a DID or an alias; of a person who is believed with the demands that messages have.
 */
export async function fingerprintOfTarget(
  { client, did: own, trust }: Comparing,
  to: string,
): Promise<Fingerprint> {
  const { did } = await findName(client, to, trust);
  const shown = await fingerprintBetween(client, own, did);
  if (trust !== null && shown.distrusted === null) await trustIn(client, did, trust);
  return shown;
}

async function shownOf(client: Client, mine: Viewed, theirs: Viewed): Promise<Fingerprint> {
  const { did, before, refusal } = theirs;
  const is = fingerprintOf(mine, theirs);
  const compared = await comparedWith(client, did);
  const isKept = refusal !== null && before?.print !== undefined;
  const was = isKept ? fingerprintOf(mine, { did, print: before.print as Uint8Array }) : compared;
  return {
    did,
    is,
    was: was === is ? null : was,
    isCompared: compared === is,
    distrusted: refusal === null ? null : (refusal.code as Fingerprint["distrusted"]),
  };
}

/**
 * The user has compared a fingerprint with the person, and both saw `text`: the person is believed
 * again, if they weren't. Throws `identity_changed` when it is another one by now.
 */
export async function setCompared(client: Client, own: Did, to: string, text: string) {
  const { did: other } = await findName(client, to);
  const [mine, theirs] = await Promise.all([viewKeys(client, own), viewKeys(client, other)]);
  const { is, distrusted } = await shownOf(client, mine, theirs);
  if (is !== text)
    throw distrust("identity_changed", `the fingerprint of ${other} is another one by now`);
  if (distrusted !== null) await client.trust.forget(other);
  // What was compared, whatever the Directory proves a moment later.
  await client.trust.prove(other, theirs.bytes);
  await client.known.memory.save(comparedKey(other), renderKept({ did: other, text }));
}

const comparedKey = (did: Did): string => `compared/${did}`;

async function comparedWith({ known }: Client, did: Did): Promise<string | null> {
  const kept = await recall(known.memory, comparedKey(did), comparedShape);
  return kept?.did === did ? kept.text : null;
}

type Viewed = Side & View;

async function viewKeys(client: Client, did: Did): Promise<Viewed> {
  if (!isSelfCertifying(did))
    throw distrust("proof_missing", `${did} is a random DID: it has no fingerprint`);
  for (let leftMs = client.timeoutMs; ; leftMs -= secondMs) {
    const view = await client.trust.view(did);
    if (!isUnderway(view.state)) return { ...view, did, print: printOf(view.state) };
    // No document will make what went back the truth.
    if (view.refusal !== null) throw view.refusal;
    if (leftMs <= 0)
      throw localError(
        "change_pending",
        `the root key of ${did} was replaced, and no document follows: try again in a minute`,
      );
    await new Promise((resolve) => setTimeout(resolve, Math.min(secondMs, leftMs)));
  }
}

/** A rotation that no document has followed. */
const isUnderway = ({ rootKeys, baseRoot }: KeyState): boolean => baseRoot < rootKeys.length - 1;
