/**
 * A second implementation of our SCALE layouts: the @polkadot codec with the tables of
 * docs/ledger.md 1.2 to 1.7, and no code of `src/core/ledger/structures.ts`.
 */
import { TypeRegistry } from "@polkadot/types";
import { concatBytes, encodeHex0x, utf8 } from "../../src/core/codec/bytes.ts";
import { blake2b128 } from "../../src/core/codec/crypto.ts";
import { type Codec, type Decoded, decodeWith, encodeWith } from "../../src/core/codec/scale.ts";
import type {
  DeliveryPolicy,
  DeliveryPolicyLinks,
  DidDocument,
  DidRecord,
  PersonaPolicy,
  Service,
  VerificationMethod,
} from "../../src/core/ledger/account.ts";
import type { ActionOf } from "../../src/core/ledger/actions.ts";
import type { LedgerCall, ProofCall } from "../../src/core/ledger/calls.ts";
import type { payloadCodecs } from "../../src/core/ledger/structures.ts";

type Payloads = { readonly [C in keyof typeof payloadCodecs]: Decoded<(typeof payloadCodecs)[C]> };

const registry = new TypeRegistry();

const proofArguments = { signedPayload: "Bytes", signature: "Bytes", signerKeyId: "Bytes" };

registry.register({
  Method: { id: "Bytes", methodType: "Bytes", controller: "Bytes", publicKeyMultibase: "Bytes" },
  Service: {
    id: "Bytes",
    serviceType: "Bytes",
    serviceEndpoint: "Vec<Bytes>",
    authorization: "Option<Vec<Bytes>>",
    priority: "Option<u32>",
  },
  Document: {
    id: "Bytes",
    verificationMethod: "Vec<Method>",
    authentication: "Option<Vec<Bytes>>",
    keyAgreement: "Vec<Method>",
    service: "Option<Vec<Service>>",
  },
  Links: {
    recipientPolicy: "Option<Bytes>",
    tagPolicies: "Vec<Bytes>",
    personaPolicies: "Vec<Bytes>",
  },
  Device: { deviceId: "Bytes", addedAt: "u64", tombstoned: "bool" },
  Record: {
    owner: "Option<[u8; 32]>",
    aliases: "Option<Vec<Bytes>>",
    devices: "Option<Vec<Device>>",
    document: "Option<Document>",
    version: "u64",
    updatedAt: "u64",
    rootPubkey: "Option<Bytes>",
    links: "Option<Links>",
    deactivated: "bool",
  },
  DocumentAction: {
    _enum: [
      "AddVerificationMethod",
      "UpdateVerificationMethod",
      "RemoveVerificationMethod",
      "AddAuthentication",
      "RemoveAuthentication",
      "AddKeyAgreement",
      "UpdateKeyAgreement",
      "RemoveKeyAgreement",
      "AddService",
      "UpdateService",
      "RemoveService",
    ],
  },
  DocumentPayload: {
    did: "Bytes",
    action: "DocumentAction",
    verificationMethod: "Option<Method>",
    keyAgreement: "Option<Method>",
    service: "Option<Service>",
    id: "Option<Bytes>",
    nonce: "u64",
    validUntil: "u64",
    signerKeyId: "Bytes",
  },
  RootPubkeyPayload: {
    did: "Bytes",
    newRootPubkey: "Bytes",
    nonce: "u64",
    validUntil: "u64",
    signerKeyId: "Bytes",
  },
  AliasPayload: {
    did: "Bytes",
    action: "u8",
    alias: "Option<Bytes>",
    oldAlias: "Option<Bytes>",
    newAlias: "Option<Bytes>",
    nonce: "u64",
    validUntil: "u64",
    signerKeyId: "Bytes",
  },
  UpdateDevice: { oldDeviceId: "Bytes", newDeviceId: "Bytes" },
  ControlAction: {
    _enum: {
      AddDevice: "Bytes",
      TombstoneDevice: "Bytes",
      UpdateDevice: "UpdateDevice",
      RemoveDevice: "Bytes",
      DeactivateDid: "Null",
      SetDeliveryPolicyLinks: "Links",
      ClearDeliveryPolicyLinks: "Null",
      DeleteDid: "Null",
    },
  },
  ControlPayload: {
    did: "Bytes",
    action: "ControlAction",
    nonce: "u64",
    validUntil: "u64",
    signerKeyId: "Bytes",
  },
  Expiration: { _enum: ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"] },
  Pricing: { baseFee: "u128", perKibFee: "u128" },
  DeliveryPolicy: {
    effectiveTtl: "u32",
    maxMessageBytes: "u32",
    cacheEligible: "bool",
    replication: "Option<u8>",
    preview: "Option<u32>",
    releasePricing: "Option<Pricing>",
    expiration: "Option<Expiration>",
  },
  AssetPrice: { asset: "Bytes", amount: "u128" },
  Retention: { mode: "Expiration", retainUntil: "Option<u64>" },
  PersonaPolicy: {
    releasePricing: "Option<AssetPrice>",
    expiration: "Option<Retention>",
    allowedRelays: "Vec<Bytes>",
  },
  CallIndex: { pallet: "u8", call: "u8" },
  Registration: {
    index: "CallIndex",
    did: "Bytes",
    alias: "Option<Bytes>",
    timestamp: "Bytes",
    pubkey: "Bytes",
    signature: "Bytes",
    docBlob: "Bytes",
  },
  SetDocument: {
    index: "CallIndex",
    did: "Bytes",
    docBlob: "Bytes",
    timestamp: "Bytes",
    pubkey: "Bytes",
    signature: "Bytes",
  },
  MethodCall: { index: "CallIndex", did: "Bytes", method: "Method", ...proofArguments },
  BytesCall: { index: "CallIndex", did: "Bytes", subject: "Bytes", ...proofArguments },
  ServiceCall: { index: "CallIndex", did: "Bytes", service: "Service", ...proofArguments },
  UpdateAlias: {
    index: "CallIndex",
    did: "Bytes",
    oldAlias: "Bytes",
    newAlias: "Bytes",
    ...proofArguments,
  },
  Control: { index: "CallIndex", ...proofArguments },
  SetAlias: { index: "CallIndex", did: "Bytes", alias: "Bytes" },
  SetLinks: { index: "CallIndex", did: "Bytes", links: "Links" },
  SetPolicy: { index: "CallIndex", did: "Bytes", policy: "DeliveryPolicy" },
  SetPersona: { index: "CallIndex", did: "Bytes", policy: "PersonaPolicy" },
});

/** A value as the oracle takes it: a type of its registry and a value in its own terms. */
export type OracleForm = readonly [type: string, value: unknown];

export function oracleEncode([type, value]: OracleForm): Uint8Array {
  return registry.createType(type, value).toU8a();
}

/** The bytes that the oracle writes for what it reads, without bounds or canonical form. */
export function oracleReencode(type: string, bytes: Uint8Array): Uint8Array {
  return registry.createType(type, bytes).toU8a();
}

/** Text and bytes go in as hex, because the codec would read a text such as `0x00` as bytes. */
const hex = (value: string | Uint8Array) =>
  encodeHex0x(typeof value === "string" ? utf8(value) : value);
/** An instance, because the codec takes the hex of empty bytes for an option that is none. */
const hexOrNull = (value: string | Uint8Array | null) =>
  value === null ? null : registry.createType("Bytes", hex(value));
const hexes = (values: readonly string[]) => values.map(hex);
const listOrNull = <T, R>(values: readonly T[], convert: (value: T) => R) =>
  values.length === 0 ? null : values.map(convert);

const method = (m: VerificationMethod) => ({
  id: hex(m.id),
  methodType: hex(m.type),
  controller: hex(m.controller),
  publicKeyMultibase: hex(m.publicKeyMultibase),
});

const service = (s: Service) => ({
  id: hex(s.id),
  serviceType: hex(s.type),
  serviceEndpoint: hexes(s.serviceEndpoint),
  authorization: s.authorization === null ? null : hexes(s.authorization),
  priority: s.priority,
});

const document = (d: DidDocument) => ({
  id: hex(d.id),
  verificationMethod: d.verificationMethod.map(method),
  authentication: listOrNull(d.authentication, hex),
  keyAgreement: d.keyAgreement.map(method),
  service: listOrNull(d.service, service),
});

const links = (l: DeliveryPolicyLinks) => ({
  recipientPolicy: hexOrNull(l.recipientPolicy),
  tagPolicies: hexes(l.tagPolicies),
  personaPolicies: hexes(l.personaPolicies),
});

const policy = (p: DeliveryPolicy) => ({
  effectiveTtl: p.effectiveTtlBlocks,
  maxMessageBytes: p.maxMessageBytes,
  cacheEligible: p.cacheEligible,
  replication: p.replication,
  preview: p.encryptedHeaderPreviewBytes,
  releasePricing: p.releasePricing,
  expiration: p.expirationBehavior,
});

const persona = (p: PersonaPolicy) => ({
  releasePricing:
    p.releasePricing === null
      ? null
      : { asset: hex(p.releasePricing.asset), amount: p.releasePricing.amount },
  expiration:
    p.expirationBehavior === null
      ? null
      : { mode: p.expirationBehavior.mode, retainUntil: p.expirationBehavior.retainUntilMs },
  allowedRelays: hexes(p.allowedRelays),
});

const proof = (p: Pick<ProofCall, "signedPayload" | "signature" | "signerKeyId">) => ({
  signedPayload: hex(p.signedPayload),
  signature: hex(p.signature),
  signerKeyId: hex(p.signerKeyId),
});

const seal = (p: { did: string; nonce: bigint; validUntilMs: bigint; signerKeyId: string }) => ({
  did: hex(p.did),
  nonce: p.nonce,
  validUntil: p.validUntilMs,
  signerKeyId: hex(p.signerKeyId),
});

export const oracle = {
  method: (m: VerificationMethod): OracleForm => ["Method", method(m)],
  service: (s: Service): OracleForm => ["Service", service(s)],
  document: (d: DidDocument): OracleForm => ["Document", document(d)],
  deliveryPolicy: (p: DeliveryPolicy): OracleForm => ["DeliveryPolicy", policy(p)],
  personaPolicy: (p: PersonaPolicy): OracleForm => ["PersonaPolicy", persona(p)],
  documentPayload: (p: Payloads["document"]): OracleForm => [
    "DocumentPayload",
    {
      ...seal(p),
      action: p.action,
      verificationMethod: p.verificationMethod === null ? null : method(p.verificationMethod),
      keyAgreement: p.keyAgreement === null ? null : method(p.keyAgreement),
      service: p.service === null ? null : service(p.service),
      id: hexOrNull(p.id),
    },
  ],
  rootPubkeyPayload: (p: Payloads["rootPubkey"]): OracleForm => [
    "RootPubkeyPayload",
    { ...seal(p), newRootPubkey: hex(p.newRootPubkey) },
  ],
  aliasPayload: (p: Payloads["alias"]): OracleForm => [
    "AliasPayload",
    {
      ...seal(p),
      action: { add_alias: 0, update_alias: 1, remove_alias: 2 }[p.action],
      alias: hexOrNull(p.alias),
      oldAlias: hexOrNull(p.oldAlias),
      newAlias: hexOrNull(p.newAlias),
    },
  ],
  controlPayload: (p: Payloads["control"]): OracleForm => [
    "ControlPayload",
    { ...seal(p), action: controlAction(p.action) },
  ],
  record: (r: DidRecord): OracleForm => [
    "Record",
    {
      owner: r.owner === null ? null : hex(r.owner),
      aliases: listOrNull(r.aliases, hex),
      devices: listOrNull(r.devices, (d) => ({
        deviceId: hex(d.deviceId),
        addedAt: d.addedAtMs,
        tombstoned: d.tombstoned,
      })),
      document: r.document === null ? null : document(r.document),
      version: r.version,
      updatedAt: r.updatedAtMs,
      rootPubkey: hexOrNull(r.rootPubkey),
      links: r.links === null ? null : links(r.links),
      deactivated: r.deactivated,
    },
  ],
  call: (call: LedgerCall): OracleForm => {
    const [type, pallet, index, value] = callLayout(call);
    return [
      type,
      {
        index: { pallet, call: index },
        ...("did" in call ? { did: hex(call.did) } : {}),
        ...value,
      },
    ];
  },
} as const;

function controlAction(action: ActionOf<"control">): unknown {
  return action === "delete_did" ? { DeleteDid: null } : { DeactivateDid: null };
}

function callLayout(
  call: LedgerCall,
): [type: string, pallet: number, index: number, value: object] {
  switch (call.name) {
    case "set_alias":
      return ["SetAlias", 8, 1, { alias: hex(call.alias) }];
    case "set_document_with_proof":
      return ["SetDocument", 8, 5, documentProof(call)];
    case "register_with_document_proof_signed":
      return ["Registration", 8, 7, { ...documentProof(call), alias: hexOrNull(call.alias) }];
    case "set_delivery_policy_links":
      return ["SetLinks", 8, 8, { links: links(call) }];
    case "add_alias":
    case "remove_alias":
      return [
        "BytesCall",
        8,
        call.name === "add_alias" ? 11 : 13,
        { subject: hex(call.alias), ...proof(call) },
      ];
    case "update_alias":
      return [
        "UpdateAlias",
        8,
        12,
        { oldAlias: hex(call.oldAlias), newAlias: hex(call.newAlias), ...proof(call) },
      ];
    case "add_verification_method":
    case "update_verification_method":
      return [
        "MethodCall",
        8,
        call.name.startsWith("add") ? 14 : 15,
        { method: method(call.verificationMethod), ...proof(call) },
      ];
    case "remove_verification_method":
      return ["BytesCall", 8, 16, { subject: hex(call.id), ...proof(call) }];
    case "add_authentication":
    case "remove_authentication":
      return [
        "BytesCall",
        8,
        call.name.startsWith("add") ? 17 : 18,
        { subject: hex(call.id), ...proof(call) },
      ];
    case "add_key_agreement":
    case "update_key_agreement": {
      const index = call.name.startsWith("add") ? 19 : 20;
      return ["MethodCall", 8, index, { method: method(call.keyAgreement), ...proof(call) }];
    }
    case "remove_key_agreement":
      return ["BytesCall", 8, 21, { subject: hex(call.id), ...proof(call) }];
    case "add_service":
    case "update_service":
      return [
        "ServiceCall",
        8,
        call.name.startsWith("add") ? 22 : 23,
        { service: service(call.service), ...proof(call) },
      ];
    case "remove_service":
      return ["BytesCall", 8, 24, { subject: hex(call.id), ...proof(call) }];
    case "update_root_pubkey":
      return ["BytesCall", 8, 25, { subject: hex(call.newRootPubkey), ...proof(call) }];
    case "apply_control_with_proof":
      return ["Control", 8, 29, proof(call)];
    case "set_delivery_policy":
    case "set_tag_policy":
      return [
        "SetPolicy",
        9,
        call.name === "set_delivery_policy" ? 0 : 2,
        { policy: policy(call.policy) },
      ];
    case "set_persona_policy":
      return ["SetPersona", 9, 3, { policy: persona(call.policy) }];
  }
}

const documentProof = (call: {
  timestamp: string;
  pubkey: Uint8Array;
  signature: Uint8Array;
  docBlob: Uint8Array;
}) => ({
  timestamp: hex(call.timestamp),
  pubkey: hex(call.pubkey),
  signature: hex(call.signature),
  docBlob: hex(call.docBlob),
});

// ------------------------------------------------------------------------------------ storage keys

/**
 * twox128 of the pallets' and the maps' names, as the runtime's interface lists them
 * (docs/ledger.md 1.9).
 */
const storagePrefixes = {
  DidRegistry: {
    pallet: "72b29c5d16546b7d2c5310d5fbada68b",
    maps: {
      Dids: "13f72fd4db0687b2a6a53903e54be0cf",
      AliasIndex: "cb8dc7da6f784cfd3a1f34c76b4b1ff0",
      DocumentNonces: "56b98e04127c7311ccbc659f497627b8",
      ControlNonces: "98685a9dcdde2a85e7ab3480f59b5570",
    },
  },
  DeliveryPolicy: {
    pallet: "6519a53f0c3c422cdb2a81f164e116a4",
    maps: {
      RecipientPolicies: "7dc42b50459a4ff30fa442e5cabd8c8c",
      TagPolicies: "01e2057ca6c23a0d36d2555ad80cb999",
      PersonaPolicies: "cf254e06e0ec82aa1d255d031418cb9b",
    },
  },
} as const;

type StoragePallet = keyof typeof storagePrefixes;

/** The `Blake2_128Concat` key of one entry: prefixes, hash of the encoded key, the encoded key. */
export function storageMapKey<P extends StoragePallet>(
  pallet: P,
  map: keyof (typeof storagePrefixes)[P]["maps"] & string,
  keyText: string,
): Uint8Array {
  const maps: Readonly<Record<string, string>> = storagePrefixes[pallet].maps;
  const key = registry.createType("Bytes", hex(utf8(keyText))).toU8a();
  return concatBytes(
    Uint8Array.fromHex(`${storagePrefixes[pallet].pallet}${maps[map]}`),
    blake2b128(key),
    key,
  );
}

/** A codec of ours as the pair of functions that the tests of every structure go over. */
export function coded<T>(codec: Codec<T>) {
  return {
    encode: (value: T): Uint8Array => encodeWith(codec, value),
    decode: (bytes: Uint8Array): T | null => decodeWith(codec, bytes),
  };
}
