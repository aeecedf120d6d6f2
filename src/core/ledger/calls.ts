/**
 * The calls of the ledger: as values, in SCALE as the body of an extrinsic (pallet index,
 * call index, arguments in the order of the runtime), which the embedded ledger keeps
 * pending calls in as well; and what a call asks for, names and claims. The calls that a
 * DID key signs are made of the table in `actions.ts`.
 * Source: docs/ledger.md 1.6 and 1.7, rules section 4 ("Idempotence", "Pending updates").
 */
import { concatBytes, equalBytes } from "../codec/bytes.ts";
import {
  aliasBytesMax,
  type Did,
  didBytesMax,
  isDid,
  normalizeAlias,
  trimAscii,
} from "../codec/did.ts";
import {
  byteVector,
  type Codec,
  type Decoded,
  decodeWith,
  encodeWith,
  formed,
  option,
  throwMalformed as refuseBytes,
  structure,
  text,
  vector,
} from "../codec/scale.ts";
import { type Fault, fault } from "../fault.ts";
import {
  type CounterName,
  deliveryPolicyCodec,
  longerThan,
  personaPolicyCodec,
  scaleBounds,
  serviceCodec,
  verificationMethodCodec,
} from "./account.ts";
import {
  type ActionName,
  type ActionOf,
  actionNames,
  actionRows,
  actions,
  type Intent,
  type IntentOf,
  itemsOf,
} from "./actions.ts";
import { parseProofTimestamp } from "./document-codec.ts";
import { isRefusal, type LedgerRefusal, refuse } from "./refusals.ts";
import { decodePayload } from "./structures.ts";

// ------------------------------------------------------------------------------------------- calls

/**
 * Call arguments are unbounded in the runtime; a whole call has a bound, which nothing that
 * is accepted comes near.
 */
const callBytesMax = 65_536;
const argument = text(callBytesMax);
const bytes = byteVector(callBytesMax);
const did: Codec<Did> = formed(text(didBytesMax), isDid);

/** What every call signed by a DID key has: the SCALE payload, its signature, who signed. */
const proof = { signedPayload: bytes, signature: bytes, signerKeyId: text(scaleBounds.idBytes) };
const signed = structure(proof);
type SignedPayload = Decoded<typeof signed>;

/**
 * The DID of a control call is only inside its payload; it is repeated here so that every
 * call names its DID.
 */
const controlArguments: Codec<SignedPayload & { readonly did: Did }> = {
  shape: signed.shape,
  write: (writer, value) => signed.write(writer, value),
  read: (reader) => {
    const value = signed.read(reader);
    const named = decodePayload("control", value.signedPayload)?.did ?? "";
    return isDid(named) ? { did: named, ...value } : refuseBytes();
  },
};

/** Each item as an argument of a call. */
const itemCodecs = {
  verificationMethod: verificationMethodCodec,
  keyAgreement: verificationMethodCodec,
  service: serviceCodec,
  id: argument,
  alias: argument,
  oldAlias: argument,
  newAlias: argument,
  newRootPubkey: bytes,
} as const;

const policyCall = structure({ did, policy: deliveryPolicyCodec });

/**
 * The calls that are not made of the table of actions: where a chain has each, and its
 * arguments.
 */
const otherCalls = {
  register_with_document_proof_signed: {
    pallet: "DidRegistry",
    index: 7,
    codec: structure({
      did,
      alias: option(argument),
      timestamp: argument,
      pubkey: bytes,
      signature: bytes,
      docBlob: bytes,
    }),
  },
  set_document_with_proof: {
    pallet: "DidRegistry",
    index: 5,
    codec: structure({ did, docBlob: bytes, timestamp: argument, pubkey: bytes, signature: bytes }),
  },
  apply_control_with_proof: {
    pallet: "DidRegistry",
    index: actions.delete_did.callIndex,
    codec: controlArguments,
  },
  set_alias: { pallet: "DidRegistry", index: 1, codec: structure({ did, alias: argument }) },
  set_delivery_policy_links: {
    pallet: "DidRegistry",
    index: 8,
    codec: structure({
      did,
      recipientPolicy: option(argument),
      tagPolicies: vector(argument, callBytesMax),
      personaPolicies: vector(argument, callBytesMax),
    }),
  },
  set_delivery_policy: { pallet: "DeliveryPolicy", index: 0, codec: policyCall },
  /** Keyed by a DID-shaped tag: only a tag that is a registered DID can have a policy. */
  set_tag_policy: { pallet: "DeliveryPolicy", index: 2, codec: policyCall },
  set_persona_policy: {
    pallet: "DeliveryPolicy",
    index: 3,
    codec: structure({ did, policy: personaPolicyCodec }),
  },
} as const;

