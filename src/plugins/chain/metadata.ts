/**
 * The runtime metadata of a chain at one version: the prefixes of our maps, the indices of our calls, its bounds, its
 * errors, and the keys of its storage. A chain that differs from `layouts.ts` is refused with a list of every difference.
 * Source: docs/ledger.md 1.1, 1.7, 1.9, 1.10.
 */
import { expandMetadata, Metadata, type PortableRegistry, TypeRegistry, type Vec } from "@polkadot/types";
import type { DispatchError, EventRecord, PalletMetadataLatest, SiLookupTypeId } from "@polkadot/types/interfaces";
import { concatBytes, encodeHex0x, utf8 } from "../../core/codec/bytes.ts";
import { blake2b128 } from "../../core/codec/crypto.ts";
import { embeddedBounds, type LedgerBoundName, type LedgerBounds } from "../../core/ledger/account.ts";
import type { LedgerCallName } from "../../core/ledger/calls.ts";
import { StoreError } from "../../storage/contract.ts";
import {
  boundConstants,
  callLayouts,
  compactLength,
  encodeCompact,
  type Frame,
  type Inventory,
  isKnownExtension,
  lackingProtections,
  type MapName,
  mapLayouts,
  type OptionalName,
  optionalCalls,
  optionalLayouts,
  type PalletRole,
  palletNames,
} from "./layouts.ts";
import type { RuntimeVersion } from "./rpc.ts";

export type RuntimeMetadata = {
  readonly frame: Frame;
  readonly bounds: LedgerBounds;
  /** `null` when the chain has no such constant. */
  readonly blockTimeMs: number | null;
  /** `null` when calls with a proof have no limit on this chain. */
  readonly proofLimit: ProofLimit | null;
  /** Protections of the reference runtime that this one lacks. */
  readonly lacks: readonly string[];
  /** twox128 of the pallet's and the map's name. */
  prefixOf(map: MapName | "Account" | "Now" | "Events"): Uint8Array;
  /** The same for an optional item; `null` when the chain lacks it. */
  optionalPrefixOf(name: OptionalName): Uint8Array | null;
  /** By the index of an extrinsic in its block: its error, or `null` for success; absent without an event about it. */
  outcomes(events: Uint8Array): Map<number, DispatchFailure | null>;
};

/** How many calls with a proof a DID may make at once, and after how many blocks one more (docs/ledger.md 1.7). */
type ProofLimit = { readonly atOnce: bigint; readonly inReserve: bigint; readonly intervalBlocks: bigint };

/** A failure by the name of its error; `pallet` is `null` unless it is one of ours. */
export type DispatchFailure = { readonly pallet: PalletRole | null; readonly error: string };

/** Newest first; version 14 is what `state_getMetadata` answers. */
export const metadataVersions = [16, 15] as const;

/** The parameters of `state_call` for one version of the metadata. */
export const metadataCall = (version: number, block: string): readonly unknown[] => [
  "Metadata_metadata_at_version",
  encodeHex0x(Uint8Array.of(version, 0, 0, 0)),
  block,
];

/** An option of opaque bytes: `null` when the runtime does not have the version. */
export function parseMetadataCall(hex: `0x${string}`): `0x${string}` | null {
  const bytes = Uint8Array.fromHex(hex.slice(2));
  if (bytes[0] !== 1) return null;
  const opaque = bytes.subarray(1);
  return encodeHex0x(opaque.subarray(compactLength(opaque))) as `0x${string}`;
}

