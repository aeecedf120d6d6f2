/**
 * An identity in its key store: read, and changed by several tabs and processes at once.
 * Source: docs/client.md "Opening".
 */
import { localError } from "../base/failure.ts";
import type { KeyStore } from "./key-stores.ts";
import { type Identity, parseIdentity, renderIdentity } from "./keys.ts";

export async function loadIdentity(keys: KeyStore, name: string): Promise<Identity | null> {
  return (await readIdentity(keys, name))?.[1] ?? null;
}

async function readIdentity(
  keys: KeyStore,
  name: string,
): Promise<readonly [text: string, Identity] | null> {
  const text = await keys.load(name);
  if (text === null) return null;
  const identity = parseIdentity(text, name);
  if (identity !== null) return [text, identity];
  throw localError("keys_unreadable", `what the key store holds for ${name} is not an identity`);
}

export type EditIdentity = (stored: Identity) => Identity | Promise<Identity>;

/** As many writers would have to come first, each time. */
const editsMax = 100;

/**
 * Every change of a stored identity: made of what is stored now, and made again when another
 * process or tab was first. So no secret is lost that another writer stored, and an identity that
 * was removed does not come back.
 */
export async function changeIdentity(
  keys: KeyStore,
  { name, did }: Pick<Identity, "name" | "did">,
  edit: EditIdentity,
): Promise<Identity> {
  for (let i = 0; i < editsMax; i++) {
    const [before, stored] = (await readIdentity(keys, name)) ?? [];
    if (before === undefined || stored?.did !== did)
      throw localError("no_identity", `the keys of ${did} were removed`);
    const identity = await edit(stored);
    const text = renderIdentity(identity);
    if (text === before || (await keys.replace(name, before, text))) return identity;
  }
  throw localError("busy", `others change ${name} in the key store all the time`);
}
