/** What the documentation says of the routes of signed actions. docs/interface.md "Authentication" has the signed texts. */
import type { FaultCode } from "../fault.ts";
import { type ActionName, actionRows } from "../ledger/actions.ts";
import type { DocumentAction } from "../ledger/document-codec.ts";
import { componentOf } from "../trust/proof.ts";

type ActionText = {
  readonly summary: string;
  /** Codes of the action's own rules. */
  readonly codes: readonly FaultCode[];
};

export function actionText(action: ActionName): ActionText {
  return ownTexts[action] ?? componentText(action);
}

/** The lists of a document whose entries have ids. */
const nouns: Readonly<Record<string, string>> = {
  verificationMethod: "a verification method",
  keyAgreement: "a key agreement",
  service: "a service",
};

function componentText(action: ActionName): ActionText {
  const { list } = componentOf(action as DocumentAction);
  const found: FaultCode = "component_not_found";
  switch (actionRows[action].route.method) {
    case "POST":
      return { summary: `Add ${nouns[list]}`, codes: ["component_exists", "document_invalid"] };
    case "PUT":
      return { summary: `Replace ${nouns[list]}`, codes: [found, "document_invalid"] };
    default: {
      const used: FaultCode[] = list === "verificationMethod" ? ["component_in_use"] : [];
      return { summary: `Remove ${nouns[list]}`, codes: [found, ...used] };
    }
  }
}

const ownTexts: { readonly [A in ActionName]?: ActionText } = {
  AddAuthentication: {
    summary: "List a verification method in authentication",
    codes: ["component_not_found", "component_exists", "document_invalid"],
  },
  RemoveAuthentication: {
    summary: "Remove a verification method from authentication",
    codes: ["component_not_found"],
  },
  UpdateRootPubkey: {
    summary: "Rotate the root key; the signed structure is (did, new root key, nonce, valid_until, signer_key_id)",
    codes: ["document_invalid"],
  },
  add_alias: { summary: "Add an alias", codes: ["alias_taken", "alias_exists", "document_invalid"] },
  update_alias: {
    summary: "Rename an alias in its place",
    codes: ["alias_taken", "alias_exists", "alias_not_found"],
  },
  remove_alias: { summary: "Remove an alias", codes: ["alias_not_found"] },
  deactivate_did: { summary: "Deactivate a DID permanently; its record stays", codes: [] },
  delete_did: { summary: "Delete a DID, its aliases and its policies; its counters stay", codes: [] },
};
