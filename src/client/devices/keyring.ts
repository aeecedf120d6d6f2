/**
 * Which devices an identity has, as pure rules. The ledger orders root keys, and nothing else does:
 * the number of a keyring is that of its root key in the own proof. Its head lists the devices, is
 * signed by that root key, and is sealed to each listed device's own key, which a server never
 * names. A head of a later number is a candidate until the proof shows its key, and then it
 * replaces all that came before: who isn't listed is out.
 * Source: docs/trust.md ("Own devices"), test/vectors/keyrings.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { hourMs, minuteMs } from "../../core/codec/time.ts";
import { isInteger, isRecord } from "../base/shapes.ts";

/** Of one identity: a head with more is none, since no user could look through them. */
export const devicesMax = 8;
const nameCharactersMax = 100;
/** No rotation is accepted for longer. */
const candidateMsMax = hourMs;

export type RingDevice = {
  readonly did: Did;
  readonly name: string;
  /**
   * X25519, in hex. Others seal heads to it; they have it from the code that the
   * device showed, or from a head.
   */
  readonly key: string;
  readonly addedMs: number;
  /** The device that accepted it; `null` for the first one. */
  readonly addedBy: Did | null;
};

export type Head = {
  /** Of the identity. */
  readonly did: Did;
  /** How many root keys came before, in the own proof. */
  readonly number: number;
  /** The root key, in hex. It signs the head. */
  readonly root: string;
  /** The device that made this root key. */
  readonly maker: Did;
  /** After this the rotation to its key isn't accepted any more; 0 once it is in force. */
  readonly untilMs: number;
  readonly devices: readonly RingDevice[];
};

export type Keyring = {
  readonly head: Head;
  /** Heads whose keys the proof has not shown so far. */
  readonly candidates: readonly Head[];
};

/** What the own proof shows. */
export type ProvenRoot = { readonly number: number; readonly root: string };

/** By DID: JSON without spaces. */
const sorted = (devices: readonly RingDevice[]): RingDevice[] =>
  [...devices].sort((a, b) => (a.did < b.did ? -1 : 1));

/**
 * What the head's root key signs, together with the SHA-256 in hex of the secrets that go with it.
 */
export function headText(head: Head, secretsSha256: string): Uint8Array {
  const { did, number, root, maker, untilMs, devices } = head;
  const listed = sorted(devices).map((one) => [
    one.did,
    one.name,
    one.key,
    one.addedMs,
    one.addedBy,
  ]);
  const parts = [did, number, root, maker, untilMs, listed, secretsSha256];
  return utf8(`svc:head:v1|${JSON.stringify(parts)}`);
}

/** `null` for JSON of another form. */
export function parseHead(json: unknown): Head | null {
  if (!isRecord(json)) return null;
  const { did, number, root, maker, untilMs, devices } = json;
  const isFit =
    isDid(String(did)) &&
    isInteger(number) &&
    number >= 0 &&
    isKey(root) &&
    isDid(String(maker)) &&
    isInteger(untilMs) &&
    Array.isArray(devices) &&
    devices.length <= devicesMax &&
    devices.every(isRingDevice);
  return isFit ? (json as Head) : null;
}

const isKey = (value: unknown): value is string =>
  typeof value === "string" && /^[0-9a-f]{64}$/.test(value);

const isRingDevice = (one: unknown): one is RingDevice =>
  isRecord(one) &&
  isDid(String(one["did"])) &&
  typeof one["name"] === "string" &&
  one["name"].length <= nameCharactersMax &&
  isKey(one["key"]) &&
  isInteger(one["addedMs"]) &&
  (one["addedBy"] === null || isDid(String(one["addedBy"])));

/**
 * Of one root key the devices only grow. What a device says of itself counts, and what another one
 * says of it only where nothing is known: a device of a thief could have new keys sealed for
 * another device to a key which that one doesn't have.
 */
function union(
  held: readonly RingDevice[],
  given: readonly RingDevice[],
  from: Did | null,
): readonly RingDevice[] {
  const all = new Map(held.map((one) => [one.did, one]));
  for (const one of given) {
    const isNew = !all.has(one.did);
    if ((isNew && all.size < devicesMax) || (!isNew && one.did === from)) all.set(one.did, one);
  }
  return sorted([...all.values()]);
}

const isSameHead = (a: Head, b: Head): boolean =>
  JSON.stringify([a, sorted(a.devices)]) === JSON.stringify([b, sorted(b.devices)]);

/**
 * The keyring after a head whose signature by its own root key holds. Of the root key in force and
 * of a candidate the devices join; one of a later number becomes a candidate; an earlier one, or
 * another of the same number, counts for nothing. `from` is the device that said it.
 */