type OtherCall = {
  [N in keyof typeof otherCalls]: { readonly name: N } & Decoded<(typeof otherCalls)[N]["codec"]>;
}[keyof typeof otherCalls];
type NamedCall<N extends OtherCall["name"]> = Extract<OtherCall, { readonly name: N }>;

export type RegistrationCall = NamedCall<"register_with_document_proof_signed">;
export type DocumentCall = NamedCall<"set_document_with_proof">;
type ControlCall = NamedCall<"apply_control_with_proof">;
/** Calls without a proof: the operator's account makes them, and must own the record. */
export type OwnerCall = Exclude<OtherCall, RegistrationCall | DocumentCall | ControlCall>;

/** The actions whose items are arguments of their call. */
type ArgumentAction = Exclude<ActionName, ActionOf<"control">>;
type ArgumentCall = {
  [A in ArgumentAction]: { readonly name: (typeof actions)[A]["call"] } & Omit<
    IntentOf<A>,
    "action"
  > &
    SignedPayload;
}[ArgumentAction];
/** A call that a DID key authorizes. */
export type ProofCall = ArgumentCall | ControlCall;

export type LedgerCall = OtherCall | ArgumentCall;
export type LedgerCallName = LedgerCall["name"];

const actionsByCall = new Map<string, ActionName>(
  actionNames.map((action) => [actionRows[action].call, action]),
);

/** The action that a call is for. */
export function actionOfCall(call: Exclude<ProofCall, ControlCall>): ArgumentAction {
  return actionsByCall.get(call.name) as ArgumentAction;
}

/**
 * Whether a call removes a DID (the column `deletesDid`); `false` for a payload that can't
 * be read.
 */
export function deletesDid(call: LedgerCall): boolean {
  if (call.name !== "apply_control_with_proof") return false;
  const payload = decodePayload("control", call.signedPayload);
  return payload !== null && actionRows[payload.action].deletesDid;
}

/** The runtime call for an authorization. */
export function callOfIntent(intent: Intent, signed: SignedPayload): ProofCall {
  const { signedPayload, signature, signerKeyId } = signed;
  const { call } = actionRows[intent.action];
  return {
    name: call,
    did: intent.did,
    ...itemsOf(intent),
    signedPayload,
    signature,
    signerKeyId,
  } as ProofCall;
}

/**
 * What a call asks for; refuses an alias without normal form and an unreadable payload;
 * compares nothing.
 */
export function intentOfCall(
  call: ProofCall,
  aliasBytes: number = aliasBytesMax,
): Intent | LedgerRefusal {
  const { did } = call;
  if (call.name === "apply_control_with_proof") {
    const payload = decodePayload("control", call.signedPayload);
    if (payload === null) return refuse("InvalidControlPayload");
    return { action: payload.action, did } as Intent;
  }
  const action = actionOfCall(call);
  const intent: Record<string, unknown> = {
    action,
    ...itemsOf({ ...call, action } as Intent),
    did,
  };
  for (const item of ["alias", "oldAlias", "newAlias"]) {
    if (intent[item] === undefined) continue;
    const alias = ledgerAlias(intent[item] as string, aliasBytes);
    if (isRefusal(alias)) return alias;
    intent[item] = alias;
  }
  return intent as Intent;
}

/**
 * The normal form of an alias argument, or the ledger's name for what is wrong with it:
 * length comes first.
 */
export function ledgerAlias(text: string, bytesMax: number): string | LedgerRefusal {
  const alias = normalizeAlias(text, bytesMax);
  if (alias !== null) return alias;
  return refuse(longerThan(trimAscii(text), bytesMax) ? "AliasTooLong" : "InvalidAlias");
}

