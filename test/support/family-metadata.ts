/**
 * The metadata of an existing chain of the family, runtime 123, in version 14: written from the
 * published facts about its pallets (indices, arguments, maps, bounds, extensions), and from
 * nothing of ours. Where the facts are silent, such as names of types, it has what Substrate chains
 * have.
 */
import { TypeRegistry } from "@polkadot/types";

type Definition = Readonly<Record<string, unknown>>;
type Field = readonly [name: string, type: number];

/** `meta`, and the version of the metadata. */
const magic = "6d6574610e";

export const familyVersion = { specName: "family", specVersion: 123, transactionVersion: 1 };

/** Bounds of the pallet of DIDs; those of the other pallet are not read. */
const bounds = {
  MaxDidLen: 128,
  MaxIdLen: 64,
  MaxVMs: 5,
  MaxKAs: 5,
  MaxVMTypeLen: 64,
  MaxKaTypeLen: 64,
  MaxServiceTypeLen: 64,
  MaxKeyMultibaseLen: 128,
  MaxRefsPerRel: 4,
  MaxServices: 4,
  MaxServiceEndpoints: 5,
  MaxServiceEndpointUrlLen: 128,
  MaxServiceAuthorizationKeys: 8,
  MaxDocLen: 16_384,
  MaxAliasLen: 64,
  MaxAliases: 8,
  MaxDevices: 10,
  MaxPolicyRefs: 8,
  MaxPolicyRefLen: 128,
} as const;

/** Lists the types as a chain does, each once. */
class Types {
  readonly list: { readonly id: number; readonly type: Definition }[] = [];
  private readonly known = new Map<string, number>();

  add(def: Definition, path: readonly string[] = [], params: readonly Definition[] = []): number {
    const text = JSON.stringify([def, path]);
    const known = this.known.get(text);
    if (known !== undefined) return known;
    const id = this.list.length;
    this.known.set(text, id);
    this.list.push({ id, type: { path, params, def, docs: [] } });
    return id;
  }

  primitive = (name: string) => this.add({ Primitive: name });
  u8 = this.primitive("U8");
  u16 = this.primitive("U16");
  u32 = this.primitive("U32");
  u64 = this.primitive("U64");
  u128 = this.primitive("U128");
  bool = this.primitive("Bool");
  vec = (type: number) => this.add({ Sequence: { type } });
  tuple = (...types: readonly number[]) => this.add({ Tuple: types });
  array = (len: number) => this.add({ Array: { len, type: this.u8 } });
  bytes = this.vec(this.u8);
  struct = (name: string, fields: readonly Field[]) =>
    this.add({ Composite: { fields: fieldsOf(fields) } }, ["pallet", name]);
  /** A bounded vector is a structure around a vector. */
  bounded = (type: number) =>
    this.add({ Composite: { fields: [{ type: this.vec(type), docs: [] }] } }, [
      "bounded_collections",
      "BoundedVec",
    ]);
  name = this.bounded(this.u8);
  account = this.add({ Composite: { fields: [{ type: this.array(32), docs: [] }] } }, [
    "sp_core",
    "AccountId32",
  ]);

  option(type: number): number {
    const some = { name: "Some", fields: [{ type, docs: [] }], index: 1, docs: [] };
    const variants = [{ name: "None", fields: [], index: 0, docs: [] }, some];
    return this.add({ Variant: { variants } }, ["Option"], [{ name: "T", type }]);
  }

  variants(
    path: readonly string[],
    rows: readonly (readonly [index: number, name: string, ...types: number[]])[],
  ): number {
    const variants = rows.map(([index, name, ...types]) => ({
      name,
      index,
      fields: types.map((type) => ({ type, docs: [] })),
      docs: [],
    }));
    return this.add({ Variant: { variants } }, path);
  }
}

const fieldsOf = (fields: readonly Field[]) =>
  fields.map(([name, type]) => ({ name, type, docs: [] }));