/** The metadata, or everything that differs. */
export function readMetadata(
  metadataHex: `0x${string}`,
  { version, genesis }: { readonly version: RuntimeVersion; readonly genesis: Uint8Array },
): RuntimeMetadata | string[] {
  const registry = new TypeRegistry();
  const metadata = new Metadata(registry, metadataHex);
  const { pallets, extrinsic } = metadata.asLatest;
  const extensions = extrinsic.transactionExtensions.map(({ identifier }) => identifier.toString());
  // Without these entries the library warns about every extension that it does not know by name.
  const quiet = Object.fromEntries(extensions.map((name) => [name, { extrinsic: {}, payload: {} }]));
  registry.setMetadata(metadata, undefined, quiet);
  const { lookup } = registry;
  const palletOf = (role: PalletRole) => pallets.find(({ name }) => name.eq(palletNames[role]));
  const missing = (["did_registry", "delivery_policy"] as const).filter((role) => palletOf(role) === undefined);
  if (missing.length > 0) return missing.map((role) => `there is no pallet ${palletNames[role]}`);
  const own = { did_registry: palletOf("did_registry")!, delivery_policy: palletOf("delivery_policy")! };
  const odd = oddItems(lookup, own);
  const differences = [
    ...extensionDifferences(lookup, metadata),
    ...mapDifferences(lookup, own),
    ...odd
      .filter((name) => !("mayDiffer" in optionalLayouts[name]))
      .map((name) => `storage ${name} is laid out otherwise`),
  ];
  const callIndices = readCalls(lookup, own, differences);
  const bounds = readBounds(own.did_registry, differences);
  if (differences.length > 0) return differences;
  const expanded = expandMetadata(registry, metadata);
  const prefixes = new Map<string, Uint8Array>();
  for (const [section, items] of Object.entries(expanded.query)) {
    const role = ownRole(section);
    for (const item of Object.values(items)) {
      const { method } = item.meta.name === undefined ? { method: "" } : { method: item.meta.name.toString() };
      if (role !== null ? isOwnItem(method, role) : isSystemItem(section, method)) {
        prefixes.set(method, rawPrefix(item.keyPrefix()));
      }
    }
  }
  const eventsType = pallets
    .find(({ name }) => name.eq("System"))
    ?.storage.unwrap()
    .items.find(({ name }) => name.eq("Events"))?.type.asPlain;
  return {
    frame: { ...version, genesis, extensions, callIndices },
    bounds,
    blockTimeMs: blockTimeOf(expanded.consts),
    proofLimit: proofLimitOf(own.did_registry),
    lacks: lackingProtections({
      ...inventoryOf(lookup, pallets, own.did_registry),
      taken: new Set(callIndices.keys()),
    }),
    prefixOf: (map) => prefixes.get(map)!,
    optionalPrefixOf: (name) => (odd.includes(name) ? null : (prefixes.get(name) ?? null)),
    outcomes(events) {
      const records = registry.createTypeUnsafe<Vec<EventRecord>>(registry.createLookupType(eventsType!), [events]);
      return outcomesOf(records);
    },
  };
}

type Named = { readonly name: { toString(): string } };

function inventoryOf(
  lookup: PortableRegistry,
  pallets: readonly Named[],
  own: PalletMetadataLatest,
): Omit<Inventory, "taken"> {
  const namesOf = (items: readonly Named[]) => new Set(items.map(({ name }) => name.toString()));
  const calls = own.calls.unwrapOr(null);
  return {
    pallets: namesOf(pallets),
    calls: namesOf(calls === null ? [] : lookup.getSiType(calls.type).def.asVariant.variants),
    constants: namesOf(own.constants),
    storage: namesOf(own.storage.unwrapOrDefault().items),
  };
}

/** An extension without an entry in our table must add nothing, neither to the extrinsic nor to what is signed. */
function extensionDifferences(lookup: PortableRegistry, metadata: Metadata): string[] {
  // The library loses the second type when it turns an older version into the latest.
  const older = metadata.version === 14 ? metadata.asV14 : metadata.version === 15 ? metadata.asV15 : null;
  const found =
    older === null
      ? metadata.asLatest.extrinsic.transactionExtensions.map(
          (one) => [one.identifier, one.type, one.implicit] as const,
        )
      : older.extrinsic.signedExtensions.map((one) => [one.identifier, one.type, one.additionalSigned] as const);
  return found
    .map(([name, explicit, implicit]) => ({
      name: name.toString(),
      signature: `${signatureOf(lookup, explicit)} ${signatureOf(lookup, implicit)}`,
    }))
    .filter(({ name, signature }) => !isKnownExtension(name) && signature !== "() ()")
    .map(
      ({ name, signature }) =>
        `transaction extension ${name} adds bytes that this program does not know (${signature})`,
    );
}

