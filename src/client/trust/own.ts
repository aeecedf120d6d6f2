/**
 * What an identity signs about itself, and what it makes of changes that others show it. It signs whole documents only on
 * top of the state that it has proven itself, with the nonce of its own proof: a Directory that puts another document
 * before it gets no signature for it. A nonce is signed for once while the signature is valid. Every key in its record must
 * be one that this device holds or derives.
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
import { aliasesShape, claimsShape, methodKeysShape } from "../base/kept.ts";
import { renderKept } from "../base/shapes.ts";
import { ed25519PublicKey, signEd25519, x25519PublicKey } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import {
  type AgreementChain,
  advanceChain,
  type HeldAgreement,
  heldSeed,
  type Identity,
} from "../keys/keys.ts";
import { authorizationLifeMs, type SubmissionRequest } from "../net/directory.ts";
import { jsonBody, path } from "../net/http.ts";
import { type Client, normalizeName } from "./client.ts";
import { recall } from "./trust.ts";

/** The next document nonce of a proven state. */
export function nextNonce({ steps }: KeyState): bigint {
  return (steps.at(-1) ?? steps[0]).nonce;
}

/** Whether the ledger accepts component calls on top of a state. */
export function takesComponents({ steps, baseRoot, rootKeys }: KeyState): boolean {
  return steps.length <= componentCallsMax && baseRoot === rootKeys.length - 1;
}

/**
 * The ledger refuses what an earlier root key signs, and the claim of its nonce would hold up the next call. Throws
 * `root_replaced`.
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
 * Before a call is signed with a nonce. Two that differ would let a Directory show one to some and the other to others, so
 * the second has to wait until the first has expired: throws `change_pending`.
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
export async function watchOwn(client: Client, identity: Identity, alias: string | null) {
  const { did } = identity;
  const state = isSelfCertifying(did) ? await client.trust.prove(did, null) : null;
  const stranger = state === null ? null : await strangerIn(client, identity, state);
  const changed: (Stranger | "alias" | "log")[] = [];
  if (stranger !== null) changed.push(stranger);
  else if (state !== null && (await isDenied(client, { did, alias: null }))) changed.push("log");
  if (await hasLostAlias(client, did, alias)) changed.push("alias");
  return changed;
}

const ownAliasesMax = 1_000;

/**
 * Whether an alias of this identity is another DID's now. Its aliases are remembered: what a Directory hides later is still
 * watched. One that no one has was removed.
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

/** What a DID or an alias was: what is proven next is believed, and an alias is no longer watched as an own one. */
export async function forget(client: Client, own: Did, target: string): Promise<void> {
  if (target === "log") return (await import("./log.ts")).forgetLogs(client);
  const name = normalizeName(target);
  await client.trust.forget(name);
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

/** Before a change that this device makes: the method's key is not a stranger's, wherever its secret is. */
export async function rememberAddedKey(client: Client, did: Did, publicKey: string): Promise<void> {
  const others = (await loadAddedKeys(client, did)).filter((one) => one !== publicKey);
  const keys = [...others, publicKey].slice(-addedKeysMax);
  await client.known.memory.save(`methods/${did}`, renderKept({ keys }));
}

/** A key of the own record that this device neither holds nor derives, and has not added. */
export async function strangerIn(
  client: Client,
  identity: Identity,
  state: KeyState,
): Promise<Stranger | null> {
  const rootKey = state.rootKeys.at(-1) as Uint8Array;
  if ((await heldSeed({ ...identity, methods: [] }, rootKey)) === null) return "root_key";
  const { holdsPublished } = await reconcileAgreements(identity, state.document, {
    nowMs: Date.now(),
    keptMs: 0,
  });
  if (sealingKeyOf(state.document) !== null && !holdsPublished) return "sealing_key";
  const added = await loadAddedKeys(client, identity.did);
  for (const method of state.document.verificationMethod) {
    const key = parseMethodKey(method);
    if (key === null || added.includes(method.publicKeyMultibase)) continue;
    if ((await heldSeed(identity, key)) === null) return "method";
  }
  return null;
}

// Devices of one identity need not communicate: the next secret is derived from a chain key that they share and that is
// replaced with it. A device that finds an unknown key in the document derives forward until it has that key's secret.
// Two devices that rotate at the same time publish the same key.

/** Ten years of weeks: a device that was offline longer must be linked again. */
const epochsAheadMax = 520;

const opens = async (secret: Uint8Array, publicKey: Uint8Array): Promise<boolean> =>
  equalBytes(await x25519PublicKey(secret), publicKey);

/** The index of the secret of a published key, under its own id or, with `null`, under any; -1 when it is missing. */
export async function findOpening(
  agreements: readonly HeldAgreement[],
  { id, publicKey }: { readonly id: string | null; readonly publicKey: Uint8Array },
): Promise<number> {
  for (const [i, one] of agreements.entries())
    if ((id === null || one.id === id) && (await opens(one.secret, publicKey))) return i;
  return -1;
}

type Reconciled = {
  readonly identity: Identity;
  /** Whether this device has the secret of the published key, possibly after deriving forward. */
  readonly holdsPublished: boolean;
};

/**
 * Updates the secrets of this device from the document: derives the published one when another device replaced the key,
 * sets an end for every superseded one, and destroys those whose end has come.
 */
export async function reconcileAgreements(
  identity: Identity,
  document: DidDocument,
  { nowMs, keptMs }: { readonly nowMs: number; readonly keptMs: number },
): Promise<Reconciled> {
  const published = sealingKeyOf(document);
  const held = published === null ? identity : await derivePublished(identity, published, nowMs);
  const current = published === null ? -1 : await findOpening(held.agreements, published);
  // Those before the current one are superseded; one behind it was derived and is not yet in force.
  const isSuperseded = ({ id, destroyAtMs }: HeldAgreement, i: number) =>
    id === published?.id && i < current && destroyAtMs === null;
  const chain = held.agreements.some(isSuperseded) ? { ...held.chain, sinceMs: nowMs } : held.chain;
  const agreements = held.agreements
    .map((one, i) => (isSuperseded(one, i) ? { ...one, destroyAtMs: nowMs + keptMs } : one))
    .filter(({ destroyAtMs }) => destroyAtMs === null || destroyAtMs > nowMs);
  return { identity: { ...held, agreements, chain }, holdsPublished: current >= 0 };
}

/** With the secrets up to the published one, if that is not here already, and ahead on the chain. */
async function derivePublished(
  identity: Identity,
  { id, publicKey }: { readonly id: string; readonly publicKey: Uint8Array },
  nowMs: number,
): Promise<Identity> {
  if ((await findOpening(identity.agreements, { id: null, publicKey })) >= 0) return identity;
  const agreements: HeldAgreement[] = [...identity.agreements];
  let chain: AgreementChain = identity.chain;
  for (let i = 0; i < epochsAheadMax; i++) {
    const next = advanceChain(chain, nowMs);
    chain = next.chain;
    // Those in between may have messages waiting too.
    agreements.push({ id, secret: next.secret, destroyAtMs: null });
    if (await opens(next.secret, publicKey)) return { ...identity, agreements, chain };
  }
  return identity;
}
