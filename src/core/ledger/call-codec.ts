/**
 * Ledger calls in SCALE, as the body of an extrinsic: pallet index, call index, arguments in the order
 * of the runtime. The embedded ledger keeps pending calls in the same form.
 * Source: docs/ledger.md 1.7, decisions section 10 ("Persona policy on the ledger").
 */

import { type Did, didBytesMax, isDid } from "../codec/did.ts";
import {
  byteVector,
  type Codec,
  decodeWith,
  encodeWith,
  formed,
  option,
  type Reader,
  structure,
  text,
  vector,
} from "../codec/scale.ts";
import { scaleBounds } from "./bounds.ts";
import type { LedgerCall, LedgerCallName } from "./call.ts";
import {
  decodeControlPayload,
  deliveryPolicyCodec,
  personaPolicyCodec,
  serviceCodec,
  verificationMethodCodec,
} from "./structures.ts";

export const didRegistryPallet = 8;
export const deliveryPolicyPallet = 9;

/** An encoded call is at most this long; nothing that the Directory accepts comes near. */
const callBytesMax = 65_536;

type CallOf<N extends LedgerCallName, C = LedgerCall> = C extends { readonly name: infer M }
  ? N extends M
    ? C
    : never
  : never;
type Arguments<N extends LedgerCallName> = Omit<CallOf<N>, "name">;
type Layout<N extends LedgerCallName> = {
  readonly pallet: number;
  readonly index: number;
  readonly codec: Codec<Arguments<N>>;
};

/** Call arguments are unbounded byte vectors in the runtime; the bound of the whole call holds for them. */
const argument = text(callBytesMax);
const bytes = byteVector(callBytesMax);
const did: Codec<Did> = formed(text(didBytesMax), isDid);
const proof = { signedPayload: bytes, signature: bytes, signerKeyId: text(scaleBounds.idBytes) };

function registry<N extends LedgerCallName>(index: number, codec: Codec<Arguments<N>>): Layout<N> {
  return { pallet: didRegistryPallet, index, codec };
}

function policies<N extends LedgerCallName>(index: number, codec: Codec<Arguments<N>>): Layout<N> {
  return { pallet: deliveryPolicyPallet, index, codec };
}

const signed = structure<Omit<Arguments<"apply_control_with_proof">, "did">>(proof);

/** The DID of a control call stands only inside its payload. */
const controlArguments: Codec<Arguments<"apply_control_with_proof">> = {
  size: (value) => signed.size(value),
  write: (writer, value) => signed.write(writer, value),
  read: (reader) => {
    const value = signed.read(reader);
    const named = reader.failed ? undefined : decodeControlPayload(value.signedPayload)?.did;
    if (named === undefined || !isDid(named)) reader.refuse();
    return { did: (named ?? "") as Did, ...value };
  },
};

const methodCall = structure<Arguments<"add_verification_method">>({ did, method: verificationMethodCodec, ...proof });
const methodIdCall = structure<Arguments<"remove_verification_method">>({ did, methodId: argument, ...proof });
const agreementCall = structure<Arguments<"add_key_agreement">>({
  did,
  keyAgreement: verificationMethodCodec,
  ...proof,
});
const serviceCall = structure<Arguments<"add_service">>({ did, service: serviceCodec, ...proof });
const aliasCall = structure<Arguments<"add_alias">>({ did, alias: argument, ...proof });
const policyCall = structure<Arguments<"set_delivery_policy">>({ did, policy: deliveryPolicyCodec });

const layouts: { readonly [N in LedgerCallName]: Layout<N> } = {
  set_alias: registry(1, structure<Arguments<"set_alias">>({ did, alias: argument })),
  set_document_with_proof: registry(
    5,
    structure<Arguments<"set_document_with_proof">>({
      did,
      docBlob: bytes,
      timestamp: argument,
      pubkey: bytes,
      signature: bytes,
    }),
  ),
  register_with_document_proof_signed: registry(
    7,
    structure<Arguments<"register_with_document_proof_signed">>({
      did,
      alias: option(argument),
      timestamp: argument,
      pubkey: bytes,
      signature: bytes,
      docBlob: bytes,
    }),
  ),
  set_delivery_policy_links: registry(
    8,
    structure<Arguments<"set_delivery_policy_links">>({
      did,
      recipientPolicy: option(argument),
      tagPolicies: vector(argument, callBytesMax),
      personaPolicies: vector(argument, callBytesMax),
    }),
  ),
  add_alias: registry(11, aliasCall),
  update_alias: registry(
    12,
    structure<Arguments<"update_alias">>({ did, oldAlias: argument, newAlias: argument, ...proof }),
  ),
  remove_alias: registry(13, aliasCall),
  add_verification_method: registry(14, methodCall),
  update_verification_method: registry(15, methodCall),
  remove_verification_method: registry(16, methodIdCall),
  add_authentication: registry(17, methodIdCall),
  remove_authentication: registry(18, methodIdCall),
  add_key_agreement: registry(19, agreementCall),
  update_key_agreement: registry(20, agreementCall),
  remove_key_agreement: registry(
    21,
    structure<Arguments<"remove_key_agreement">>({ did, keyAgreementId: argument, ...proof }),
  ),
  add_service: registry(22, serviceCall),
  update_service: registry(23, serviceCall),
  remove_service: registry(24, structure<Arguments<"remove_service">>({ did, serviceId: argument, ...proof })),
  update_root_pubkey: registry(25, structure<Arguments<"update_root_pubkey">>({ did, newRootPubkey: bytes, ...proof })),
  apply_control_with_proof: registry(29, controlArguments),
  set_delivery_policy: policies(0, policyCall),
  set_tag_policy: policies(2, policyCall),
  set_persona_policy: policies(3, structure<Arguments<"set_persona_policy">>({ did, policy: personaPolicyCodec })),
};

const callNames = Object.keys(layouts) as LedgerCallName[];
const namesByIndex = new Map(callNames.map((name) => [layouts[name].pallet * 256 + layouts[name].index, name]));

/** Pallet and call index of a call, for the chain plugin and its start-up check. */
export function callIndex(name: LedgerCallName): { pallet: number; index: number } {
  const { pallet, index } = layouts[name];
  return { pallet, index };
}

export function encodeLedgerCall(call: LedgerCall): Uint8Array {
  return encodeWith(ledgerCall, call);
}

/** The call that the bytes hold, or `null`. */
export function decodeLedgerCall(bytes: Uint8Array): LedgerCall | null {
  return bytes.length > callBytesMax ? null : decodeWith(ledgerCall, bytes);
}

const codecOf = (name: LedgerCallName) => layouts[name].codec as Codec<object>;

const ledgerCall: Codec<LedgerCall> = {
  size: (call) => 2 + codecOf(call.name).size(call),
  write: (writer, call) => {
    writer.byte(layouts[call.name].pallet);
    writer.byte(layouts[call.name].index);
    codecOf(call.name).write(writer, call);
  },
  read: (reader: Reader) => {
    const name = namesByIndex.get(reader.byte() * 256 + reader.byte());
    if (name === undefined) reader.refuse();
    const known = name ?? "set_alias";
    return { name: known, ...codecOf(known).read(reader) } as LedgerCall;
  },
};
