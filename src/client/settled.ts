/**
 * Whether a resolved record shows a change: what `confirm.ts` waits for besides the counter.
 * Source: docs/ledger.md 3.1 ("Confirmation after 202").
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { parsePublicKey } from "../core/codec/ed25519.ts";
import { renderService } from "../core/ledger/document.ts";
import type { Intent } from "../core/ledger/intent.ts";
import type { Resolved } from "./answers.ts";

type Component = { readonly id: string };
type Document = NonNullable<Resolved["document"]>;

export function recordShows(intent: Intent, record: Resolved): boolean {
  const document = record.document;
  switch (intent.action) {
    case "AddVerificationMethod":
    case "UpdateVerificationMethod":
      return holds(document?.verificationMethod, intent.verificationMethod);
    case "AddKeyAgreement":
    case "UpdateKeyAgreement":
      return holds(document?.keyAgreement, intent.keyAgreement);
    case "AddService":
    case "UpdateService":
      return holds(document?.service, { id: intent.service.id, ...renderService(intent.service) });
    case "RemoveVerificationMethod":
    case "RemoveKeyAgreement":
    case "RemoveService":
      return !listOf(document, intent.action).some(({ id }) => id === intent.id);
    case "AddAuthentication":
      return document?.authentication.includes(intent.id) === true;
    case "RemoveAuthentication":
      return document?.authentication.includes(intent.id) === false;
    case "add_alias":
      return record.aliases.includes(intent.alias);
    case "remove_alias":
      return !record.aliases.includes(intent.alias);
    case "update_alias":
      return record.aliases.includes(intent.newAlias);
    case "UpdateRootPubkey": {
      const key = parsePublicKey(record.root_pubkey ?? "");
      return key !== null && equalBytes(key, intent.newRootPubkey);
    }
    case "deactivate_did":
      return record.deactivated;
    default:
      return true;
  }
}

function listOf(document: Document | null, action: string): readonly Component[] {
  if (action === "RemoveVerificationMethod") return document?.verificationMethod ?? [];
  return (action === "RemoveKeyAgreement" ? document?.keyAgreement : document?.service) ?? [];
}

/** The list has a component with the same members, in whatever order. */
function holds(list: readonly Component[] | undefined, wanted: Component): boolean {
  const sorted = (value: object) => JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  return list?.some((component) => component.id === wanted.id && sorted(component) === sorted(wanted)) === true;
}
