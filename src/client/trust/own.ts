/**
 * What an identity signs about itself, and what it makes of changes that others show it. It signs
 * whole documents only on top of the state that it has proven itself, with the nonce of its own
 * proof: a Directory that puts another document before it gets no signature for it. A nonce is
 * signed for once while the signature is valid. Every key in its record must be one that this
 * device holds, or that an own device has added.
 * Source: docs/trust.md "What the SDK signs" and "The own record".
 */
import { blake2b256 } from "#blake2";
import { sha256 } from "#sha256";
import { encodeBase64, equalBytes, renderPublicKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import {
  type CounterName,
  type DidDocument,
  parseMethodKey,
  renderDocument,
  sealingKeyOf,
} from "../../core/ledger/account.ts";
import {
  boundDocumentMessage,
  encodeDidDocument,
  renderProofTimestamp,
} from "../../core/ledger/document-codec.ts";
import { componentCallsMax, type KeyState } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { inOrder } from "../../core/std/order.ts";
import { attempt, ClientError, localError, orNull } from "../base/failure.ts";
import {
  array,
  integer,
  keptBytes32,
  keptCounter,
  object,
  renderKept,
  text,
} from "../base/shapes.ts";
import { withEnds } from "../keys/agreements.ts";
import { ed25519PublicKey, signEd25519, x25519PublicKey } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { type HeldAgreement, heldSeed, type Identity, nameOfSeed } from "../keys/keys.ts";
import { authorizationLifeMs, type SubmissionRequest } from "../net/directory.ts";
import { jsonBody, path } from "../net/http.ts";
import { type Client, normalizeName } from "./client.ts";
import { bundleAt, recall } from "./trust.ts";

/** Calls that were signed and may still be accepted. */
const claimsShape = object({
  claims: array(object({ nonce: keptCounter, sha256: keptBytes32, untilMs: integer })),
});
const aliasesShape = object({ aliases: array(text) });
const methodKeysShape = object({ keys: array(text) });

/** The next document nonce of a proven state. */
export function nextNonce({ steps }: KeyState): bigint {
  return (steps.at(-1) ?? steps[0]).nonce;
}

/** Whether the ledger accepts component calls on top of a state. */
export function takesComponents({ steps, baseRoot, rootKeys }: KeyState): boolean {
  return steps.length <= componentCallsMax && baseRoot === rootKeys.length - 1;
}

/**
 * The ledger refuses what an earlier root key signs, and the claim of its nonce would hold up the
 * next call. Throws `root_replaced`.
 */
export async function demandPresentRoot(state: KeyState, rootSeed: Uint8Array): Promise<void> {
  const { did, rootKeys } = state;
  if (!equalBytes(rootKeys.at(-1) as Uint8Array, await ed25519PublicKey(rootSeed)))
    throw localError("root_replaced", `the root key of ${did} was replaced by another device`);
}

type WholeDocument = {
  readonly document: DidDocument;
  readonly rootSeed: Uint8Array;
  readonly nowMs: number;
};

/** The replacement of the whole document of a proven state. */
export async function signDocument(
  client: Client,
  state: KeyState,
  whole: WholeDocument,
): Promise<SubmissionRequest> {
  const { did, genesisHash } = state;
  const { document, rootSeed, nowMs } = whole;
  await demandPresentRoot(state, rootSeed);
  const docBlob = encodeDidDocument(document);
  const [nonce, expiryMs] = [nextNonce(state), BigInt(nowMs + authorizationLifeMs)];
  await claimNonce(client.known.memory, did, {
    counter: "document",
    nonce,
    content: docBlob,
    nowMs,
  });
  const message = boundDocumentMessage({
    did,
    documentHash: blake2b256(docBlob),
    nonce,
    expiryMs,
    genesisHash,
  });
  const body = {
    did,
    document: renderDocument(document),
    timestamp: renderProofTimestamp(nonce, expiryMs, "v3"),
    pubkey: renderPublicKey(await ed25519PublicKey(rootSeed)),
    signature: encodeBase64(await signEd25519(message, rootSeed)),
  };
  return { method: "PUT", path: path`/dids/${did}/document/proof`, body: jsonBody(body) };
}

type Claim = {
  readonly counter: CounterName;
  readonly nonce: bigint;
  /** What the call changes: a repeat of it may be signed again. */
  readonly content: Uint8Array;
  readonly nowMs: number;
};

/** Of two claims at once, the second sees the first. */
const claims = inOrder<TextStore>();

/**
 * Before a call is signed with a nonce. Two that differ would let a Directory show one to
 * some and the other to others, so the second has to wait until the first has expired:
 * throws `change_pending`.
 */
export function claimNonce(memory: TextStore, did: Did, claim: Claim): Promise<void> {
  return claims(memory, () => addClaim(memory, did, claim));
}

async function addClaim(
  memory: TextStore,
  did: Did,
  { counter, nonce, content, nowMs }: Claim,
): Promise<void> {
  const key = `signed/${counter}/${did}`;
  const saved = (await recall(memory, key, claimsShape))?.claims ?? [];
  const valid = saved.filter(({ untilMs }) => untilMs > nowMs);
  const hash = sha256(content);
  const other = valid.find((one) => one.nonce === nonce && !equalBytes(one.sha256, hash));
  if (other !== undefined) {
    const seconds = Math.ceil((other.untilMs - nowMs) / 1_000);
    throw localError(
      "change_pending",
      `another change of ${did} was signed and may still be accepted: try again in ${seconds} s`,
    );
  }
  const mine = { nonce, sha256: hash, untilMs: nowMs + authorizationLifeMs };
  await memory.save(key, renderKept({ claims: [...valid, mine] }));
}

/** A key of the own record that this device can't explain. */
export type Stranger = "root_key" | "sealing_key" | "method";

/** What somebody else has changed about an identity; an `alias` is watched too. */
export async function watchOwn(
  client: Client,
  identity: Identity,
  { alias, shared }: { readonly alias: string | null; readonly shared: readonly string[] },
) {
  const { did } = identity;
  const state = isSelfCertifying(did) ? await client.trust.prove(did, null) : null;
  const stranger = state === null ? null : await strangerIn(client, identity, state, shared);
  const changed: (Stranger | "alias" | "log")[] = [];
  if (stranger !== null) changed.push(stranger);
  else if (state !== null && (await isDenied(client, { did, alias: null }))) changed.push("log");
  if (await hasLostAlias(client, did, alias)) changed.push("alias");
  return changed;
}

const ownAliasesMax = 1_000;

/**
 * Whether an alias of this identity is another DID's now. Its aliases are remembered: what a
 * Directory hides later is still watched. One that no one has was removed.
 */
async function hasLostAlias(client: Client, did: Did, given: string | null): Promise<boolean> {
  const { aliases } = await client.directory.resolve(did);
  const names = new Set([
    ...(given === null ? [] : [given]),
    ...(await loadOwnAliases(client, did)),
    ...aliases,
  ]);
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
  return (await recall(known.memory, `aliases/${did}`, aliasesShape))?.aliases ?? [];
}

async function saveOwnAliases(
  { known }: Client,
  did: Did,
  aliases: readonly string[],
): Promise<void> {
  await known.memory.save(`aliases/${did}`, renderKept({ aliases }));
}

/**
 * What a DID or an alias was: what is proven next is believed, and an alias is no longer watched as
 * an own one. `log` and `operator` are the logs, and whom the node named as its operator.
 */
export async function forget(client: Client, own: Did, target: string): Promise<void> {
  if (target === "log") return (await import("./log.ts")).forgetLogs(client);
  if (target === "operator")
    return client.trust.forget((await import("./operator.ts")).operatorName(client));
  const name = normalizeName(target);
  await client.trust.forget(name);
  await client.known.memory.save(bundleAt(name), null);
  await forgetOwnAlias(client, own, name);
}

/** After this identity has given it up: its next holder is not a stranger. */
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
  const logged = await attempt(() => isLogged(client, subject, true));
  if (!(logged instanceof ClientError)) return false;
  if (logged.code !== "not_logged") client.known.doubt(logged);
  return logged.code === "not_logged";
}

