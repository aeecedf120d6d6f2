/**
 * The documentation of what clients sign: each form once, with the text of a worked example and its signature, which
 * verify, and the routes of signed actions. OpenAPI shows the example at every signed operation.
 * Source: interface "Authentication" and "Signed DID-document updates", docs/ledger.md 1 and 3, rules sections 2, 4 and 10.
 */
import { decodeUtf8, encodeBase64, encodeHex0x, parsePublicKey, utf8 } from "../codec/bytes.ts";
import { createSigner } from "../codec/crypto.ts";
import type { JsonObject } from "../codec/json.ts";
import type { FaultCode } from "../fault.ts";
import { actionRows, type Intent, type Items, type RoutedAction } from "../ledger/actions.ts";
import { rootKeyId } from "../ledger/document.ts";
import { encodeAuthorization } from "../ledger/structures.ts";
import {
  encodeRetrievalProof,
  encodeSenderText,
  encodeUpdateProof,
  ledgerHeader,
  type RetrievalOperation,
  retrievalHeaders,
  updateHeaders,
} from "../message/proof.ts";
import {
  exampleAgreement,
  exampleDid,
  exampleKey,
  exampleMethod,
  exampleNewKey,
  exampleSecondMethod,
  exampleSeed,
  exampleService,
  exampleTime,
} from "./schema.ts";

/** What is signed where, beyond what the example of an operation shows: a text's lines are those of the example. */
export const schemes = {
  registrationProof: `Signature of a registration: body, with timestamp; the root key is root_pubkey, else the first verification method.
version 1: <did>|<timestamp>
version 2: svc:register:v2| and SCALE (did bytes, option alias bytes, root key bytes, BLAKE2b-256 of the document's SCALE, nonce u64 = 0, expiry u64 in ms)
version 3: svc:register:v3| and the same, then genesis_hash 32 bytes, and 01 with operator_account 32 bytes
Versions 2 and 3 are the timestamps v2:0:<expiry in ms> and v3:0:<expiry in ms>, at most one hour ahead; they cover the document. Version 3 also binds the ledger and the Directory; GET /limits names both, and the versions that it accepts.`,
  documentProof: `Signature of a whole document: body, with timestamp and pubkey.
version 1: svc:set_document:v1|<did>| and the 32 bytes of BLAKE2b-256 of the document's SCALE and |<timestamp>
version 2: svc:set_document:v2| and SCALE (did bytes, hash 32 bytes, nonce u64, expiry u64 in ms)
version 3: svc:set_document:v3| and the same, then genesis_hash 32 bytes
POST /dids/{did}/prepare returns the bytes for clients without a SCALE codec.`,
  authorization: `Signature of a change of components, aliases or the root key: body, with nonce, valid_until, signer_key_id, canonical_payload.
SCALE of (did bytes, action u8, option verification method, option key agreement, option service, option component id, nonce u64, valid_until u64 in ms, signer_key_id bytes)
root key: (did bytes, new root key 32 bytes, nonce u64, valid_until u64, signer_key_id bytes)
version 3: svc:authorization:v3: and document, alias or root_pubkey (control for deactivation and deletion) and | and genesis_hash 32 bytes and one of these
authorization_proofs of GET /limits lists whether version 3, the plain bytes or both are accepted. The signature covers the decoded bytes of canonical_payload, never their text. nonce is the counter of GET /dids/{did}/nonces. POST /dids/{did}/prepare gives the bytes.`,
  updateProof: `Proof of a change of primary alias, policy links or policies: headers ${[...Object.values(updateHeaders), ledgerHeader].join(", ")}.
The nonce is 8 to 128 visible ASCII characters, never used twice; body_sha256 covers the body as sent; ledger is genesis_hash of GET /limits. Lines are joined by line feeds, without one at the end. Without X-Ledger the first line ends in v1 and the last one is left out; a self-certifying DID needs X-Ledger.`,
  senderSignature: `Signature of an envelope by its sender, which is optional: envelope, from, sender_key_id, sender_signature.
Values are as sent, and empty when absent. header_sha256 is lower hex of SHA-256 over the JCS form (RFC 8785) of the header's members, or empty; payload_sha256 over that of payload. The key must be listed in authentication of the sender's document.`,
  retrievalProof: `Proof of a retrieval or an acknowledgement: headers ${Object.values(retrievalHeaders).join(", ")}; of an acknowledgement, the body.
operation is pull, chunks, summary, pull_message, stream, ack or connect; device_id is X-Device-Id or empty; cache_endpoint is as in the document; the nonce is 8 to 128 visible ASCII characters, never used twice; subject is * or what is asked for, for an acknowledgement the ids, sorted and joined by commas. Lines are joined by line feeds, without one at the end.`,
} as const;