// ------------------------------------------------------------------------------------------- SCALE

/** Pallets by their name on a chain, and the index that the first byte of a call has here. */
const pallets = { DidRegistry: 8, DeliveryPolicy: 9 } as const;
export type PalletName = keyof typeof pallets;

type CallLayout = {
  readonly pallet: PalletName;
  readonly index: number;
  readonly codec: Codec<object>;
};

function layoutOf(action: ActionName): CallLayout {
  const { callIndex: index, items } = actionRows[action];
  const codecs = Object.fromEntries(items.map((item) => [item, itemCodecs[item]]));
  return { pallet: "DidRegistry", index, codec: structure<object>({ did, ...codecs, ...proof }) };
}

/** Every call of the ledger: where a chain has it, and the layout of its arguments. */
export const callLayouts = {
  ...Object.fromEntries([...actionsByCall].map(([call, action]) => [call, layoutOf(action)])),
  ...otherCalls,
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
  return concatBytes(
    indices.get(call.name) as Uint8Array,
    encodeWith(callLayouts[call.name].codec, call),
  );
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

// -------------------------------------------------------------------- what a call names and claims

function aliasTexts(call: LedgerCall): readonly string[] {
  if (call.name === "update_alias") return [call.oldAlias, call.newAlias];
  return "alias" in call && call.alias !== null ? [call.alias] : [];
}

/** The aliases in normal form whose holder decides over a call. */
export function aliasesNamed(call: LedgerCall): string[] {
  return aliasTexts(call)
    .map((text) => normalizeAlias(text))
    .filter((alias) => alias !== null);
}

/**
 * The alias in normal form that a call claims for its DID: the last one that it names,
 * unless it removes that.
 */
const aliasTaken = (call: LedgerCall): string | null =>
  call.name === "remove_alias" ? null : (aliasesNamed(call).at(-1) ?? null);

/**
 * The counter value that a call uses up; `null` for calls without one, and for a payload
 * that can't be read.
 */
export function counterOf(
  call: LedgerCall,
): { readonly domain: CounterName; readonly nonce: bigint } | null {
  if (call.name === "set_document_with_proof") {
    const stamp = parseProofTimestamp(call.timestamp);
    return stamp === null || stamp.version === "v1"
      ? null
      : { domain: "document", nonce: stamp.nonce };
  }
  const action = actionsByCall.get(call.name);
  if (action === undefined || !("signedPayload" in call)) return null;
  const domain = actionRows[action].counter;
  const payload = decodePayload(domain, call.signedPayload);
  return payload === null ? null : { domain, nonce: payload.nonce };
}

/**
 * The counter value, registration and alias that a call takes, as keys. Two pending calls
 * never hold one of them.
 */
export function claimsOf(call: LedgerCall): string[] {
  const counter = counterOf(call);
  const alias = aliasTaken(call);
  return [
    ...(counter === null ? [] : [`c/${call.did}/${counter.domain}/${counter.nonce}`]),
    ...(call.name === "register_with_document_proof_signed" ? [`r/${call.did}`] : []),
    ...(alias === null ? [] : [`u/${alias}`]),
  ];
}

/**
 * What becomes of a call whose claim a pending call already holds: the same registration
 * again, whatever its time and signature, is the first one (`same`); `null` when the two
 * are compatible. Refuses with `nonce_mismatch`, `registration_pending` or `alias_taken`.
 */
export function decideClash(
  claim: string,
  pending: LedgerCall,
  call: LedgerCall,
): Fault | "same" | null {
  if (claim.startsWith("c/")) {
    const expected = String((counterOf(call)?.nonce ?? 0n) + 1n);
    return fault("nonce_mismatch", "a pending change already uses this nonce", { expected });
  }
  if (claim.startsWith("u/"))
    return pending.did === call.did
      ? null
      : fault("alias_taken", "a pending change already claims this alias");
  if (isSameRegistration(pending, call)) return "same";
  return fault("registration_pending", "another registration of this DID is pending");
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
