/**
 * The calls of the ledger: as values, in SCALE as the body of an extrinsic (pallet index, call index, arguments in the
 * order of the runtime), which the embedded ledger keeps pending calls in as well; and what a call asks for, names and
 * claims. The calls that a DID key signs are made of the table in `actions.ts`.
 * Source: docs/ledger.md 1.6 and 1.7, rules section 4 ("Idempotence", "Pending updates").
 */
import { concatBytes, equalBytes } from "../codec/bytes.ts";
import { aliasBytesMax, type Did, didBytesMax, isDid, normalizeAlias, trimAscii } from "../codec/did.ts";
import {
  byteVector,
  type Codec,
  decodeWith,
  encodeWith,
  formed,
  option,
  structure,
  text,
  vector,
} from "../codec/scale.ts";
import { type Fault, fault } from "../fault.ts";
import {
  type CounterName,
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  deliveryPolicyCodec,
  longerThan,
  type PersonaPolicy,
  personaPolicyCodec,
  scaleBounds,
  serviceCodec,
  verificationMethodCodec,
} from "./account.ts";
import {
  type ActionName,
  actionNames,
  actionRows,
  actions,
  type ControlAction,
  type Intent,
  type IntentOf,
  type ItemName,
  itemsOf,
} from "./actions.ts";
import { parseProofTimestamp } from "./document-codec.ts";
import { type LedgerRefusal, refuse } from "./refusals.ts";
import { decodePayload } from "./structures.ts";

// ------------------------------------------------------------------------------------------------- values

/** What every call signed by a DID key has: the SCALE payload, its signature, who signed. */
export type SignedPayload = {
  readonly signedPayload: Uint8Array;
  readonly signature: Uint8Array;
  readonly signerKeyId: string;
};

/** The actions whose items are arguments of their call. */
type ArgumentAction = Exclude<ActionName, ControlAction>;
type ArgumentCall = {
  [A in ArgumentAction]: { readonly name: (typeof actions)[A]["call"] } & Omit<IntentOf<A>, "action"> & SignedPayload;
}[ArgumentAction];

/** On the wire the DID is inside the payload; it is repeated here so that every call names its DID. */
type ControlCall = { readonly name: "apply_control_with_proof"; readonly did: Did } & SignedPayload;

/** A call that a DID key authorizes. */
export type ProofCall = ArgumentCall | ControlCall;

export type RegistrationCall = {
  readonly name: "register_with_document_proof_signed";
  readonly did: Did;
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly signature: Uint8Array;
  readonly docBlob: Uint8Array;
};

export type DocumentCall = {
  readonly name: "set_document_with_proof";
  readonly did: Did;
  readonly docBlob: Uint8Array;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly signature: Uint8Array;
};

/** Calls without a proof: the operator's account makes them, and must own the record. */
export type OwnerCall =
  | { readonly name: "set_alias"; readonly did: Did; readonly alias: string }
  | ({ readonly name: "set_delivery_policy_links"; readonly did: Did } & DeliveryPolicyLinks)
  | { readonly name: "set_delivery_policy"; readonly did: Did; readonly policy: DeliveryPolicy }
  /** Keyed by a DID-shaped tag: only a tag that is a registered DID can have a policy. */
  | { readonly name: "set_tag_policy"; readonly did: Did; readonly policy: DeliveryPolicy }
  | { readonly name: "set_persona_policy"; readonly did: Did; readonly policy: PersonaPolicy };

export type LedgerCall = RegistrationCall | DocumentCall | ProofCall | OwnerCall;
export type LedgerCallName = LedgerCall["name"];

const actionsByCall = new Map<string, ActionName>(actionNames.map((action) => [actionRows[action].call, action]));

/** The action that a call is for. */
export function actionOfCall(call: Exclude<ProofCall, ControlCall>): ArgumentAction {
  return actionsByCall.get(call.name) as ArgumentAction;
}

/** The runtime call for an authorization. */
export function callOfIntent(intent: Intent, signed: SignedPayload): ProofCall {
  const { signedPayload, signature, signerKeyId } = signed;
  const { call } = actionRows[intent.action];
  return { name: call, did: intent.did, ...itemsOf(intent), signedPayload, signature, signerKeyId } as ProofCall;
}

/**
 * What a call asks for. An alias that has no normal form and a control payload that can't be read are refused;
 * whether the payload agrees is not checked here.
 */
export function intentOfCall(call: ProofCall, aliasBytes: number = aliasBytesMax): Intent | LedgerRefusal {
  const { did } = call;
  if (call.name === "apply_control_with_proof") {
    const payload = decodePayload("control", call.signedPayload);
    if (payload === null) return refuse("InvalidControlPayload");
    return { action: payload.action, did } as Intent;
  }
  const action = actionOfCall(call);
  const values: Partial<Record<ItemName, unknown>> = call;
  const intent: Record<string, unknown> = { action, did };
  for (const item of actions[action].items) {
    const value = aliasItems.has(item) ? ledgerAlias(values[item] as string, aliasBytes) : values[item];
    if (aliasItems.has(item) && typeof value !== "string") return value as LedgerRefusal;
    intent[item] = value;
  }
  return intent as Intent;
}