export type SchemeName = keyof typeof schemes;

/** A signed text as documents show it. The key is `publicKeyMultibase` of the examples' identity. */
export type SignedExample = {
  readonly scheme: SchemeName;
  /** The signed bytes, and the same as text where they are text. */
  readonly hex: string;
  readonly text: string | null;
  readonly public_key_multibase: string;
  readonly signature_b64: string;
  /** The headers that carry this proof. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The body that carries it, or that it covers, where the operation's own example does not. */
  readonly body?: unknown;
};

/**
 * What an operation needs signed; with `optional`, it is also accepted unsigned. Examples are made when they are shown.
 */
export type Signed = {
  readonly scheme: SchemeName;
  readonly optional?: true;
  readonly example: () => SignedExample;
};

const sign = createSigner(exampleSeed) as (message: Uint8Array) => Uint8Array;
const exampleNonce = "0190b3b4-0000-7000-8000-0000000000cc";

function signedExample(scheme: SchemeName, message: Uint8Array, more: Partial<SignedExample> = {}): SignedExample {
  const decoded = decodeUtf8(message);
  const text = decoded !== null && /^[\x20-\x7e\n]*$/.test(decoded) ? decoded : null;
  return {
    scheme,
    hex: encodeHex0x(message),
    text,
    public_key_multibase: exampleKey,
    signature_b64: encodeBase64(sign(message)),
    ...more,
  };
}

/** The proof of a retrieval or an acknowledgement for the recipient of the examples. */
export function exampleRetrieval(operation: RetrievalOperation, subject: string) {
  const claims = {
    operation,
    did: exampleDid,
    deviceId: "",
    serviceId: exampleService.id,
    endpoint: exampleService.serviceEndpoint[0] as string,
    keyId: exampleMethod.id,
    timestamp: exampleTime,
    nonce: exampleNonce,
    subject,
  };
  const message = encodeRetrievalProof(claims);
  return { claims, message, signature: encodeBase64(sign(message)) };
}

function headersOf<M extends string>(names: Readonly<Record<M, string>>, values: Readonly<Record<NoInfer<M>, string>>) {
  const members = Object.keys(names) as M[];
  return Object.fromEntries(members.map((member) => [names[member], values[member]]));
}

/** A read whose proof travels in headers. */
export function signedRead(operation: RetrievalOperation, subject: string): Signed {
  return {
    scheme: "retrievalProof",
    example: () => {
      const { claims, message, signature } = exampleRetrieval(operation, subject);
      return signedExample("retrievalProof", message, {
        headers: headersOf(retrievalHeaders, { ...claims, signature }),
      });
    },
  };
}

/** An acknowledgement: the proof is in the body that the operation shows. */
export function signedAck(subject: string): Signed {
  return {
    scheme: "retrievalProof",
    example: () => signedExample("retrievalProof", exampleRetrieval("ack", subject).message),
  };
}

/** An update whose proof travels in headers and covers the body. */
export function signedUpdate(operation: string, body: unknown): Signed {
  return {
    scheme: "updateProof",
    example: () => {
      const sent = JSON.stringify(body);
      const claims = { operation, did: exampleDid, keyId: rootKeyId, timestamp: exampleTime, nonce: exampleNonce };
      const ledger = `0x${"11".repeat(32)}`;
      const message = encodeUpdateProof({ ...claims, ledger, body: utf8(sent) });
      const proof = headersOf(updateHeaders, { ...claims, signature: encodeBase64(sign(message)) });
      const headers = { ...proof, [ledgerHeader]: ledger };
      return signedExample("updateProof", message, { headers, body: sent });
    },
  };
}

/** An envelope with the signature of its sender. */
export function signedEnvelope(envelope: JsonObject): Signed {
  return {
    scheme: "senderSignature",
    optional: true,
    example: () => {
      const named: JsonObject = { ...envelope, from: exampleDid, sender_key_id: exampleMethod.id };
      const message = encodeSenderText(named);
      const body = { ...named, sender_signature: encodeBase64(sign(message)) };
      return signedExample("senderSignature", message, { body });
    },
  };
}

/** A registration, a document or an authorization: the signature is in the body that the operation shows. */
export function signedBytes(scheme: SchemeName, message: () => Uint8Array): Signed {
  return { scheme, example: () => signedExample(scheme, message()) };
}

