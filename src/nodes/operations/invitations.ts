/**
 * Invitations: who may register while `directory.registration` is `invite`. A code has 128 random bits; the list has
 * its digest alone, so neither the list nor a backup lets anyone in. Each use is a record that is never replaced by another
 * DID's: a registration claims one before it is submitted, and the same DID finds its own again, so a repeat after a lost
 * answer or a crash uses nothing more, and a count is never exceeded however many processes register at once.
 * Source: D410.
 */
import { decodeUtf8, encodeBase58, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { invitationsMax } from "../../core/schema/schema.ts";
import { type ListParts, openList } from "./list.ts";

export type Invitation = {
  /** The first half of the code's SHA-256 in hex. */
  readonly id: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly revokedAtMs: number | null;
  readonly usesMax: number;
  readonly note: string | null;
};

/** `did` is `null` once the operator has erased it. */
export type Use = { readonly did: Did | null; readonly atMs: number };

type NewInvitation = { readonly uses: number; readonly lifeMs: number; readonly note: string | null };

export type Invitations = {
  readonly list: () => Promise<(Invitation & { readonly uses: readonly Use[] })[]>;
  /** The only time that its code is known. */
  readonly create: (wanted: NewInvitation) => Promise<(Invitation & { readonly code: string }) | Fault>;
  /** By the beginning of an id, which must be that of one, or by the code. */
  readonly revoke: (named: string) => Promise<Invitation | Fault>;
  /** Uses the invitation for a DID, once; durable when it resolves. 403 `invitation_invalid`. */
  readonly claim: (code: string, did: Did) => Promise<Fault | null>;
  /** Takes a DID out of the records of who used what; returns how many there were. */
  readonly erase: (did: Did) => Promise<number>;
  readonly close: () => void;
};

/** How long the list shows an invitation after its end. */
const shownMs = 90 * dayMs;

const idOf = (code: string): string => encodeHex(sha256(utf8(code))).slice(0, 32);
const useKey = (id: string, place: number): string => `invitation:${id}:${place}`;
const invalid = (detail: string): Fault => fault("invitation_invalid", detail);

export async function openInvitations(parts: ListParts): Promise<Invitations> {
  const { receipts, now } = parts;
  const plan = { name: "invitations", title: "list of invitations", entriesMax: invitationsMax, index: () => {} };
  const list = await openList<Invitation>(plan, parts);
  const isShown = ({ expiresAtMs }: Invitation) => expiresAtMs + shownMs > now();
  const readUse = async (key: string): Promise<Use | null> => {
    const bytes = await receipts.get(key, now());
    return bytes === null ? null : (JSON.parse(decodeUtf8(bytes) ?? "null") as Use | null);
  };
  const placesOf = ({ id, usesMax }: Invitation) => Array.from({ length: usesMax }, (_, place) => useKey(id, place));
  const usesOf = async (invitation: Invitation): Promise<Use[]> => {
    const uses = await Promise.all(placesOf(invitation).map(readUse));
    return uses.filter((use) => use !== null).sort((a, b) => a.atMs - b.atMs);
  };
  return {
    list: async () => {
      await list.refresh();
      const shown = list.entries().filter(isShown);
      return Promise.all(shown.map(async (one) => ({ ...one, uses: await usesOf(one) })));
    },
    create: async ({ uses: usesMax, lifeMs, note }) => {
      const code = encodeBase58(crypto.getRandomValues(new Uint8Array(16)));
      const [id, createdAtMs] = [idOf(code), now()];
      const made = { id, createdAtMs, expiresAtMs: createdAtMs + lifeMs, revokedAtMs: null, usesMax, note };
      return (await list.change((before) => [...before.filter(isShown), made])) ?? { ...made, code };
    },
    revoke: async (named) => {
      await list.refresh();
      const found = list.entries().filter(({ id }) => id.startsWith(named) || id === idOf(named));
      const [one] = found;
      if (one === undefined || found.length > 1)
        return fault("not_found", one === undefined ? "no invitation has this id" : "several ids begin like this");
      const revoked = { ...one, revokedAtMs: one.revokedAtMs ?? now() };
      const refused = await list.change((before) => before.map((each) => (each.id === one.id ? revoked : each)));
      return refused ?? revoked;
    },
    claim: async (code, did) => {
      // Another process may have made or revoked it a moment ago.
      await list.refresh();
      const invitation = list.entries().find(({ id }) => id === idOf(code));
      if (invitation === undefined) return invalid("there is no such invitation");
      if (invitation.revokedAtMs !== null) return invalid("the invitation was revoked");
      if (invitation.expiresAtMs <= now()) return invalid("the invitation has expired");
      const use = utf8(JSON.stringify({ did, atMs: now() } satisfies Use));
      const untilMs = invitation.expiresAtMs + shownMs;
      const places = placesOf(invitation);
      // Each DID begins at a place of its own, so that it finds the use that it has, and a free one, after few looks.
      const first = Number.parseInt(encodeHex(sha256(utf8(did))).slice(0, 8), 16);
      for (const n of places.keys()) {
        const key = places[(first + n) % places.length] ?? "";
        const held = await receipts.putIfAbsent(key, use, untilMs, now());
        if (held === null || (JSON.parse(decodeUtf8(held) ?? "{}") as Partial<Use>).did === did) return null;
      }
      return invalid("the invitation has been used up");
    },
    erase: async (did) => {
      await list.refresh();
      let erased = 0;
      for (const invitation of list.entries())
        for (const key of placesOf(invitation)) {
          const use = await readUse(key);
          if (use?.did !== did) continue;
          const nobody = utf8(JSON.stringify({ ...use, did: null }));
          await receipts.put(key, nobody, invitation.expiresAtMs + shownMs);
          erased += 1;
        }
      return erased;
    },
    close: list.close,
  };
}

export const invitationHeader = "Svc-Invitation";

/** What is refused before anything else is looked at. */
export function checkOpen(registration: "open" | "invite" | "closed", code: string | null): Fault | null {
  if (registration === "closed") return fault("registration_closed", "this Directory registers nobody now");
  if (registration === "open" || code !== null) return null;
  return fault("invitation_required", `this Directory registers who is invited: send the code in ${invitationHeader}`);
}
