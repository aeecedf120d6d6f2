/**
 * The runtime metadata of a chain at one version: the items that it has, the indices of our
 * calls, its bounds, its errors; and the keys of its storage. A chain that differs from
 * `layouts.ts` is refused with a list of every difference.
 * Source: docs/ledger.md 1.1, 1.7, 1.9, 1.10.
 */
import { Metadata, type PortableRegistry, TypeRegistry } from "@polkadot/types";
import type { PalletMetadataLatest, SiLookupTypeId } from "@polkadot/types/interfaces";
import { compactAddLength } from "@polkadot/util";
import { xxhashAsU8a } from "@polkadot/util-crypto";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { blake2b128 } from "../../core/codec/crypto.ts";
import { tuple } from "../../core/codec/scale.ts";
import {
  embeddedBounds,
  type LedgerBoundName,
  type LedgerBounds,
} from "../../core/ledger/account.ts";
import { type CallIndices, callLayouts, type LedgerCallName } from "../../core/ledger/calls.ts";
import { StoreError } from "../../storage/contract.ts";
import * as layouts from "./layouts.ts";
import type { RuntimeVersion } from "./rpc.ts";

export type RuntimeMetadata = {
  readonly frame: layouts.Frame;
  readonly bounds: LedgerBounds;
  readonly blockTimeMs: number;
  /** Protections of the reference runtime that this one lacks. */
  readonly lacks: readonly string[];
  /** Optional items that the chain lacks. */
  readonly absent: ReadonlySet<layouts.StorageItemName>;
  /** As the node gave it, in hex. */
  readonly source: `0x${string}`;
};

/** By this name it is remembered, for one chain. */
export const runtimeName = ({
  specVersion,
  transactionVersion,
}: Pick<RuntimeVersion, "specVersion" | "transactionVersion">): string =>
  `${specVersion}/${transactionVersion}`;

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
  const quiet = Object.fromEntries(
    extensions.map((name) => [name, { extrinsic: {}, payload: {} }]),
  );
  registry.setMetadata(metadata, undefined, quiet);
  const { lookup } = registry;
  const chain: layouts.ChainShape = new Map(
    pallets.map((pallet) => [pallet.name.toString(), shapeOfPallet(lookup, pallet)]),
  );
  const own = chain.get("DidRegistry");
  const missing = (["DidRegistry", "DeliveryPolicy"] as const).filter((name) => !chain.has(name));
  if (own === undefined || missing.length > 0)
    return missing.map((name) => `there is no pallet ${name}`);
  const differences = extensionDifferences(lookup, metadata);
  const absent = readItems(chain, differences);
  const callIndices = readCalls(chain, differences);
  const bounds = readBounds(own, differences);
  if (differences.length > 0) return differences;
  return {
    frame: { ...version, genesis, extensions, callIndices },
    bounds,
    blockTimeMs: blockTimeOf(chain),
    lacks: layouts.lackOf(chain, absent, callIndices),
    absent,
    source: metadataHex,
  };
}

function shapeOfPallet(
  lookup: PortableRegistry,
  { index, calls, errors, storage, constants }: PalletMetadataLatest,
): layouts.PalletShape {
  const variantsOf = (type: SiLookupTypeId) => lookup.getSiType(type).def.asVariant.variants;
  return {
    errors: new Set(
      errors.isNone ? [] : variantsOf(errors.unwrap().type).map(({ name }) => name.toString()),
    ),
    calls: new Map(
      (calls.isNone ? [] : variantsOf(calls.unwrap().type)).map(({ name, index: own, fields }) => [
        name.toString(),
        {
          indices: Uint8Array.of(index.toNumber(), own.toNumber()),
          shape: tuple(fields.map(({ type }) => shapeOf(lookup, type))),
        },
      ]),
    ),
    storage: new Map(
      storage.unwrapOrDefault().items.map(({ name, type }) => {
        if (type.isPlain) return [name.toString(), shapeOf(lookup, type.asPlain)];
        const { hashers, key, value } = type.asMap;
        return [
          name.toString(),
          mapShape(
            hashers.map((hasher) => hasher.type).join(),
            shapeOf(lookup, key),
            shapeOf(lookup, value),
          ),
        ];
      }),
    ),
    constants: new Map(
      constants.map(({ name, value }) => [name.toString(), Uint8Array.from(value.toU8a(true))]),
    ),
  };
}