const addedKeysMax = 100;

export async function loadAddedKeys({ known }: Client, did: Did): Promise<readonly string[]> {
  return (await recall(known.memory, `methods/${did}`, methodKeysShape))?.keys ?? [];
}

/** Those keys and no others: the last ones, if there are too many. */
export async function saveAddedKeys(
  { known }: Client,
  did: Did,
  added: readonly string[],
): Promise<void> {
  const keys = added.slice(-addedKeysMax);
  await known.memory.save(`methods/${did}`, renderKept({ keys }));
}

/**
 * Before a change that this device makes: the method's key is not a
 * stranger's, wherever its secret is.
 */
export async function rememberAddedKey(client: Client, did: Did, publicKey: string): Promise<void> {
  const others = (await loadAddedKeys(client, did)).filter((one) => one !== publicKey);
  await saveAddedKeys(client, did, [...others, publicKey]);
}

/**
 * A key of the own record that this device doesn't hold, and that no own device has added:
 * others have added `shared`.
 */
export async function strangerIn(
  client: Client,
  identity: Identity,
  state: KeyState,
  shared: readonly string[] = [],
): Promise<Stranger | null> {
  const rootKey = state.rootKeys.at(-1) as Uint8Array;
  if ((await heldSeed({ ...identity, methods: [] }, rootKey)) === null) return "root_key";
  const shown = sealingKeyOf(state.document);
  if (shown !== null && (await findOpening(identity.agreements, shown)) === null)
    return "sealing_key";
  const added = [...shared, ...(await loadAddedKeys(client, identity.did))];
  for (const method of state.document.verificationMethod) {
    const key = parseMethodKey(method);
    if (key === null || added.includes(method.publicKeyMultibase)) continue;
    if ((await heldSeed(identity, key)) === null) return "method";
  }
  return null;
}