export function hearHead(ring: Keyring, given: Head, from: Did | null = null): Keyring {
  const { head, candidates } = ring;
  if (given.did !== head.did) return ring;
  if (given.root === head.root && given.number === head.number) {
    const devices = union(head.devices, given.devices, from);
    const next = { ...head, devices };
    return isSameHead(head, next) ? ring : { ...ring, head: next };
  }
  if (given.number <= head.number) return ring;
  const isOf = (one: Head) => one.root === given.root && one.number === given.number;
  const held = candidates.find(isOf);
  const joined =
    held === undefined
      ? given
      : {
          ...held,
          devices: union(held.devices, given.devices, from),
          untilMs: Math.max(held.untilMs, given.untilMs),
        };
  return { ...ring, candidates: [...candidates.filter((one) => !isOf(one)), joined] };
}

/**
 * Whether a head that somebody has sent may be heard: the one of the root key in force here, or
 * that the proof shows; and from who is listed the next one. Any other would only keep this device
 * from speaking with those who are missing in it.
 */
export function mayHear(
  { number, root }: Head,
  {
    head,
    proven,
    isListed,
  }: { readonly head: Head; readonly proven: ProvenRoot; readonly isListed: boolean },
): boolean {
  const isIn = [head, proven].some((one) => one.number === number && one.root === root);
  return isIn || (isListed && number === Math.max(head.number, proven.number) + 1);
}

/**
 * The keyring after a look at the own proof. The candidate whose key it shows is in force, with its
 * devices and no others. Others end when the proof shows another key of their number, or a minute
 * past their rotation's time. The one that this device has made stays until then: its rotation may
 * be in force already, and is signed again otherwise.
 */
export function settle(
  ring: Keyring,
  proven: ProvenRoot,
  { nowMs, made }: { readonly nowMs: number; readonly made: string | null },
): Keyring {
  const shown = ring.candidates.find(
    ({ number, root }) => number === proven.number && root === proven.root,
  );
  const head = shown === undefined ? ring.head : { ...shown, untilMs: 0 };
  const candidates = ring.candidates.filter(
    (one) =>
      one.number > Math.max(proven.number, head.number) &&
      (one.root === made || !isOver(one, nowMs)),
  );
  const isSame = head === ring.head && candidates.length === ring.candidates.length;
  if (isSame) return ring;
  return shown === undefined ? { ...ring, candidates } : { head, candidates };
}

/**
 * Also one whose maker claims more time than a rotation has: it would silence
 * this device for that long.
 */
const isOver = ({ untilMs }: Head, nowMs: number): boolean =>
  nowMs > untilMs + minuteMs || untilMs > nowMs + candidateMsMax;

/**
 * The proof shows a root key of which this device has no head: it says and signs
 * nothing, and asks the others.
 */
export const isBehind = ({ head }: Keyring, proven: ProvenRoot): boolean =>
  proven.number > head.number || (proven.number === head.number && proven.root !== head.root);

/** What is noted next to the keys: the devices that were removed, and who made each root key. */
export type KeyNotes = {
  readonly removed: readonly Did[];
  readonly makers: readonly { readonly root: string; readonly maker: Did }[];
};

/**
 * Where the keys that the proof shows are here, and the list is of an earlier root key: a command
 * has replaced them, or the local store is an older copy than the keys. The devices stay but for
 * those that were removed since. What other devices say of the maker counts for nothing: their
 * stores may be older copies as well.
 */
export function followOwn(
  { head, candidates }: Keyring,
  { number, root }: ProvenRoot,
  { removed, makers }: KeyNotes,
): Keyring {
  const devices = head.devices.filter(({ did }) => !removed.includes(did));
  const { maker } = makers.find((one) => one.root === root) ?? head;
  return { candidates, head: { ...head, number, root, devices, maker } };
}

/** Of the devices of the head before. */
export const missingIn = ({ devices }: Head, before: Head): Did[] =>
  before.devices.map(({ did }) => did).filter((one) => devices.every(({ did }) => did !== one));

/** To whom a device speaks: who is listed in the head and in every candidate. */
export function audienceOf({ head, candidates }: Keyring, own: Did): Did[] {
  const isListed = ({ devices }: Head, did: Did) => devices.some((one) => one.did === did);
  return head.devices
    .map(({ did }) => did)
    .filter((did) => did !== own && candidates.every((one) => isListed(one, did)));
}

/** Who is to be removed again, because another replacement came first and still lists them. */
export function removalsToRepeat(lost: Head, before: Head, winner: Head): Did[] {
  const isListed = (head: Head, did: Did) => head.devices.some((one) => one.did === did);
  return before.devices
    .map(({ did }) => did)
    .filter((did) => !isListed(lost, did) && isListed(winner, did));
}