const aliasItems: ReadonlySet<ItemName> = new Set(["alias", "oldAlias", "newAlias"]);

/** The normal form of an alias argument, or the ledger's name for what is wrong with it: length comes first. */
export function ledgerAlias(text: string, bytesMax: number): string | LedgerRefusal {
  const alias = normalizeAlias(text, bytesMax);
  if (alias !== null) return alias;
  return refuse(longerThan(trimAscii(text), bytesMax) ? "AliasTooLong" : "InvalidAlias");
}

// -------------------------------------------------------------------------------------------------- SCALE

/** Pallets by their name on a chain, and the index that the first byte of a call has here. */
const pallets = { DidRegistry: 8, DeliveryPolicy: 9 } as const;
export type PalletName = keyof typeof pallets;

/** An encoded call is at most this long; nothing that the Directory accepts comes near. */
const callBytesMax = 65_536;

type Arguments<N extends LedgerCallName> = Omit<Extract<LedgerCall, { readonly name: N }>, "name">;
type CallLayout = { readonly pallet: PalletName; readonly index: number; readonly codec: Codec<object> };

/** Call arguments are unbounded byte vectors in the runtime; the bound of the whole call holds for them. */
const argument = text(callBytesMax);
const bytes = byteVector(callBytesMax);
const did: Codec<Did> = formed(text(didBytesMax), isDid);
const proof = { signedPayload: bytes, signature: bytes, signerKeyId: text(scaleBounds.idBytes) };

/** Each item as an argument of a call. */
const argumentCodecs = {
  verificationMethod: verificationMethodCodec,
  keyAgreement: verificationMethodCodec,
  service: serviceCodec,
  id: argument,
  alias: argument,
  oldAlias: argument,
  newAlias: argument,
  newRootPubkey: bytes,
} as const;

const signed = structure<SignedPayload>(proof);

/** The DID of a control call is only inside its payload. */
const controlArguments: Codec<Arguments<"apply_control_with_proof">> = {
  shape: signed.shape,
  write: (writer, value) => signed.write(writer, value),
  read: (reader) => {
    const value = signed.read(reader);
    const named = reader.failed ? undefined : decodePayload("control", value.signedPayload)?.did;
    if (named === undefined || !isDid(named)) reader.refuse();
    return { did: (named ?? "") as Did, ...value };
  },
};

function layout<N extends LedgerCallName>(pallet: PalletName, index: number, codec: Codec<Arguments<N>>): CallLayout {
  return { pallet, index, codec: codec as Codec<object> };
}

function argumentLayout(action: ArgumentAction): CallLayout {
  const items = actions[action].items.map((item) => [item, argumentCodecs[item]]);
  const codec = structure({ did, ...Object.fromEntries(items), ...proof }) as Codec<object>;
  return { pallet: "DidRegistry", index: actions[action].callIndex, codec };
}

const policyCall = structure<Arguments<"set_delivery_policy">>({ did, policy: deliveryPolicyCodec });

/** Every call of the ledger: where a chain has it, and the layout of its arguments. */
export const callLayouts = {
  ...Object.fromEntries(
    [...actionsByCall].flatMap(([call, action]) =>
      actionRows[action].counter === "control" ? [] : [[call, argumentLayout(action as ArgumentAction)]],
    ),
  ),
  apply_control_with_proof: layout("DidRegistry", actions.delete_did.callIndex, controlArguments),
  set_alias: layout<"set_alias">("DidRegistry", 1, structure({ did, alias: argument })),
  set_document_with_proof: layout<"set_document_with_proof">(
    "DidRegistry",
    5,
    structure({ did, docBlob: bytes, timestamp: argument, pubkey: bytes, signature: bytes }),
  ),
  register_with_document_proof_signed: layout<"register_with_document_proof_signed">(
    "DidRegistry",
    7,
    structure({ did, alias: option(argument), timestamp: argument, pubkey: bytes, signature: bytes, docBlob: bytes }),
  ),
  set_delivery_policy_links: layout<"set_delivery_policy_links">(
    "DidRegistry",
    8,
    structure({
      did,
      recipientPolicy: option(argument),
      tagPolicies: vector(argument, callBytesMax),
      personaPolicies: vector(argument, callBytesMax),
    }),
  ),
  set_delivery_policy: layout("DeliveryPolicy", 0, policyCall),
  set_tag_policy: layout("DeliveryPolicy", 2, policyCall),
  set_persona_policy: layout<"set_persona_policy">("DeliveryPolicy", 3, structure({ did, policy: personaPolicyCodec })),
} as Readonly<Record<LedgerCallName, CallLayout>>;