const opens = async (secret: Uint8Array, publicKey: Uint8Array): Promise<boolean> =>
  equalBytes(await x25519PublicKey(secret), publicKey);

/** The secret of a published key, under its own id; `null` when it is missing. */
export async function findOpening(
  agreements: readonly HeldAgreement[],
  { id, publicKey }: { readonly id: string; readonly publicKey: Uint8Array },
): Promise<HeldAgreement | null> {
  for (const one of agreements)
    if (one.id === id && (await opens(one.secret, publicKey))) return one;
  return null;
}

type Reconciled = {
  readonly identity: Identity;
  /** The published one; `null` when this device lacks it. */
  readonly published: HeldAgreement | null;
};

/**
 * Updates the secrets of this device from the document: which one is published,
 * and when the others end.
 */
export async function reconcileAgreements(
  identity: Identity,
  document: DidDocument,
  { nowMs, keptMs }: { readonly nowMs: number; readonly keptMs: number },
): Promise<Reconciled> {
  const shown = sealingKeyOf(document);
  const found = shown === null ? null : await findOpening(identity.agreements, shown);
  if (found === null) return { identity, published: null };
  const { nextRootSeed } = identity;
  const next = nextRootSeed === null ? null : nameOfSeed(nextRootSeed);
  const same = identity.agreements.filter(({ id }) => id === found.id);
  const kept = new Map(
    withEnds(same, found, { nowMs, keptMs, next }).map((one) => [one.secret, one]),
  );
  const agreements = identity.agreements.flatMap((one) =>
    one.id === found.id ? (kept.get(one.secret) ?? []) : one,
  );
  const published = agreements.find(({ secret }) => secret === found.secret) ?? null;
  // Another device has published it.
  const sealingSinceMs = found.destroyAtMs === null ? identity.sealingSinceMs : nowMs;
  return { identity: { ...identity, agreements, sealingSinceMs }, published };
}