/** The library's key prefixes are bare bytes, without a length. */
function rawPrefix(key: string | Uint8Array): Uint8Array {
  return typeof key === "string" ? Uint8Array.fromHex(key.slice(2)) : Uint8Array.from(key);
}

/** The library writes names of pallets with a small first letter. */
function ownRole(section: string): PalletRole | null {
  if (section === "didRegistry") return "did_registry";
  return section === "deliveryPolicy" ? "delivery_policy" : null;
}

function isOwnItem(name: string, role: PalletRole): boolean {
  const layouts: Readonly<Record<string, { readonly pallet: PalletRole }>> = { ...mapLayouts, ...optionalLayouts };
  return Object.hasOwn(layouts, name) && layouts[name]?.pallet === role;
}

function isSystemItem(section: string, item: string): boolean {
  return section === "system" ? item === "Account" || item === "Events" : section === "timestamp" && item === "Now";
}

type Own = Readonly<Record<PalletRole, PalletMetadataLatest>>;

function mapDifferences(lookup: PortableRegistry, own: Own): string[] {
  return Object.entries(mapLayouts).flatMap(([name, { pallet, value }]) => {
    const where = `storage ${own[pallet].name}.${name}`;
    const item = own[pallet].storage.unwrapOrDefault().items.find((one) => one.name.eq(name));
    if (item === undefined) return [`${where} is missing`];
    if (!item.type.isMap) return [`${where} is not a map`];
    const { hashers, key, value: type } = item.type.asMap;
    const found = `${hashers.map((hasher) => hasher.type).join()} ${signatureOf(lookup, key)} => ${signatureOf(lookup, type)}`;
    const wanted = `Blake2_128Concat bytes => ${value}`;
    return found === wanted ? [] : [`${where} is laid out as ${found}, this program reads ${wanted}`];
  });
}

/** The optional items that are there with another layout. */
function oddItems(lookup: PortableRegistry, own: Own): OptionalName[] {
  return (Object.keys(optionalLayouts) as OptionalName[]).filter((name) => {
    const { pallet, value, isMap } = optionalLayouts[name];
    const item = own[pallet].storage.unwrapOrDefault().items.find((one) => one.name.eq(name));
    if (item === undefined) return false;
    if (item.type.isMap !== isMap) return true;
    return signatureOf(lookup, isMap ? item.type.asMap.value : item.type.asPlain) !== value;
  });
}

/** Pallet and call index of every call, as the first two bytes of its encoding. */
function readCalls(lookup: PortableRegistry, own: Own, differences: string[]): Map<LedgerCallName, Uint8Array> {
  const found = new Map<LedgerCallName, Uint8Array>();
  for (const [name, { pallet, layout }] of Object.entries(callLayouts) as [
    LedgerCallName,
    (typeof callLayouts)[LedgerCallName],
  ][]) {
    const where = `call ${own[pallet].name}.${name}`;
    const calls = own[pallet].calls.unwrapOr(null);
    const variant =
      calls === null ? undefined : lookup.getSiType(calls.type).def.asVariant.variants.find((one) => one.name.eq(name));
    if (variant === undefined) {
      if (!optionalCalls.has(name)) differences.push(`${where} is missing`);
      continue;
    }
    const signature = variant.fields.map((field) => signatureOf(lookup, field.type)).join(",");
    const isSame = signature === layout.join(",");
    if (!isSame && optionalCalls.has(name)) continue;
    if (!isSame) differences.push(`${where} takes (${signature}), this program sends (${layout.join(",")})`);
    found.set(name, Uint8Array.of(own[pallet].index.toNumber(), variant.index.toNumber()));
  }
  return found;
}

