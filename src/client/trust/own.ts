/**
 * What an identity signs about itself, and what it makes of changes that others show it. It signs whole documents only on
 * top of the state that it has proven itself, with the nonce of its own proof: a Directory that puts another document
 * before it gets no signature for it. A nonce is signed for once while the signature is valid.
 * Source: docs/trust.md "What the SDK signs".
 */
import { blake2b256 } from "#blake2";
import { sha256 } from "#sha256";
import { encodeBase64, encodeHex, renderPublicKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { type CounterName, type DidDocument, renderDocument } from "../../core/ledger/account.ts";

import { boundDocumentMessage, encodeDidDocument, renderProofTimestamp } from "../../core/ledger/document-codec.ts";
import { componentCallsMax, type KeyState } from "../../core/trust/proof.ts";
import { claimsShape, parseShaped } from "../answers.ts";
import type { Client } from "../client.ts";
import { ed25519PublicKey, signEd25519 } from "../crypto.ts";
import { authorizationLifeMs, type Submission } from "../directory.ts";
import { inOrder, jsonBody, localError, path } from "../http.ts";
import type { MemoryStore } from "./memory.ts";

/** The next document nonce of a proven state. */
export function nextNonce({ steps }: KeyState): bigint {
  return (steps.at(-1) ?? steps[0]).nonce;
}

/** Whether the ledger accepts component calls on top of a state. */
export function takesComponents({ steps, baseRoot, rootKeys }: KeyState): boolean {
  return steps.length <= componentCallsMax && baseRoot === rootKeys.length - 1;
}

type WholeDocument = { readonly document: DidDocument; readonly rootSeed: Uint8Array; readonly nowMs: number };

/** The replacement of the whole document of a proven state. */
export async function signDocument(client: Client, state: KeyState, whole: WholeDocument): Promise<Submission> {
  const { did, genesisHash } = state;
  const { document, rootSeed, nowMs } = whole;
  const docBlob = encodeDidDocument(document);
  const [nonce, expiryMs] = [nextNonce(state), BigInt(nowMs + authorizationLifeMs)];
  await claimNonce(client.known.memory, did, { counter: "document", nonce, content: docBlob, nowMs });
  const message = boundDocumentMessage({ did, documentHash: blake2b256(docBlob), nonce, expiryMs, genesisHash });
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
const claims = inOrder<MemoryStore>();

/**
 * Before a call is signed with a nonce. Two that differ would let a Directory show one to some and the other to others, so
 * the second has to wait until the first has expired, whatever other nonces a Directory names in between: throws
 * `change_pending`.
 */
export function claimNonce(memory: MemoryStore, did: Did, claim: Claim): Promise<void> {
  return claims(memory, () => addClaim(memory, did, claim));
}

async function addClaim(memory: MemoryStore, did: Did, { counter, nonce, content, nowMs }: Claim): Promise<void> {
  const key = `signed/${counter}/${did}`;
  const saved = parseShaped((await memory.load(key)) ?? "", claimsShape)?.claims ?? [];
  const valid = saved.filter(({ until_ms: untilMs }) => untilMs > nowMs);
  const hash = encodeHex(sha256(content));
  const other = valid.find((one) => one.nonce === String(nonce) && one.sha256 !== hash);
  if (other !== undefined) {
    const seconds = Math.ceil((other.until_ms - nowMs) / 1_000);
    throw localError(
      "change_pending",
      `another change of ${did} was signed and may still be accepted: try again in ${seconds} s`,
    );
  }
  const mine = { nonce: String(nonce), sha256: hash, until_ms: nowMs + authorizationLifeMs };
  await memory.save(key, JSON.stringify({ claims: [...valid, mine] }));
}