/** The records and policies, with their members in the order of the wire. */
function structuresOf(t: Types) {
  const keyFields: Field[] = [
    ["id", t.name],
    ["type_", t.name],
    ["controller", t.name],
    ["public_key_multibase", t.name],
  ];
  const method = t.struct("VerificationMethod", keyFields);
  const agreement = t.struct("KeyAgreement", keyFields);
  const service = t.struct("Service", [
    ["id", t.name],
    ["type_", t.name],
    ["service_endpoint", t.bounded(t.name)],
    ["authorization", t.option(t.bounded(t.name))],
    ["priority", t.option(t.u32)],
  ]);
  const document = t.struct("DidDocument", [
    ["id", t.name],
    ["verification_method", t.bounded(method)],
    ["authentication", t.option(t.bounded(t.name))],
    ["key_agreement", t.bounded(agreement)],
    ["service", t.option(t.bounded(service))],
  ]);
  const device = t.struct("DeviceInfo", [
    ["device_id", t.name],
    ["added_at", t.u64],
    ["tombstoned", t.bool],
  ]);
  const links = t.struct("DeliveryPolicyLinks", [
    ["recipient_policy", t.option(t.name)],
    ["tag_policies", t.bounded(t.name)],
    ["persona_policies", t.bounded(t.name)],
  ]);
  const record = t.struct("DidRecord", [
    ["owner", t.option(t.account)],
    ["aliases", t.option(t.bounded(t.name))],
    ["devices", t.option(t.bounded(device))],
    ["document", t.option(document)],
    ["version", t.u64],
    ["updated_at", t.u64],
    ["root_pubkey", t.option(t.name)],
    ["delivery_policy_links", t.option(links)],
    ["deactivated", t.bool],
  ]);
  const pricing = t.struct("ReleasePricing", [
    ["base_fee", t.u128],
    ["per_kib_fee", t.u128],
  ]);
  const behaviors = ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"];
  const expiration = t.variants(
    ["pallet", "ExpirationBehavior"],
    behaviors.map((name, index) => [index, name]),
  );
  const policy = t.struct("DeliveryPolicy", [
    ["effective_ttl", t.u32],
    ["max_message_bytes", t.u32],
    ["cache_eligible", t.bool],
    ["replication", t.option(t.u8)],
    ["encrypted_header_preview_bytes", t.option(t.u32)],
    ["release_pricing", t.option(pricing)],
    ["expiration_behavior", t.option(expiration)],
  ]);
  return { method, agreement, service, record, policy };
}

type Structures = ReturnType<typeof structuresOf>;

function registryCalls(t: Types, { method, agreement, service }: Structures): number {
  const { bytes } = t;
  const proof = [bytes, bytes, bytes] as const;
  const maybe = t.option(bytes);
  return t.variants(
    ["did_registry", "Call"],
    [
      [1, "set_alias", bytes, bytes],
      [2, "add_device", bytes, bytes],
      [3, "tombstone_device", bytes, bytes],
      [4, "set_document", bytes, bytes],
      [5, "set_document_with_proof", bytes, bytes, bytes, bytes, bytes],
      [6, "register_with_document_proof", bytes, maybe, bytes, bytes, bytes, bytes],
      [7, "register_with_document_proof_signed", bytes, maybe, bytes, bytes, bytes, bytes],
      [8, "set_delivery_policy_links", bytes, maybe, t.vec(bytes), t.vec(bytes)],
      [9, "clear_delivery_policy_links", bytes],
      [10, "register_with_proof", bytes, maybe, bytes, bytes, bytes],
      [11, "add_alias", bytes, bytes, ...proof],
      [12, "update_alias", bytes, bytes, bytes, ...proof],
      [13, "remove_alias", bytes, bytes, ...proof],
      [14, "add_verification_method", bytes, method, ...proof],
      [15, "update_verification_method", bytes, method, ...proof],
      [16, "remove_verification_method", bytes, bytes, ...proof],
      [17, "add_authentication", bytes, bytes, ...proof],
      [18, "remove_authentication", bytes, bytes, ...proof],
      [19, "add_key_agreement", bytes, agreement, ...proof],
      [20, "update_key_agreement", bytes, agreement, ...proof],
      [21, "remove_key_agreement", bytes, bytes, ...proof],
      [22, "add_service", bytes, service, ...proof],
      [23, "update_service", bytes, service, ...proof],
      [24, "remove_service", bytes, bytes, ...proof],
      [25, "update_root_pubkey", bytes, bytes, ...proof],
      [26, "deactivate_did", bytes],
      [27, "update_device", bytes, bytes, bytes],
      [28, "remove_device", bytes, bytes],
      [29, "apply_control_with_proof", ...proof],
    ],
  );
}

function policyCalls(t: Types, { policy }: Structures): number {
  const { bytes } = t;
  return t.variants(
    ["delivery_policy", "Call"],
    [
      [0, "set_delivery_policy", bytes, policy],
      [1, "clear_delivery_policy", bytes],
      [2, "set_tag_policy", bytes, policy],
      [3, "set_persona_policy", bytes, policy],
      [4, "apply_policy_with_proof", bytes, bytes, bytes],
    ],
  );
}

/** Those that matter: of a chain whose calls for policies always fail. */
function policyErrors(t: Types): number {
  return t.variants(
    ["delivery_policy", "Error"],
    [
      [1, "DidNotFound"],
      [8, "PolicyNotFound"],
      [40, "LegacyPolicyDeprecated"],
    ],
  );
}

type Item = {
  readonly name: string;
  readonly key?: number;
  readonly value: number;
  readonly default?: string;
};

