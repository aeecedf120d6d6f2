/**
 * What the documentation of signed operations needs: the signatures of its examples, which verify, and what it says of the
 * routes of signed actions. docs/interface.md "Authentication" has the texts that clients sign.
 */
import { encodeBase64, parsePublicKey } from "../codec/bytes.ts";
import { createSigner } from "../codec/native.ts";
import type { FaultCode } from "../fault.ts";
import { type ActionName, actionRows, type Items } from "../ledger/actions.ts";
import type { DocumentAction } from "../ledger/document-codec.ts";
import { encodeRetrievalProof, type RetrievalOperation } from "../message/proof.ts";
import { componentOf } from "../trust/proof.ts";
import {
  exampleAgreement,
  exampleDid,
  exampleMethod,
  exampleNewKey,
  exampleSecondMethod,
  exampleSeed,
  exampleService,
  exampleTime,
} from "./schema.ts";

const sign = createSigner(exampleSeed) as (message: Uint8Array) => Uint8Array;
const exampleNonce = "0190b3b4-0000-7000-8000-0000000000cc";

/** The signature of an example, by the identity of the examples. */
export function exampleSignature(message: Uint8Array): string {
  return encodeBase64(sign(message));
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
  return { claims, signature: exampleSignature(encodeRetrievalProof(claims)) };
}

// -------------------------------------------------------------------------------------- the routes of signed actions

type ActionText = {
  readonly summary: string;
  /** Codes of the action's own rules. */
  readonly codes: readonly FaultCode[];
  /** Its items in an example. A test sends each example to a Directory that holds what it supposes. */
  readonly example: Partial<Items>;
};

export function actionText(action: ActionName): ActionText {
  return ownTexts[action] ?? componentText(action);
}

/** The lists of a document whose entries have ids, and the entry that the example of each call supposes. */
const components: Readonly<Record<string, { readonly noun: string; readonly present: { readonly id: string } }>> = {
  verificationMethod: { noun: "a verification method", present: exampleSecondMethod },
  keyAgreement: { noun: "a key agreement", present: exampleAgreement },
  service: { noun: "a service", present: exampleService },
};

function componentText(action: ActionName): ActionText {
  const { list } = componentOf(action as DocumentAction);
  const { noun, present } = components[list] as (typeof components)[string];
  const found: FaultCode = "component_not_found";
  switch (actionRows[action].route.method) {
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

const ownTexts: { readonly [A in ActionName]?: ActionText } = {
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