/** The two bytes that a call begins with, by its name. */
export type CallIndices = ReadonlyMap<LedgerCallName, Uint8Array>;

const ownIndices: CallIndices = new Map(
  Object.entries(callLayouts).map(([name, { pallet, index }]) => [
    name as LedgerCallName,
    Uint8Array.of(pallets[pallet], index),
  ]),
);

/** With the indices of a chain, or those of this program. */
export function encodeLedgerCall(call: LedgerCall, indices = ownIndices): Uint8Array {
  return concatBytes(indices.get(call.name) as Uint8Array, encodeWith(callLayouts[call.name].codec, call));
}

/** The call that the bytes hold, or `null`. */
export function decodeLedgerCall(bytes: Uint8Array, indices = ownIndices): LedgerCall | null {
  if (bytes.length > callBytesMax) return null;
  for (const [name, [pallet, index]] of indices) {
    if (pallet !== bytes[0] || index !== bytes[1]) continue;
    const values = decodeWith(callLayouts[name].codec, bytes.subarray(2));
    return values === null ? null : ({ name, ...values } as LedgerCall);
  }
  return null;
}

// --------------------------------------------------------------------------------- what a call names and claims

/** The aliases in normal form whose holder decides over a call. */
export function aliasesNamed(call: LedgerCall): string[] {
  const texts =
    call.name === "update_alias"
      ? [call.oldAlias, call.newAlias]
      : "alias" in call && call.alias !== null
        ? [call.alias]
        : [];
  return texts.map((text) => normalizeAlias(text)).filter((alias) => alias !== null);
}

/** The alias in normal form that a call claims for its DID: the last one that it names, unless it removes that. */
const aliasTaken = (call: LedgerCall): string | null =>
  call.name === "remove_alias" ? null : (aliasesNamed(call).at(-1) ?? null);

/**
 * The counter value that a call uses up, so that no two calls with the same one can both be accepted. `null`
 * for calls without one, and for a payload that can't be read.
 */
export function counterOf(call: LedgerCall): { readonly domain: CounterName; readonly nonce: bigint } | null {
  if (call.name === "set_document_with_proof") {
    const stamp = parseProofTimestamp(call.timestamp);
    return stamp === null || stamp.version === "v1" ? null : { domain: "document", nonce: stamp.nonce };
  }
  const action = actionsByCall.get(call.name);
  if (action === undefined || !("signedPayload" in call)) return null;
  const domain = actionRows[action].counter;
  const payload = decodePayload(domain, call.signedPayload);
  return payload === null ? null : { domain, nonce: payload.nonce };
}

/**
 * What a call will use up or take: a counter value, the registration of a DID, an alias. A second call with one of a
 * pending call's claims is refused when it is submitted; otherwise it would be accepted and then fail in its block.
 */
export type Claim =
  | { readonly kind: "counter"; readonly did: Did; readonly domain: CounterName; readonly nonce: bigint }
  | { readonly kind: "registration"; readonly did: Did }
  /** In normal form. */
  | { readonly kind: "alias"; readonly alias: string };

export function claimsOf(call: LedgerCall): Claim[] {
  const { did } = call;
  const claims: Claim[] = [];
  const counter = counterOf(call);
  if (counter !== null) claims.push({ kind: "counter", did, ...counter });
  if (call.name === "register_with_document_proof_signed") claims.push({ kind: "registration", did });
  const alias = aliasTaken(call);
  if (alias !== null) claims.push({ kind: "alias", alias });
  return claims;
}

/**
 * What becomes of a call whose claim a pending call already holds: the same registration again, whatever its time and
 * signature, is the first one (`same`); `null` when the two are compatible. Refuses with `nonce_mismatch`,
 * `registration_pending` or `alias_taken`.
 */
export function decideClash(claim: Claim, pending: LedgerCall, call: LedgerCall): Fault | "same" | null {
  switch (claim.kind) {
    case "counter": {
      const expected = (claim.nonce + 1n).toString();
      return fault("nonce_mismatch", "a pending change already uses this nonce", { expected });
    }
    case "registration":
      if (isSameRegistration(pending, call)) return "same";
      return fault("registration_pending", "another registration of this DID is pending");
    case "alias":
      if (pending.did === call.did) return null;
      return fault("alias_taken", "a pending change already claims this alias");
  }
}

function isSameRegistration(a: LedgerCall, b: LedgerCall): boolean {
  const name = "register_with_document_proof_signed";
  if (a.name !== name || b.name !== name) return false;
  const normal = (alias: string | null) => (alias === null ? null : normalizeAlias(alias));
  return (
    a.did === b.did &&
    normal(a.alias) === normal(b.alias) &&
    equalBytes(a.pubkey, b.pubkey) &&
    equalBytes(a.docBlob, b.docBlob)
  );
}