/** The authorization of an action on the terms of the examples. */
export function signedIntent(intent: Intent, validUntilMs: bigint): Signed {
  const terms = { nonce: 0n, validUntilMs, signerKeyId: rootKeyId };
  return signedBytes("authorization", () => encodeAuthorization(intent, terms));
}

// -------------------------------------------------------------------------------------- the routes of signed actions

type ActionText = {
  readonly summary: string;
  /** Codes of the action's own rules. */
  readonly codes: readonly FaultCode[];
  /** Its items in an example. A test sends each example to a Directory that holds what it supposes. */
  readonly example: Partial<Items>;
};

export function actionText(action: RoutedAction): ActionText {
  return ownTexts[action] ?? componentText(action);
}

/** The lists of a document whose entries have ids, and the entry that the example of each call supposes. */
const components: Readonly<Record<string, { readonly noun: string; readonly present: { readonly id: string } }>> = {
  verificationMethod: { noun: "a verification method", present: exampleSecondMethod },
  keyAgreement: { noun: "a key agreement", present: exampleAgreement },
  service: { noun: "a service", present: exampleService },
};

function componentText(action: RoutedAction): ActionText {
  const { change, route } = actionRows[action];
  const list = change?.list ?? "";
  const { noun, present } = components[list] as (typeof components)[string];
  const found: FaultCode = "component_not_found";
  switch (route?.method) {
    case "POST": {
      const example = { [list]: { ...present, id: `${exampleDid}#new` } };
      return { summary: `Add ${noun}`, codes: ["component_exists", "document_invalid"], example };
    }
    case "PUT":
      return { summary: `Replace ${noun}`, codes: [found, "document_invalid"], example: { [list]: present } };
    default: {
      const used: FaultCode[] = list === "verificationMethod" ? ["component_in_use"] : [];
      return { summary: `Remove ${noun}`, codes: [found, ...used], example: { id: present.id } };
    }
  }
}

const ownTexts: { readonly [A in RoutedAction]?: ActionText } = {
  AddAuthentication: {
    summary: "List a verification method in authentication",
    codes: ["component_not_found", "component_exists", "document_invalid"],
    example: { id: exampleSecondMethod.id },
  },
  RemoveAuthentication: {
    summary: "Remove a verification method from authentication",
    codes: ["component_not_found"],
    example: { id: exampleMethod.id },
  },
  UpdateRootPubkey: {
    summary: "Rotate the root key; the signed structure is (did, new root key, nonce, valid_until, signer_key_id)",
    codes: ["document_invalid"],
    example: { newRootPubkey: parsePublicKey(exampleNewKey) as Uint8Array },
  },
  add_alias: {
    summary: "Add an alias",
    codes: ["alias_taken", "alias_exists", "document_invalid"],
    example: { alias: "team.two" },
  },
  update_alias: {
    summary: "Rename an alias in its place",
    codes: ["alias_taken", "alias_exists", "alias_not_found"],
    example: { oldAlias: "team.one", newAlias: "team.three" },
  },
  remove_alias: { summary: "Remove an alias", codes: ["alias_not_found"], example: { alias: "team.one" } },
  deactivate_did: { summary: "Deactivate a DID permanently; its record stays", codes: [], example: {} },
  delete_did: { summary: "Delete a DID, its aliases and its policies; its counters stay", codes: [], example: {} },
};

// ----------------------------------------------------------------------------------------------------------- sealing

/** The message that the examples send, store and retrieve. */
export const exampleMessageId = "6f1c1f1e-8a54-4a0c-9d0e-000000000000";

/** A payload that opens: the first vector of `test/vectors/sealed/`, as the envelopes of all examples carry it. */
export const examplePayload = {
  profile: "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1",
  key_id: exampleAgreement.id,
  ephemeral_x25519_b64: "az1Xdi+LrbaUM/nG0GD4X15ca2gDqBbRQcB19jVBrRA=",
  nonce_b64: "yMjIyMjIyMjIyMjI",
  ciphertext_b64: [
    "YUmMm99iBxGmGWNEhwt9Wtbk4pI2YvohhcSl5c/WvFC8CIQ9sFwcTelfPVBC7FRUGmcFyzsvbYO6DRxi5PhGMqKv8f",
    "41KIyP6KK6xkm1UNK3a78zfB8oJJjpzY/LiEfXTfAe4KDPWLpfAz/E8I7RKfxTB674dIZhOk33mqrisj9hOVM0ftNh",
    "wh9pI7FwTIeFvY59lsMOomhe2SxY4HBm9MzOS5AE4KlrsDeGILvWtGgx135my43OMN0K/ot8H33D8oUYk3C810TTGH",
    "7slg==",
  ].join(""),
};
