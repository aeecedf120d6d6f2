/**
 * What the program reads from and writes to a chain, as the type signatures of `metadata.ts`: calls with their
 * arguments, storage maps with their values, constants. The start-up check holds a chain's metadata to it.
 * Source: docs/ledger.md 1.1 to 1.9, rules sections 1 and 10 ("Persona policy on the ledger").
 */
import type { LedgerBoundName } from "../../core/ledger/account.ts";
import { actionRows, type ItemName } from "../../core/ledger/actions.ts";
import type { LedgerCallName, ProofCall } from "../../core/ledger/calls.ts";

/** Without one from the chain or the configuration. */
export const blockTimeMsDefault = 6_000;

export type PalletRole = "did_registry" | "delivery_policy";

const method = "(bytes,bytes,bytes,bytes)";
const service = "(bytes,bytes,[bytes],[bytes]?,u32?)";
const document = `(bytes,[${method}],[bytes]?,[${method}],[${service}]?)`;
const links = "(bytes?,[bytes],[bytes])";
const record = `(u8*32?,[bytes]?,[(bytes,u64,bool)]?,${document}?,u64,u64,bytes?,${links}?,bool)`;
const expiration = "0:DeleteOnExpiry|1:KeepHeaderPreview|2:TombstoneReference";
const policy = `(u32,u32,bool,u8?,u32?,(u128,u128)?,${expiration}?)`;
const persona = `((bytes,u128)?,(${expiration},u64?)?,[bytes])`;

type CallLayout = { readonly pallet: PalletRole; readonly layout: readonly string[] };
const registry = (layout: readonly string[]): CallLayout => ({ pallet: "did_registry", layout });
const policies = (layout: readonly string[]): CallLayout => ({ pallet: "delivery_policy", layout });

/** What an item of a signed action is as an argument; every other one is bytes. */
const itemLayouts: Partial<Record<ItemName, string>> = {
  verificationMethod: method,
  keyAgreement: method,
  service,
};
/** The payload, its signature, who signed. */
const proof = ["bytes", "bytes", "bytes"];

/** The calls that a key of the DID signs: the DID and the items, which a control payload holds itself. */
const proofLayouts = Object.fromEntries(
  Object.values(actionRows).map(({ call, counter, items }) => [
    call,
    registry(counter === "control" ? proof : ["bytes", ...items.map((item) => itemLayouts[item] ?? "bytes"), ...proof]),
  ]),
) as Readonly<Record<ProofCall["name"], CallLayout>>;

export const callLayouts: Readonly<Record<LedgerCallName, CallLayout>> = {
  ...proofLayouts,
  set_alias: registry(["bytes", "bytes"]),
  set_document_with_proof: registry(["bytes", "bytes", "bytes", "bytes", "bytes"]),
  register_with_document_proof_signed: registry(["bytes", "bytes?", "bytes", "bytes", "bytes", "bytes"]),
  set_delivery_policy_links: registry(["bytes", "bytes?", "[bytes]", "[bytes]"]),
  set_delivery_policy: policies(["bytes", policy]),
  set_tag_policy: policies(["bytes", policy]),
  set_persona_policy: policies(["bytes", persona]),
};

type MapLayout = { readonly pallet: PalletRole; readonly value: string };
const counter = { pallet: "did_registry", value: "u64" } as const;

/** Every map is keyed by a byte string under `Blake2_128Concat`. */
export const mapLayouts = {
  Dids: { pallet: "did_registry", value: record },
  AliasIndex: { pallet: "did_registry", value: "bytes" },
  AliasNonces: counter,
  DocumentNonces: counter,
  RootPubkeyNonces: counter,
  ControlNonces: counter,
  DocumentTimes: counter,
  RegistrationExpiries: counter,
  RecipientPolicies: { pallet: "delivery_policy", value: policy },
  TagPolicies: { pallet: "delivery_policy", value: policy },
  PersonaPolicies: { pallet: "delivery_policy", value: persona },
} as const satisfies Readonly<Record<string, MapLayout>>;

/** What a chain of the family need not have, laid out like this where it does. Maps are keyed as those above. */
export const optionalLayouts = {
  /** How often a DID was deleted. */
  Lives: { pallet: "did_registry", value: "u32", isMap: true },
  /** The block at which the allowance of a DID for calls with a proof is whole again. */
  ProofAllowances: { pallet: "did_registry", value: "u32", isMap: true },
  /** Stands where the chain knows version 3 of the proofs: whether it accepts the others as well. */
  PlainProofs: { pallet: "did_registry", value: "bool", isMap: false },
} as const satisfies Readonly<Record<string, MapLayout & { readonly isMap: boolean }>>;

export type OptionalName = keyof typeof optionalLayouts;
export type MapName = keyof typeof mapLayouts;

/** The build of the reference runtime that breaks rules on command, for tests of the tests. */
export const canaryName = "waypost-canary";

/** The pallet constant behind each bound. */
export const boundConstants: Readonly<Record<LedgerBoundName, string>> = {
  didBytes: "MaxDidLen",
  idBytes: "MaxIdLen",
  verificationMethods: "MaxVMs",
  keyAgreements: "MaxKAs",
  authentications: "MaxRefsPerRel",
  services: "MaxServices",
  serviceEndpoints: "MaxServiceEndpoints",
  serviceEndpointBytes: "MaxServiceEndpointUrlLen",
  serviceAuthorizations: "MaxServiceAuthorizationKeys",
  typeBytes: "MaxVMTypeLen",
  keyMultibaseBytes: "MaxKeyMultibaseLen",
  documentBytes: "MaxDocLen",
  aliasBytes: "MaxAliasLen",
  aliases: "MaxAliases",
  policyRefs: "MaxPolicyRefs",
  policyRefBytes: "MaxPolicyRefLen",
};

/** Names of what a chain's metadata holds: its pallets, and of the pallet of DIDs the items of each kind. */
export type Inventory = Readonly<Record<"pallets" | "calls" | "constants" | "storage", ReadonlySet<string>>>;

/**
 * What the reference runtime has against abuse and a chain of the family may lack, and how the metadata shows it.
 * Such a chain is used nevertheless, and the log names what it lacks.
 */
const protections: readonly { readonly name: string; readonly isThere: (chain: Inventory) => boolean }[] = [
  {
    name: "proofs that bind the chain and the submitting account (version 3)",
    isThere: ({ storage }) => storage.has("PlainProofs"),
  },
  { name: "a deposit for every record", isThere: ({ constants }) => constants.has("RecordDeposit") },
  {
    name: "no registrations without an account",
    isThere: ({ calls }) => !calls.has("register_with_document_proof"),
  },
  { name: "a count of how often a DID was deleted", isThere: ({ storage }) => storage.has("Lives") },
  { name: "a limit of calls with a proof for each DID", isThere: ({ constants }) => constants.has("ProofsAtOnce") },
  { name: "no key that rules the chain (Sudo)", isThere: ({ pallets }) => !pallets.has("Sudo") },
];

export const lackingProtections = (chain: Inventory): string[] =>
  protections.filter(({ isThere }) => !isThere(chain)).map(({ name }) => name);