const mapShape = (hashers: string, key: string, value: string): string =>
  `${hashers} ${key} => ${value}`;

/**
 * An extension without an entry in our table must add nothing, neither to the extrinsic nor
 * to what is signed.
 */
function extensionDifferences(lookup: PortableRegistry, metadata: Metadata): string[] {
  // The library loses the second type when it turns a version into the latest.
  const { extrinsic } = metadata.version === 14 ? metadata.asV14 : metadata.asV15;
  return extrinsic.signedExtensions
    .map(({ identifier, type, additionalSigned: implicit }) => [
      identifier.toString(),
      `${shapeOf(lookup, type)} ${shapeOf(lookup, implicit)}`,
    ])
    .filter(([name = "", shape]) => !layouts.isKnownExtension(name) && shape !== "() ()")
    .map(
      ([name, shape]) =>
        `transaction extension ${name} adds bytes that this program does not know (${shape})`,
    );
}

/** The optional items that count as absent. */
function readItems(chain: layouts.ChainShape, differences: string[]): Set<layouts.StorageItemName> {
  const absent = new Set<layouts.StorageItemName>();
  for (const name of Object.keys(layouts.items) as layouts.StorageItemName[]) {
    const { pallet, value, isPlain, lack, mayDiffer } = layouts.itemOf(name);
    if (value === null) continue;
    const found = chain.get(pallet)?.storage.get(name);
    const wanted = isPlain ? value : mapShape("Blake2_128Concat", "bytes", value);
    if (found === wanted) continue;
    if (lack !== undefined && (found === undefined || mayDiffer)) absent.add(name);
    else if (found === undefined) differences.push(`storage ${pallet}.${name} is missing`);
    else
      differences.push(
        `storage ${pallet}.${name} is laid out as ${found}, this program reads ${wanted}`,
      );
  }
  return absent;
}

/** Pallet and call index of every call, as the first two bytes of its encoding. */
function readCalls(chain: layouts.ChainShape, differences: string[]): CallIndices {
  const indices = new Map<LedgerCallName, Uint8Array>();
  for (const name of Object.keys(callLayouts) as LedgerCallName[]) {
    const { pallet, codec } = callLayouts[name];
    const { calls, errors } = chain.get(pallet) as layouts.PalletShape;
    const found = calls.get(name);
    if (
      layouts.optionalCalls.has(name) &&
      (found?.shape !== codec.shape || errors.has(layouts.optionalCallsError))
    )
      continue;
    if (found?.shape === codec.shape) indices.set(name, found.indices);
    else if (found === undefined) differences.push(`call ${pallet}.${name} is missing`);
    else
      differences.push(
        `call ${pallet}.${name} takes ${found.shape}, this program sends ${codec.shape}`,
      );
  }
  return indices;
}

/**
 * Bounds may be smaller than the program's, not larger: it could not read what such a chain
 * holds.
 */
function readBounds(own: layouts.PalletShape, differences: string[]): LedgerBounds {
  const entries = (Object.entries(layouts.boundConstants) as [LedgerBoundName, string][]).map(
    ([bound, name]) => {
      const [value, most] = [u32Constant(own, name), embeddedBounds[bound]];
      if (value === null) differences.push(`constant DidRegistry.${name} is missing or no u32`);
      else if (value > most)
        differences.push(
          `constant DidRegistry.${name} is ${value}, this program reads at most ${most}`,
        );
      return [bound, value ?? 0];
    },
  );
  return Object.fromEntries(entries) as LedgerBounds;
}

function u32Constant({ constants }: layouts.PalletShape, name: string): number | null {
  const bytes = constants.get(name);
  return bytes?.length === 4 ? Number(decodeUnsigned(bytes)) : null;
}

