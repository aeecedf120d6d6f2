/**
 * The documentation of the routes of signed actions: a summary, the codes of the action's own rules, and an example
 * that a node accepts. Apart from the table in `core/ledger/actions.ts`, because clients load that.
 * Source: interface "Signed DID-document updates", rules section 4.
 */
import { parsePublicKey } from "../codec/bytes.ts";
import type { FaultCode } from "../fault.ts";
import type { Items, RoutedAction } from "../ledger/actions.ts";
import {
  exampleAgreement,
  exampleDid,
  exampleMethod,
  exampleNewKey,
  exampleSecondMethod,
  exampleService,
} from "./schema.ts";

type ActionText = {
  readonly summary: string;
  /** Codes of the action's own rules. */
  readonly codes: readonly FaultCode[];
  /** Its items in an example. A test sends each example to a Directory that holds what it supposes. */
  readonly example: Partial<Items>;
};

export const actionTexts: { readonly [A in RoutedAction]: ActionText } = {
  AddVerificationMethod: {
    summary: "Add a verification method",
    codes: ["component_exists", "document_invalid"],
    example: { verificationMethod: { ...exampleMethod, id: `${exampleDid}#k3` } },
  },
  UpdateVerificationMethod: {
    summary: "Replace a verification method",
    codes: ["component_not_found", "document_invalid"],
    example: { verificationMethod: { ...exampleSecondMethod, publicKeyMultibase: exampleNewKey } },
  },
  RemoveVerificationMethod: {
    summary: "Remove a verification method",
    codes: ["component_not_found", "component_in_use"],
    example: { id: exampleSecondMethod.id },
  },
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
  AddKeyAgreement: {
    summary: "Add a key agreement",
    codes: ["component_exists", "document_invalid"],
    example: { keyAgreement: { ...exampleAgreement, id: `${exampleDid}#x25519-2` } },
  },
  UpdateKeyAgreement: {
    summary: "Replace a key agreement",
    codes: ["component_not_found", "document_invalid"],
    example: { keyAgreement: { ...exampleAgreement, type: "Multikey" } },
  },
  RemoveKeyAgreement: {
    summary: "Remove a key agreement",
    codes: ["component_not_found"],
    example: { id: exampleAgreement.id },
  },
  AddService: {
    summary: "Add a service",
    codes: ["component_exists", "document_invalid"],
    example: {
      service: {
        id: `${exampleDid}#inbox`,
        type: "SvcInboxService",
        serviceEndpoint: ["https://inbox.example"],
        authorization: null,
        priority: 1,
      },
    },
  },
  UpdateService: {
    summary: "Replace a service",
    codes: ["component_not_found", "document_invalid"],
    example: { service: { ...exampleService, serviceEndpoint: ["https://cache2.example"] } },
  },
  RemoveService: { summary: "Remove a service", codes: ["component_not_found"], example: { id: exampleService.id } },
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
