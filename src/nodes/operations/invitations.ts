/**
 * Invitations: who may register while `directory.registration` is `invite`. A code has 128 random
 * bits; the store has its digest alone, so neither the list nor a backup lets anyone in. Each use
 * is a record that is never replaced by another DID's: a registration claims one before it is
 * submitted, and the same DID finds its own again, so a repeat after a lost answer or a crash uses
 * nothing more, and a count is never exceeded however many processes register at once. A member
 * makes some for devices of their own, whose DIDs make none.
 * Source: D410, D657.
 */
import { encodeBase58, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { invitationsMax } from "../../core/schema/schema.ts";
import type { Receipts } from "../../storage/contract.ts";
import { decodeRecord, encodeRecord, readRecord, scanRecords } from "../parties/records.ts";
import { keptMs } from "../results.ts";

export type Invitation = {
  /** The first half of the code's SHA-256 in hex. */
  readonly id: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly revokedAtMs: number | null;
  readonly usesMax: number;
  readonly note: string | null;
  /** The member who made it for a device; absent where the operator made it. */
  readonly deviceOf?: Did;
};

/** `did` is `null` once the operator has erased it. */
type Use = { readonly did: Did | null; readonly atMs: number };

type KeptUse = Use & { readonly key: string };

type NewInvitation = {
  readonly uses: number;
  readonly lifeMs: number;
  readonly note: string | null;
};

export type Invitations = {
  readonly list: () => Promise<(Invitation & { readonly uses: readonly Use[] })[]>;
  /** The only time that its code is known. */
  readonly create: (
    wanted: NewInvitation,
  ) => Promise<(Invitation & { readonly code: string }) | Fault>;
  /**
   * For one device of a member. 403 `policy_denied` for a device, 429
   * `rate_limited` for too many a day.
   */
  readonly createForDevice: (
    of: Did,
  ) => Promise<{ readonly code: string; readonly expiresAtMs: number } | Fault>;
  /** By the beginning of an id, which must be that of one, or by the code. */
  readonly revoke: (named: string) => Promise<Invitation | Fault>;
  /** Uses the invitation for a DID, once; durable when it resolves. 403 `invitation_invalid`. */
  readonly claim: (code: string, did: Did) => Promise<Fault | null>;
  /** Takes a DID out of the records of who used what; returns how many there were. */
  readonly erase: (did: Did) => Promise<number>;
};

const deviceLifeMs = 15 * minuteMs;
/** As many as an identity has devices. */
const deviceInvitationsMax = 8;
const deviceWindowMs = dayMs;
/**
 * Clocks of a Directory's processes differ by less. What lasts longer was
 * made by one that was ahead.
 */
const skewMs = minuteMs;

/** How long the list shows an invitation after its end. */
const shownMs = 90 * dayMs;

export const invitationId = (code: string): string => encodeHex(sha256(utf8(code))).slice(0, 32);
const usePrefix = "/invitation-use/";
/** All are read in pages, however many places there are that no one has used. */
const useKey = (id: string, place: number): string => `${usePrefix}${id}/${place}`;
const idOfUse = (key: string): string => key.slice(usePrefix.length).split("/")[0] ?? "";
/** Of the invitations that a member may make for devices in a day. */
const devicePlaceKey = (did: Did, place: number): string => `/device-invitation/${did}/${place}`;
/** Of a DID that registered by one of them. */
const deviceKey = (did: Did): string => `/invited-device/${did}`;
const invalidInvitation = (detail: string): Fault => fault("invitation_invalid", detail);

const prefix = "/invitation/";

/** By its code, or by the beginning of its id. */
function onlyNamed(all: readonly Invitation[], named: string): Invitation | Fault {
  const found = all.filter(({ id }) => id.startsWith(named) || id === invitationId(named));
  const [one] = found;
  if (one === undefined) return fault("not_found", "no invitation has this id");
  return found.length > 1 ? fault("not_found", "several ids begin like this") : one;
}

function checkOpenInvitation(
  { revokedAtMs, expiresAtMs, deviceOf }: Invitation,
  nowMs: number,
): Fault | null {
  if (revokedAtMs !== null) return invalidInvitation("the invitation was revoked");
  const isOfTimeToCome = deviceOf !== undefined && expiresAtMs - nowMs > deviceLifeMs + skewMs;
  const isOver = expiresAtMs <= nowMs || isOfTimeToCome;
  return isOver ? invalidInvitation("the invitation has expired") : null;
}

/**
 * Takes a free one of the places, or finds the one that the DID has; `false` when others have all.
 */
async function takePlace(
  receipts: Receipts,
  places: readonly string[],
  use: Use & { readonly did: Did },
  untilMs: number,
): Promise<boolean> {
  const record = encodeRecord(use);
  // Each DID begins at a place of its own, so that it finds the use that it has, and a
  // free one, after few looks.
  const digest = encodeHex(sha256(utf8(use.did)));
  const first = Number.parseInt(digest.slice(0, 8), 16);
  for (const n of places.keys()) {
    const key = places[(first + n) % places.length] ?? "";
    const held = await receipts.putIfAbsent(key, record, untilMs, use.atMs);
    if (held === null || decodeRecord<Use>(held).did === use.did) return true;
  }
  return false;
}

const placeEndMs = (place: Uint8Array): number =>
  decodeRecord<{ readonly untilMs: number }>(place).untilMs;

/** 429 `rate_limited` while the member has made as many as a day allows. */
async function takeDevicePlace(receipts: Receipts, of: Did, nowMs: number): Promise<Fault | null> {
  let firstFreeMs = nowMs + deviceWindowMs;
  for (let place = 0; place < deviceInvitationsMax; place++) {
    const untilMs = nowMs + deviceWindowMs;
    const key = devicePlaceKey(of, place);
    const take = () => receipts.putIfAbsent(key, encodeRecord({ untilMs }), untilMs, nowMs);
    let held = await take();
    if (held !== null && placeEndMs(held) > untilMs + skewMs) {
      await receipts.remove(key, held);
      held = await take();
    }
    if (held === null) return null;
    firstFreeMs = Math.min(firstFreeMs, placeEndMs(held));
  }
  const detail = `a member makes at most ${deviceInvitationsMax} invitations for devices in a day`;
  const waitMs = Math.max(secondMs, firstFreeMs - nowMs);
  return fault("rate_limited", detail, { retryAfterSeconds: Math.ceil(waitMs / secondMs) });
}

type Made = { readonly nowMs: number; readonly lifeMs: number; readonly usesMax: number };

function newInvitation({ nowMs, lifeMs, usesMax }: Made, note: string | null) {
  const code = encodeBase58(crypto.getRandomValues(new Uint8Array(16)));
  const made: Invitation = {
    id: invitationId(code),
    createdAtMs: nowMs,
    expiresAtMs: nowMs + lifeMs,
    revokedAtMs: null,
    usesMax,
    note,
  };
  return { code, made };
}

/** The oldest first. */
async function readInvitations(receipts: Receipts, now: () => number): Promise<Invitation[]> {
  const all: Invitation[] = [];
  for await (const page of scanRecords(receipts, prefix, now))
    all.push(...page.map(([, value]) => decodeRecord<Invitation>(value)));
  return all.sort((a, b) => a.createdAtMs - b.createdAtMs);
}

function endedAndOpen(
  all: readonly Invitation[],
  nowMs: number,
): readonly [ended: readonly Invitation[], open: readonly Invitation[]] {
  const isOpen = (one: Invitation) => checkOpenInvitation(one, nowMs) === null;
  return [all.filter((one) => !isOpen(one)), all.filter(isOpen)];
}

const endOf = ({ expiresAtMs }: Invitation): number => expiresAtMs + shownMs;

const putInvitation = (receipts: Receipts, one: Invitation): Promise<void> =>
  receipts.put(prefix + one.id, encodeRecord(one), endOf(one));

/**
 * Takes a DID out of the uses, and revokes what it made for devices; returns
 * how many uses there were.
 */
async function eraseUses(receipts: Receipts, did: Did, now: () => number): Promise<number> {
  let erased = 0;
  const all = await readInvitations(receipts, now);
  const invitations = new Map(all.map((one) => [one.id, one]));
  for await (const page of scanRecords(receipts, usePrefix, now))
    for (const [key, value] of page) {
      const { did: user, atMs } = decodeRecord<Use>(value);
      const invitation = invitations.get(idOfUse(key));
      if (user !== did || invitation === undefined) continue;
      await receipts.put(key, encodeRecord({ did: null, atMs }), endOf(invitation));
      erased += 1;
    }
  for (const { deviceOf, ...one } of all)
    if (deviceOf === did)
      await putInvitation(receipts, { ...one, revokedAtMs: one.revokedAtMs ?? now() });
  for (let place = 0; place < deviceInvitationsMax; place++)
    await receipts.remove(devicePlaceKey(did, place));
  await receipts.remove(deviceKey(did));
  return erased;
}

export function createInvitations({
  receipts,
  now,
}: {
  receipts: Receipts;
  now: () => number;
}): Invitations {
  const keepInvitation = (one: Invitation) => putInvitation(receipts, one);
  const readNow = <T>(key: string) => readRecord<T>(receipts, key, now());
  const readAll = () => readInvitations(receipts, now);
  const placesOf = ({ id, usesMax }: Invitation) =>
    Array.from({ length: usesMax }, (_, place) => useKey(id, place));
  /** Of all invitations, by their ids. */
  const readUses = async (): Promise<ReadonlyMap<string, KeptUse[]>> => {
    const uses: KeptUse[] = [];
    for await (const page of scanRecords(receipts, usePrefix, now))
      uses.push(...page.map(([key, value]) => ({ key, ...decodeRecord<Use>(value) })));
    uses.sort((a, b) => a.atMs - b.atMs);
    return Map.groupBy(uses, ({ key }) => idOfUse(key));
  };
  return {
    list: async () => {
      const uses = await readUses();
      return (await readAll()).map((one) => ({
        ...one,
        uses: (uses.get(one.id) ?? []).map(({ did, atMs }) => ({ did, atMs })),
      }));
    },
    create: async ({ uses: usesMax, lifeMs, note }) => {
      const [ended, open] = endedAndOpen(await readAll(), now());
      // Members' own don't keep the operator from making one.
      const counted = open.filter(({ deviceOf }) => deviceOf === undefined);
      if (counted.length >= invitationsMax)
        return fault("invalid_request", `there can be at most ${invitationsMax} open invitations`);
      // Of those that have ended as many are shown as can be open.
      for (const { id } of ended.slice(0, -invitationsMax)) await receipts.remove(prefix + id);
      const { made, code } = newInvitation({ nowMs: now(), lifeMs, usesMax }, note);
      await keepInvitation(made);
      return { ...made, code };
    },
    createForDevice: async (of) => {
      const nowMs = now();
      if ((await receipts.get(deviceKey(of), nowMs)) !== null)
        return fault("policy_denied", "a DID that was invited as a device invites none");
      const refused = await takeDevicePlace(receipts, of, nowMs);
      if (refused !== null) return refused;
      const { made, code } = newInvitation({ nowMs, lifeMs: deviceLifeMs, usesMax: 1 }, null);
      await keepInvitation({ ...made, deviceOf: of });
      return { code, expiresAtMs: made.expiresAtMs };
    },
    revoke: async (named) => {
      const one = onlyNamed(await readAll(), named);
      if (isFault(one)) return one;
      const revoked = { ...one, revokedAtMs: one.revokedAtMs ?? now() };
      await keepInvitation(revoked);
      return revoked;
    },
    claim: async (code, did) => {
      const invitation = await readNow<Invitation>(prefix + invitationId(code));
      if (invitation === null) return invalidInvitation("there is no such invitation");
      const ended = checkOpenInvitation(invitation, now());
      if (ended !== null) return ended;
      const use = { did, atMs: now() };
      const isTaken = await takePlace(receipts, placesOf(invitation), use, endOf(invitation));
      if (!isTaken) return invalidInvitation("the invitation has been used up");
      // Before it is registered: a device that could invite would let in others without end.
      if (invitation.deviceOf !== undefined)
        await receipts.put(deviceKey(did), encodeRecord({}), now() + keptMs);
      return null;
    },
    erase: (did) => eraseUses(receipts, did, now),
  };
}

export const invitationHeader = "Svc-Invitation";

/** What is refused before anything else is looked at. */
export function checkOpen(
  registration: "open" | "invite" | "closed",
  code: string | null,
): Fault | null {
  if (registration === "closed")
    return fault("registration_closed", "this Directory registers no one now");
  if (registration === "open" || code !== null) return null;
  return fault(
    "invitation_required",
    `this Directory registers who is invited: send the code in ${invitationHeader}`,
  );
}