function blockTimeOf(chain: layouts.ChainShape): number {
  const constant = (pallet: string, name: string) =>
    Number(decodeUnsigned(chain.get(pallet)?.constants.get(name)));
  const slot = constant("Aura", "SlotDuration") || constant("Babe", "ExpectedBlockTime");
  return slot || 2 * constant("Timestamp", "MinimumPeriod") || layouts.blockTimeMsDefault;
}

// --------------------------------------------------------------------------------- shapes of types

/**
 * A type of the metadata as a text like `Codec.shape`: names of fields do not show, names
 * and order of variants do. Bounded vectors and account ids read as what they wrap.
 */
function shapeOf(lookup: PortableRegistry, id: SiLookupTypeId, depth = 0): string {
  if (depth > 16) return "…";
  const { def, path } = lookup.getSiType(id);
  const inner = (type: SiLookupTypeId) => shapeOf(lookup, type, depth + 1);
  if (def.isPrimitive) return def.asPrimitive.type.toLowerCase();
  if (def.isCompact) return `compact ${inner(def.asCompact.type)}`;
  if (def.isSequence) return listOf(inner(def.asSequence.type));
  if (def.isArray) return `${inner(def.asArray.type)}*${def.asArray.len.toNumber()}`;
  if (def.isTuple) return tuple(def.asTuple.map(inner));
  if (def.isComposite) return tuple(def.asComposite.fields.map(({ type }) => inner(type)));
  if (!def.isVariant) return def.type;
  const { variants } = def.asVariant;
  const some =
    path.at(-1)?.toString() === "Option" ? variants.find(({ name }) => name.eq("Some")) : undefined;
  if (some?.fields[0] !== undefined) return `${inner(some.fields[0].type)}?`;
  return variants
    .map(({ name, index, fields }) => {
      const held = fields.length === 0 ? "" : tuple(fields.map(({ type }) => inner(type)));
      return `${index.toNumber()}:${name}${held}`;
    })
    .join("|");
}

const listOf = (item: string): string => (item === "u8" ? "bytes" : `[${item}]`);

// ------------------------------------------------------------------------------------ storage keys

const prefixes = new Map(
  (Object.keys(layouts.items) as layouts.StorageItemName[]).map((name) => [
    name,
    concatBytes(xxhashAsU8a(layouts.itemOf(name).pallet, 128), xxhashAsU8a(name, 128)),
  ]),
);
/**
 * The key of an item that is not a map, and what the keys of a map begin with: twox128 of
 * the pallet's and its name.
 */
export const prefixOf = (name: layouts.StorageItemName): Uint8Array =>
  prefixes.get(name) as Uint8Array;

/**
 * `Blake2_128Concat`: the prefix, the hash of the encoded key, the encoded key
 * (docs/ledger.md 1.9).
 */
const hashed = (key: Uint8Array): Uint8Array => concatBytes(blake2b128(key), key);

export const accountKey = (id: Uint8Array): Uint8Array =>
  concatBytes(prefixOf("Account"), hashed(id));

/** Of one entry in each of the maps: it is hashed once. */
export function entryKeys(maps: readonly layouts.StorageItemName[], key: string): Uint8Array[] {
  const suffix = hashed(compactAddLength(utf8(key)));
  return maps.map((map) => concatBytes(prefixOf(map), suffix));
}

export const entryKey = (map: layouts.StorageItemName, key: string): Uint8Array =>
  entryKeys([map], key)[0] as Uint8Array;

/**
 * An unsigned number; absent is 0. Too few bytes are an invalid answer of the node, not a
 * bug of this program.
 */
export function decodeUnsigned(bytes: Uint8Array | null | undefined): bigint {
  if (bytes == null) return 0n;
  if (bytes.length === 0)
    throw new StoreError("corrupt", "the chain has a number that can't be read");
  return BigInt(`0x${bytes.toReversed().toHex()}`);
}

/** `AccountInfo`: nonce, three counts of references (u32 each), then the free balance (u128). */
export function readAccountState(bytes: Uint8Array | null): {
  readonly nonce: number;
  readonly free: bigint;
} {
  if (bytes === null) return { nonce: 0, free: 0n };
  return {
    nonce: Number(decodeUnsigned(bytes.subarray(0, 4))),
    free: decodeUnsigned(bytes.subarray(16, 32)),
  };
}
