/**
 * The events that the runtime emits for a call that it accepts, in the runtime's order and with its
 * fields (docs/ledger.md 1.11). The program reads the ledger's state only; the comparison with the
 * runtime compares events too.
 */
import { normalizeAlias } from "../../src/core/codec/did.ts";
import type { Applied, LedgerInput } from "../../src/core/ledger/action-rules.ts";
import { type ActionName, itemsOf } from "../../src/core/ledger/actions.ts";
import {
  intentOfCall,
  type ProofCall,
  type RegistrationCall,
} from "../../src/core/ledger/calls.ts";
import { isRefusal, type LedgerRefusal } from "../../src/core/ledger/refusals.ts";
import { applyCall } from "../../src/core/ledger/rules.ts";

/**
 * `fields` has the texts of the event; the account of a registration is left out, because the
 * record shows it.
 */
export type LedgerEvent = { readonly name: string; readonly fields: readonly string[] };
export type AppliedWithEvents = Applied & { readonly events: readonly LedgerEvent[] };

/** `applyCall`, and what the runtime reports of it. */
export function applyWithEvents(input: LedgerInput): AppliedWithEvents | LedgerRefusal {
  const outcome = applyCall(input);
  return isRefusal(outcome) ? outcome : { ...outcome, events: eventsOf(input, outcome) };
}

const eventNames: Readonly<Record<ActionName, string>> = {
  AddVerificationMethod: "VerificationMethodAdded",
  UpdateVerificationMethod: "VerificationMethodUpdated",
  RemoveVerificationMethod: "VerificationMethodRemoved",
  AddAuthentication: "AuthenticationAdded",
  RemoveAuthentication: "AuthenticationRemoved",
  AddKeyAgreement: "KeyAgreementAdded",
  UpdateKeyAgreement: "KeyAgreementUpdated",
  RemoveKeyAgreement: "KeyAgreementRemoved",
  AddService: "ServiceAdded",
  UpdateService: "ServiceUpdated",
  RemoveService: "ServiceRemoved",
  UpdateRootPubkey: "RootPubkeyUpdated",
  add_alias: "AliasAdded",
  update_alias: "AliasUpdated",
  remove_alias: "AliasRemoved",
  deactivate_did: "DidDeactivated",
  delete_did: "DidDeleted",
};

function eventsOf(input: LedgerInput, applied: Applied): LedgerEvent[] {
  const { call } = input;
  const { did } = call;
  const event = (name: string, ...fields: readonly string[]): LedgerEvent => ({ name, fields });
  switch (call.name) {
    case "register_with_document_proof_signed":
      return [
        event("Registered", did),
        event("DocumentSet", did),
        ...aliasEvents(input, call, applied),
      ];
    case "set_document_with_proof":
      return [event("DocumentSet", did)];
    case "set_alias":
      return [event("AliasSet", did, ...applied.aliases.set)];
    case "set_delivery_policy_links":
      return [event("DeliveryPolicyLinksSet", did)];
    case "set_delivery_policy":
    case "set_tag_policy":
    case "set_persona_policy":
      return applied.policies.map(({ scope, key }) => event("PolicySet", scope, key));
    default:
      return [authorizedEvent(input, call)];
  }
}

/** An alias that a registration can't get is left out of the record, with an event. */
function aliasEvents(input: LedgerInput, call: RegistrationCall, applied: Applied): LedgerEvent[] {
  const { did } = call;
  if (call.alias === null) return [];
  const alias = normalizeAlias(call.alias, input.bounds.aliasBytes);
  if (alias === null) return [{ name: "AliasInvalid", fields: [did] }];
  return [
    { name: applied.aliases.set.length === 0 ? "AliasConflict" : "AliasSet", fields: [did, alias] },
  ];
}

/** Components are named by their ids; keys and links are not named. */
function authorizedEvent(input: LedgerInput, call: ProofCall): LedgerEvent {
  const intent = intentOfCall(call, input.bounds.aliasBytes);
  if (isRefusal(intent)) throw new Error(`an accepted call without an intent: ${intent.error}`);
  const named = Object.values(itemsOf(intent)).flatMap((item) =>
    typeof item === "string" ? [item] : "id" in item ? [item.id] : [],
  );
  return { name: eventNames[intent.action], fields: [call.did, ...named] };
}
