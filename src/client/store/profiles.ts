/**
 * Profiles: what people call themselves, with a picture, and the own one, which goes out ahead of
 * the next message to each person (`sending.ts`). A name is the claim of its owner: it never
 * replaces what the user called somebody.
 * Source: docs/client.md "People and groups".
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import { checkProfile, pictureType } from "../mail/notes.ts";
import { keyOfPerson, keyOfProfile, rowsOf } from "./keys.ts";
import type { Person } from "./person-shape.ts";
import { type ProfileRow, putPerson } from "./rows.ts";
import type { Batch, Table } from "./table.ts";

export type Profile = {
  readonly name: string;
  readonly picture: Blob | null;
  /** Whether others see what was read, and when this user writes. */
  readonly isOpen: boolean;
};

/** Of so many who aren't known a profile is kept: further ones are ignored. */
const strangersMax = 500;

/**
 * For own devices too. `false` for one that is older than what is known, or
 * one stranger's too many.
 */
export async function putProfile(
  table: Table,
  batch: Batch,
  profile: ProfileRow,
): Promise<boolean> {
  const { did, name, atMs, isOpen } = profile;
  const key = keyOfProfile(table, did);
  if (((await batch.get<ProfileRow>(key))?.atMs ?? 0) >= atMs) return false;
  if (isOpen === null) {
    if (!(await hasRoomForProfile(table, await batch.get<Person>(keyOfPerson(table, did)))))
      return false;
    await putPerson(table, batch, did, { claimed: { name, atMs } });
  }
  batch.put(key, profile);
  batch.log(key);
  return true;
}

async function hasRoomForProfile(table: Table, person: Person | null): Promise<boolean> {
  if (person?.isKnown === true || person?.claimed !== undefined) return true;
  let strangers = 0;
  for await (const [, { isKnown, isBlocked, claimed }] of table.all<Person>(rowsOf.people))
    if (!isKnown && !isBlocked && claimed !== undefined) strangers++;
  return strangers < strangersMax;
}

export function profileOf(row: ProfileRow | null): Profile {
  const bytes = decodeBase64(row?.picture ?? "") ?? new Uint8Array(0);
  const type = pictureType(bytes);
  const picture = type === null ? null : new Blob([bytes.slice()], { type });
  return { name: row?.name ?? "", picture, isOpen: row?.isOpen === true };
}

/** What is not given stays. Throws `invalid_argument`. */
export async function profileWith(
  row: ProfileRow | null,
  change: Partial<Profile>,
): Promise<Omit<ProfileRow, "did" | "atMs">> {
  const { name, picture, isOpen } = { ...profileOf(row), ...change };
  const bytes = picture === null ? null : new Uint8Array(await picture.arrayBuffer());
  checkProfile({ name, picture: bytes });
  return { name, picture: bytes === null ? "" : encodeBase64(bytes), isOpen };
}