/** Bounds may be smaller than the program's, not larger: it could not read what such a chain holds. */
function readBounds(pallet: PalletMetadataLatest, differences: string[]): LedgerBounds {
  const entries = (Object.entries(boundConstants) as [LedgerBoundName, string][]).map(([bound, name]) => {
    const value = u32Constant(pallet, name);
    if (value === null) differences.push(`constant ${pallet.name}.${name} is missing or no u32`);
    else if (value > embeddedBounds[bound]) {
      differences.push(
        `constant ${pallet.name}.${name} is ${value}, this program reads at most ${embeddedBounds[bound]}`,
      );
    }
    return [bound, value ?? 0];
  });
  return Object.fromEntries(entries) as LedgerBounds;
}

function u32Constant(pallet: PalletMetadataLatest, name: string): number | null {
  const bytes = pallet.constants.find((one) => one.name.eq(name))?.value.toU8a(true);
  return bytes?.length === 4 ? u32Of(Uint8Array.from(bytes)) : null;
}

function proofLimitOf(pallet: PalletMetadataLatest): ProofLimit | null {
  const [atOnce, inReserve, interval] = ["ProofsAtOnce", "ProofsInReserve", "ProofInterval"].map((name) =>
    u32Constant(pallet, name),
  );
  if (atOnce == null || inReserve == null || interval == null) return null;
  return { atOnce: BigInt(atOnce), inReserve: BigInt(inReserve), intervalBlocks: BigInt(interval) };
}

type Constants = Readonly<Record<string, Readonly<Record<string, { toString(): string }>>>>;

function blockTimeOf(constants: Constants): number | null {
  const slot = constants["aura"]?.["slotDuration"] ?? constants["babe"]?.["expectedBlockTime"];
  if (slot !== undefined) return Number(slot.toString());
  const half = constants["timestamp"]?.["minimumPeriod"];
  return half === undefined ? null : 2 * Number(half.toString());
}

function outcomesOf(records: readonly EventRecord[]): Map<number, DispatchFailure | null> {
  const outcomes = new Map<number, DispatchFailure | null>();
  for (const { phase, event } of records) {
    if (!phase.isApplyExtrinsic || event.section !== "system") continue;
    const index = phase.asApplyExtrinsic.toNumber();
    if (event.method === "ExtrinsicSuccess") outcomes.set(index, null);
    if (event.method === "ExtrinsicFailed") outcomes.set(index, failureOf(event.data[0] as DispatchError));
  }
  return outcomes;
}

function failureOf(error: DispatchError): DispatchFailure {
  if (!error.isModule) return { pallet: null, error: error.type };
  const { section, name } = error.registry.findMetaError(error.asModule);
  return { pallet: ownRole(section), error: name };
}

// -------------------------------------------------------------------------------------------- type signatures

/**
 * A type of the metadata as a short text: two types have one text exactly when they have one encoding. Names
 * of fields do not show, names and order of variants do. Bounded vectors and account ids read as what they wrap.
 */
function signatureOf(lookup: PortableRegistry, id: SiLookupTypeId, depth = 0): string {
  if (depth > 16) return "…";
  const { def, path } = lookup.getSiType(id);
  const inner = (type: SiLookupTypeId) => signatureOf(lookup, type, depth + 1);
  if (def.isPrimitive) return def.asPrimitive.type.toLowerCase();
  if (def.isCompact) return `compact ${inner(def.asCompact.type)}`;
  if (def.isSequence) return listOf(inner(def.asSequence.type));
  if (def.isArray) return `${inner(def.asArray.type)}*${def.asArray.len.toNumber()}`;
  if (def.isTuple) return tupleOf(def.asTuple.map(inner));
  if (def.isComposite) return tupleOf(def.asComposite.fields.map((field) => inner(field.type)));
  if (!def.isVariant) return def.type;
  const { variants } = def.asVariant;
  const some = path.at(-1)?.toString() === "Option" ? variants.find(({ name }) => name.eq("Some")) : undefined;
  if (some?.fields[0] !== undefined) return `${inner(some.fields[0].type)}?`;
  return variants
    .map(({ name, index, fields }) =>
      variantOf(
        name.toString(),
        index.toNumber(),
        fields.map((field) => inner(field.type)),
      ),
    )
    .join("|");
}