/** Maps are `Blake2_128Concat`; with a default, an absent entry has it. */
function storageOf(prefix: string, items: readonly Item[]): Definition {
  return {
    prefix,
    items: items.map(({ name, key, value, default: fallback }) => ({
      name,
      modifier: fallback === undefined ? "Optional" : "Default",
      type:
        key === undefined
          ? { Plain: value }
          : { Map: { hashers: ["Blake2_128Concat"], key, value } },
      fallback: fallback ?? "0x00",
      docs: [],
    })),
  };
}

function palletsOf(t: Types): Definition[] {
  const structures = structuresOf(t);
  const { record, policy } = structures;
  const key = t.name;
  const none = { storage: null, calls: null, events: null, constants: [], errors: null };
  const u64Zero = `0x${"00".repeat(8)}`;
  const number = (name: string) => ({ name, key, value: t.u64, default: u64Zero });
  const account = t.struct("AccountInfo", [
    ["nonce", t.u32],
    ["consumers", t.u32],
    ["providers", t.u32],
    ["sufficients", t.u32],
    ["data", t.tuple(t.u128, t.u128, t.u128, t.u128)],
  ]);
  const constant = (name: string, value: number, bytes: number) => {
    const le = new Uint8Array(8);
    new DataView(le.buffer).setBigUint64(0, BigInt(value), true);
    return {
      name,
      type: bytes === 4 ? t.u32 : t.u64,
      value: `0x${le.slice(0, bytes).toHex()}`,
      docs: [],
    };
  };
  const system = storageOf("System", [
    { name: "Account", key: t.account, value: account, default: `0x${"00".repeat(80)}` },
    { name: "Events", value: t.vec(t.tuple()), default: "0x00" },
  ]);
  const registry = storageOf("DidRegistry", [
    { name: "Dids", key, value: record },
    { name: "AliasIndex", key, value: key },
    ...["AliasNonces", "DocumentNonces", "RootPubkeyNonces", "ControlNonces"].map(number),
  ]);
  const policies = storageOf("DeliveryPolicy", [
    ...["RecipientPolicies", "TagPolicies", "PersonaPolicies"].map((name) => ({
      name,
      key,
      value: policy,
    })),
    number("PolicyNonces"),
  ]);
  const limits = Object.entries(bounds).map(([name, value]) => constant(name, value, 4));
  return [
    { ...none, name: "System", index: 0, storage: system },
    {
      ...none,
      name: "Timestamp",
      index: 1,
      storage: storageOf("Timestamp", [{ name: "Now", value: t.u64, default: u64Zero }]),
      constants: [constant("MinimumPeriod", 3_000, 8)],
    },
    { ...none, name: "Sudo", index: 6 },
    {
      ...none,
      name: "DidRegistry",
      index: 8,
      storage: registry,
      calls: { type: registryCalls(t, structures) },
      constants: limits,
    },
    {
      ...none,
      name: "DeliveryPolicy",
      index: 9,
      storage: policies,
      calls: { type: policyCalls(t, structures) },
      errors: { type: policyErrors(t) },
    },
  ];
}

/** In their order; those with a type add bytes, to the extrinsic or to what is signed. */
function extensionsOf(t: Types): Definition[] {
  const none = t.tuple();
  const hash = t.array(32);
  const compact = (type: number) => t.add({ Compact: { type } });
  const era = t.variants(
    ["sp_runtime", "Era"],
    [
      [0, "Immortal"],
      [1, "Mortal1", t.u8],
    ],
  );
  const mode = t.variants(
    ["metadata_hash", "Mode"],
    [
      [0, "Disabled"],
      [1, "Enabled"],
    ],
  );
  const rows: readonly (readonly [name: string, explicit: number, implicit: number])[] = [
    ["AuthorizeCall", none, none],
    ["CheckNonZeroSender", none, none],
    ["CheckSpecVersion", none, t.u32],
    ["CheckTxVersion", none, t.u32],
    ["CheckGenesis", none, hash],
    ["CheckEra", era, hash],
    ["CheckNonce", compact(t.u32), none],
    ["CheckWeight", none, none],
    ["ChargeTransactionPayment", compact(t.u128), none],
    ["CheckMetadataHash", mode, t.option(hash)],
    ["WeightReclaim", none, none],
  ];
  return rows.map(([identifier, type, additionalSigned]) => ({
    identifier,
    type,
    additionalSigned,
  }));
}

export function familyMetadata(): `0x${string}` {
  const t = new Types();
  const pallets = palletsOf(t);
  const signedExtensions = extensionsOf(t);
  const extrinsic = { type: t.bytes, version: 4, signedExtensions };
  const body = new TypeRegistry().createType("MetadataV14", {
    lookup: { types: t.list },
    pallets,
    extrinsic,
    type: t.tuple(),
  });
  return `0x${magic}${body.toHex().slice(2)}`;
}
