/**
 * What an identity makes of changes of its own record: every key there must be one that this device holds or derives.
 * Source: docs/trust.md "The own record".
 */
import { encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseMethodKey, sealingKeyOf } from "../../core/ledger/account.ts";
import { rememberedOf } from "../../core/trust/follow.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import type { KeyState } from "../../core/trust/proof.ts";
import { aliasesShape, parseShaped } from "../answers.ts";
import type { Client } from "../client.ts";
import { ed25519PublicKey } from "../crypto.ts";
import { ClientError, orNull } from "../http.ts";
import { heldSeed, type Identity } from "../keys.ts";

/** A key of the own record that this device can't explain. */
export type Stranger = "root_key" | "sealing_key" | "method";

export type OwnNews =
  | { readonly type: "stranger_change"; readonly what: Stranger | "alias" | "log" }
  | { readonly type: "identity_updated" };

export async function watchOwn(
  client: Client,
  did: Did,
  given: { readonly alias: string | null; readonly strangerIn: (state: KeyState) => Promise<Stranger | null> },
): Promise<OwnNews[]> {
  const news: OwnNews[] = [];
  if (isSelfCertifying(did)) {
    const state = await client.trust.prove(did, null);
    const stranger = await given.strangerIn(state);
    const isNew = await isNewHere(client, state);
    const subject = { did, alias: null };
    if (stranger !== null) news.push({ type: "stranger_change", what: stranger });
    else if (await isDenied(client, subject)) news.push({ type: "stranger_change", what: "log" });
    else if (isNew) news.push({ type: "identity_updated" });
  }
  if (await hasLostAlias(client, did, given.alias)) news.push({ type: "stranger_change", what: "alias" });
  return news;
}

const ownAliasesMax = 1_000;

/**
 * Whether an alias of this identity is another DID's now. Its aliases are remembered: what a Directory hides later is still
 * watched. One that nobody has was removed.
 */
async function hasLostAlias(client: Client, did: Did, given: string | null): Promise<boolean> {
  const { aliases } = await client.directory.resolve(did);
  const names = new Set([...(given === null ? [] : [given]), ...(await loadOwnAliases(client, did)), ...aliases]);
  const kept: string[] = [];
  let isLost = false;
  for (const alias of [...names].slice(0, ownAliasesMax)) {
    const found = await orNull(client.directory.alias(alias), "alias_not_found");
    if (found === null) continue;
    kept.push(alias);
    isLost ||= found.did !== did || (await isDenied(client, { did, alias }));
  }
  await saveOwnAliases(client, did, kept);
  return isLost;
}

async function loadOwnAliases({ known }: Client, did: Did): Promise<readonly string[]> {
  return parseShaped((await known.memory.load(`aliases/${did}`)) ?? "", aliasesShape)?.aliases ?? [];
}

async function saveOwnAliases({ known }: Client, did: Did, aliases: readonly string[]): Promise<void> {
  await known.memory.save(`aliases/${did}`, JSON.stringify({ aliases }));
}

/** After this identity has given it up: whoever has it then is no stranger. */
export async function forgetOwnAlias(client: Client, did: Did, alias: string): Promise<void> {
  const aliases = await loadOwnAliases(client, did);
  const kept = aliases.filter((one) => one !== alias);
  if (kept.length < aliases.length) await saveOwnAliases(client, did, kept);
}

/** Whether the log, which others see too, says something else about this identity. */
async function isDenied(
  client: Client,
  subject: { readonly did: Did; readonly alias: string | null },
): Promise<boolean> {
  if (client.known.policy === null) return false;
  const { isLogged } = await import("./log.ts");
  try {
    return !(await isLogged(client, subject, true));
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    if (error.code !== "not_logged") client.known.doubt(error);
    return error.code === "not_logged";
  }
}

/** `holdsSealingKey`: whether this device has, or derives, the secret of the key that others seal to. */
export async function findStranger(
  identity: Identity,
  state: KeyState,
  holdsSealingKey: boolean,
): Promise<Stranger | null> {
  const rootKey = state.rootKeys.at(-1) as Uint8Array;
  if (!(await holdsRoot(identity, rootKey))) return "root_key";
  if (sealingKeyOf(state.document) !== null && !holdsSealingKey) return "sealing_key";
  for (const method of state.document.verificationMethod) {
    const key = parseMethodKey(method);
    if (key !== null && (await heldSeed(identity, key)) === null) return "method";
  }
  return null;
}

async function holdsRoot({ rootSeed, nextRootSeed }: Identity, rootKey: Uint8Array): Promise<boolean> {
  for (const seed of [rootSeed, nextRootSeed])
    if (seed !== null && equalBytes(await ed25519PublicKey(seed), rootKey)) return true;
  return false;
}

/** Whether this device sees a state for the first time, and has seen another before. */
async function isNewHere(client: Client, state: KeyState): Promise<boolean> {
  const { memory } = client.known;
  const { root, nonce, hash } = rememberedOf(state);
  const key = `seen/${state.did}`;
  const [before, now] = [await memory.load(key), `${root} ${nonce} ${encodeHex(hash)}`];
  if (before !== now) await memory.save(key, now);
  return before !== null && before !== now;
}

/** After a change that this device has made: what it leads to is no news. */
export async function markSeen(client: Client, did: Identity["did"]): Promise<void> {
  if (isSelfCertifying(did)) await isNewHere(client, await client.trust.prove(did, null));
}