const listOf = (item: string): string => (item === "u8" ? "bytes" : `[${item}]`);
const tupleOf = (items: readonly string[]): string =>
  items.length === 1 ? (items[0] as string) : `(${items.join(",")})`;
const variantOf = (name: string, index: number, fields: readonly string[]): string =>
  `${index}:${name}${fields.length === 0 ? "" : tupleOf(fields)}`;

// ---------------------------------------------------------------------------------------------- storage keys

/** Maps are `Blake2_128Concat`: the prefix, the hash of the encoded key, the encoded key (docs/ledger.md 1.9). */
type StorageKeys = {
  readonly now: Uint8Array;
  readonly events: Uint8Array;
  readonly account: (id: Uint8Array) => Uint8Array;
  readonly entry: (map: MapName, key: string) => Uint8Array;
  /** Of an optional map; `null` when the chain lacks it. */
  readonly optionalEntry: (map: Exclude<OptionalName, "PlainProofs">, key: string) => Uint8Array | null;
  readonly plainProofs: Uint8Array | null;
  /** Whether the chain holds self-certifying DIDs to their rules. */
  readonly holdsNames: boolean;
};

export function storageKeys(metadata: RuntimeMetadata): StorageKeys {
  const hashed = (key: Uint8Array) => concatBytes(blake2b128(key), key);
  // The entries of one DID follow each other, and their keys end alike.
  let last = { text: "", end: hashed(new Uint8Array()) };
  const endOf = (text: string) => {
    if (text !== last.text) last = { text, end: hashed(encodeText(text)) };
    return last.end;
  };
  return {
    now: metadata.prefixOf("Now"),
    events: metadata.prefixOf("Events"),
    account: (id) => concatBytes(metadata.prefixOf("Account"), hashed(id)),
    entry: (map, key) => concatBytes(metadata.prefixOf(map), endOf(key)),
    optionalEntry: (map, key) => {
      const prefix = metadata.optionalPrefixOf(map);
      return prefix === null ? null : concatBytes(prefix, endOf(key));
    },
    plainProofs: metadata.optionalPrefixOf("PlainProofs"),
    holdsNames: metadata.optionalPrefixOf("ComponentCallsLeft") !== null,
  };
}

function encodeText(text: string): Uint8Array {
  const bytes = utf8(text);
  return concatBytes(encodeCompact(bytes.length), bytes);
}

/** An unsigned number of four or eight bytes; absent is 0. */
export function numberOf(bytes: Uint8Array | null | undefined): bigint {
  if (bytes == null) return 0n;
  return bytes.length === 4 ? BigInt(u32Of(bytes)) : u64Of(bytes);
}

export function u64Of(bytes: Uint8Array): bigint {
  return viewOf(bytes, 8).getBigUint64(0, true);
}

function u32Of(bytes: Uint8Array): number {
  return viewOf(bytes, 4).getUint32(0, true);
}

/** `AccountInfo`: nonce, three counts of references (u32 each), then the free balance (u128). */
export function readAccountState(bytes: Uint8Array | null): { readonly nonce: number; readonly free: bigint } {
  if (bytes === null) return { nonce: 0, free: 0n };
  const view = viewOf(bytes, 32);
  return { nonce: view.getUint32(0, true), free: view.getBigUint64(16, true) + (view.getBigUint64(24, true) << 64n) };
}

/** Too few bytes are an invalid answer of the node, not a bug of this program. */
function viewOf(bytes: Uint8Array, bytesMin: number): DataView {
  if (bytes.length < bytesMin) throw new StoreError("corrupt", "the chain has a number that can't be read");
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
