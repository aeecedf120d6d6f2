/**
 * The chain driver's encodings against the chain's own library: metadata of the reference runtime,
 * storage keys, extrinsics, headers.
 */
import { describe, expect, spyOn, test } from "bun:test";
import {
  type GenericExtrinsic,
  type GenericExtrinsicPayload,
  Metadata,
  Struct,
  TypeRegistry,
} from "@polkadot/types";
import { expandExtensionTypes } from "@polkadot/types/extrinsic/signedExtensions";
import { compactAddLength, compactToU8a } from "@polkadot/util";
import fc from "fast-check";
import { concatBytes, encodeHex0x, utf8 } from "../../src/core/codec/bytes.ts";
import { embeddedBounds } from "../../src/core/ledger/account.ts";
import { decodeLedgerCall, encodeLedgerCall } from "../../src/core/ledger/calls.ts";
import {
  type Carried,
  carriedBy,
  encodeExtrinsic,
  extrinsicHash,
  type Frame,
  fingerprintOf,
  lackOf,
  optionalCalls,
  type PalletShape,
} from "../../src/plugins/chain/layouts.ts";
import { entryKey, type RuntimeMetadata, readMetadata } from "../../src/plugins/chain/metadata.ts";
import { extrinsicsIn, hasCalls } from "../../src/plugins/chain/reader.ts";
import { parseHeader } from "../../src/plugins/chain/rpc.ts";
import { storageMapKey } from "../oracles/scale.ts";
import { alice, registration, removal } from "../support/chain-calls.ts";
import { keyOf } from "../support/identity.ts";

const metadataFile = new URL(
  "../../runtime/artifacts/waypost-runtime.metadata.hex",
  import.meta.url,
);
const kept = (await Bun.file(metadataFile).text()).trim();
/** The kept form may be any version of the metadata that the runtime has. */
const metadataHex = (kept.startsWith("0x") ? kept : `0x${kept}`) as `0x${string}`;
const version = { specName: "waypost", specVersion: 1, transactionVersion: 1 };
const genesis = new Uint8Array(32).fill(0x45);
const { publicKey, sign } = keyOf("operator");
const key = { publicKey, sign, scheme: 0 as const };
const era = { birth: 1_234n, birthHash: new Uint8Array(32).fill(9), periodBlocks: 64 };

const headerJson = {
  parentHash: `0x${"ab".repeat(32)}`,
  number: "0x12345",
  stateRoot: `0x${"00".repeat(32)}`,
  extrinsicsRoot: `0x${"cd".repeat(32)}`,
  digest: { logs: ["0x066175726120b1c2d30000000000", "0x056175726108aabb"] },
};

function runtime(): RuntimeMetadata {
  const read = readMetadata(metadataHex, { version, genesis });
  if (Array.isArray(read)) throw new Error(read.join("\n"));
  return read;
}

describe("the metadata of the reference runtime", () => {
  test("has every layout, and the bounds of the embedded ledger", () => {
    const bounds = runtime().bounds;
    expect(bounds).toEqual(
      Object.fromEntries(
        Object.keys(bounds).map((name) => [name, embeddedBounds[name as never]]),
      ) as never,
    );
    expect(runtime().blockTimeMs).toBe(6_000);
  });

  test("keys its maps as the specification says", () => {
    for (const map of ["Dids", "AliasIndex", "DocumentNonces", "ControlNonces"] as const) {
      expect(entryKey(map, alice.did).toHex()).toBe(
        storageMapKey("DidRegistry", map, alice.did).toHex(),
      );
    }
    for (const map of ["RecipientPolicies", "TagPolicies"] as const) {
      expect(entryKey(map, alice.did).toHex()).toBe(
        storageMapKey("DeliveryPolicy", map, alice.did).toHex(),
      );
    }
    expect(entryKey("PersonaPolicies", alice.did).toHex()).toBe(
      storageMapKey("DeliveryPolicy", "PersonaPolicies", alice.did).toHex(),
    );
  });

  test("numbers its calls as the specification says", () => {
    for (const call of [registration, removal]) {
      const { extrinsic } = encodeExtrinsic(
        call,
        { era, nonce: null, tip: 0n },
        { frame: runtime().frame, key },
      );
      expect(extrinsic.toHex()).toEndWith(encodeLedgerCall(call).toHex());
    }
  });

  test("names what a chain lacks", () => {
    const shapeOf = (calls: string[], constants: string[]): PalletShape => ({
      calls: new Map(calls.map((name) => [name, { indices: new Uint8Array(2), shape: "" }])),
      storage: new Map(),
      constants: new Map(constants.map((name) => [name, new Uint8Array(4)])),
      errors: new Set(),
    });
    const [family, whole] = [
      shapeOf(["register_with_document_proof"], []),
      shapeOf([], ["RecordDeposit"]),
    ];
    const chainOf = (own: PalletShape) => new Map([["DidRegistry", own]]);
    const absent = new Set(["Lives", "PlainProofs"] as const);
    expect(lackOf(chainOf(family).set("Sudo", family), absent, new Map())).toHaveLength(8);
    const taken = new Map([...optionalCalls].map((name) => [name, new Uint8Array(2)] as const));
    expect(lackOf(chainOf(whole), new Set(), taken)).toEqual([]);
    expect(lackOf(chainOf(whole).set("Sudo", whole), new Set(), taken)).toEqual([
      "no key that rules the chain (Sudo)",
    ]);
  });

  test("is refused under other names, and every difference is reported", () => {
    const named = (name: string) => `${compactToU8a(name.length).toHex()}${utf8(name).toHex()}`;
    const renamed = (hex: string) => readMetadata(hex as `0x${string}`, { version, genesis });
    const [registry, policy] = [named("DidRegistry"), named("DeliveryPolicy")];
    expect(renamed(metadataHex.replaceAll(registry, named("Registry")))).toEqual([
      "there is no pallet DidRegistry",
    ]);
    const parts = metadataHex.split(registry).map((part) => part.replaceAll(policy, registry));
    const swapped = renamed(parts.join(policy));
    expect(swapped).toContain("storage DidRegistry.Dids is missing");
    expect(swapped).toContain("call DidRegistry.add_alias is missing");
    expect(swapped).toContain("constant DidRegistry.MaxIdLen is missing or no u32");
    expect(swapped).toContain("storage DeliveryPolicy.TagPolicies is missing");
  });
});

describe("extrinsics", () => {
  const frame: Frame = runtime().frame;
  const registry = new TypeRegistry();
  registry.setMetadata(new Metadata(registry, metadataHex));

  test("of the operator are what the chain library reads and would sign", () => {
    const call = encodeLedgerCall(registration);
    const { extrinsic: bytes } = encodeExtrinsic(
      registration,
      { era, nonce: 70_000, tip: 5n },
      { frame, key },
    );
    const read = registry.createTypeUnsafe<GenericExtrinsic>("Extrinsic", [bytes]);
    expect([read.isSigned, read.nonce.toNumber(), read.tip.toNumber()]).toEqual([true, 70_000, 5]);
    expect<string>(read.method.toHex()).toBe(encodeHex0x(call));
    expect(read.signer.toString()).toBe(registry.createType("AccountId", publicKey).toString());
    expect([read.era.asMortalEra.birth(1_234), read.era.asMortalEra.death(1_234)]).toEqual([
      1_234, 1_298,
    ]);
    expect<string>(read.hash.toHex()).toBe(extrinsicHash(bytes));
    const payload = registry.createTypeUnsafe<GenericExtrinsicPayload>("ExtrinsicPayload", [
      {
        method: read.method.toHex(),
        era: read.era.toHex(),
        nonce: 70_000,
        tip: 5,
        mode: 0,
        specVersion: 1,
        transactionVersion: 1,
        genesisHash: genesis,
        blockHash: era.birthHash,
      },
      { version: 4 },
    ]);
    // The library signs what is longer than 256 bytes by its hash, and asks the key to name its
    // kind.
    const signed: Uint8Array[] = [];
    const signing = (message: Uint8Array) => {
      signed.push(message);
      return Uint8Array.of(0, ...sign(message));
    };
    payload.sign({ sign: signing } as never);
    expect(bytes.toHex()).toContain(sign(signed[0]!).toHex());
  });

  test("are found by their call and its proof or nonce, in whatever era they are framed", () => {
    const encoded = (nonce: number | null, birth: bigint) =>
      encodeExtrinsic(removal, { era: { ...era, birth }, nonce, tip: 0n }, { frame, key });
    const shownBy = (extrinsic: Uint8Array) =>
      fingerprintOf(carriedBy(extrinsic, frame) as Carried);
    for (const nonce of [null, 7]) {
      const [one, other] = [encoded(nonce, 1_234n), encoded(nonce, 99n)];
      expect(extrinsicHash(one.extrinsic)).not.toBe(extrinsicHash(other.extrinsic));
      expect([one, other].map(({ extrinsic }) => shownBy(extrinsic))).toEqual([
        one.fingerprint,
        one.fingerprint,
      ]);
    }
    const others = [null, 7, 8].map((nonce) => encoded(nonce, 99n).fingerprint);
    expect(new Set(others).size).toBe(3);
    const carried = carriedBy(encoded(7, 99n).extrinsic, frame) as Carried;
    expect(fingerprintOf({ ...carried, submitter: new Uint8Array(32) })).not.toBe(
      others[1] as string,
    );
  });

  const own = [null, 7].map(
    (nonce) => encodeExtrinsic(removal, { era, nonce, tip: 0n }, { frame, key }).extrinsic,
  );
  const ownBody = own.map((extrinsic) => extrinsic.subarray(2));

  test("of every kind of key that the runtime knows are read, and of no other", () => {
    const call = encodeLedgerCall(removal);
    // From `MultiSignature` of sp-runtime 45: Ed25519, Sr25519, Ecdsa, Eth.
    const lengths = [64, 64, 65, 65];
    for (const [scheme, length] of [...lengths, 64, 65].entries()) {
      const head = concatBytes(
        Uint8Array.of(0x84, 0),
        publicKey,
        Uint8Array.of(scheme),
        new Uint8Array(length).fill(1),
      );
      const extrinsic = compactAddLength(concatBytes(head, Uint8Array.of(0, 28, 0, 0), call));
      const wanted = scheme < lengths.length ? { call, submitter: publicKey, nonce: 7 } : null;
      expect(carriedBy(extrinsic, frame)).toEqual(wanted);
    }
  });

  test("of strangers, whatever their bytes, hide none of ours in their block", () => {
    const bytes = fc.uint8Array({ maxLength: 300 });
    const body = fc.constantFrom(...ownBody);
    const kinds = [0x04, 0x05, 0x44, 0x45, 0x84, 0x85, 0xc4, 0xc5];
    const headed = fc
      .tuple(
        fc.constantFrom(...kinds),
        fc.constantFrom(0, 0, 0, 1, 4),
        fc.uint8Array({ minLength: 32, maxLength: 32 }),
      )
      .chain(([kind, address, account]) =>
        fc
          .tuple(fc.nat({ max: 5 }), bytes)
          .map(([scheme, rest]) => Uint8Array.of(kind, address, ...account, scheme, ...rest)),
      );
    const cut = fc.tuple(body, fc.nat({ max: 200 })).map(([whole, end]) => whole.subarray(0, end));
    const changed = fc
      .tuple(body, fc.nat({ max: 120 }), fc.uint8Array({ minLength: 1, maxLength: 20 }))
      .map(([whole, at, other]) =>
        concatBytes(whole.subarray(0, at), other, whole.subarray(at + other.length)),
      );
    const stranger = fc.oneof(
      bytes,
      fc.oneof(bytes, headed, cut, changed).map((one) => compactAddLength(one)),
    );
    const metadata = runtime();
    const header = parseHeader(headerJson);
    const block = fc.tuple(...[1, 2, 3].map(() => fc.array(stranger, { maxLength: 4 })));
    fc.assert(
      fc.property(block, ([before = [], between = [], after = []]) => {
        const [proof, signed] = own as [Uint8Array, Uint8Array];
        const extrinsics = [...before, proof, ...between, signed, ...after];
        const found = extrinsicsIn({ header, extrinsics }, metadata);
        for (const { call } of found) decodeLedgerCall(call, frame.callIndices);
        const call = encodeLedgerCall(removal);
        expect(found).toContainEqual({ call, submitter: null, nonce: 0, frame });
        expect(found).toContainEqual({ call, submitter: publicKey, nonce: 7, frame });
      }),
      { numRuns: 1_500 },
    );
  });

  test("of strangers alone make nobody ask for the runtime of their block unless they may carry a call", () => {
    const blockOf = (...bodies: readonly (readonly number[])[]) => ({
      header: parseHeader(headerJson),
      extrinsics: bodies.map((one) => compactAddLength(Uint8Array.from(one))),
    });
    expect(hasCalls(blockOf([0x04, 2, 0], [0x05, 2, 0], [0x45, 1], [0x84, 4], []))).toBe(false);
    // Whether the rest can be read is for the runtime of its block.
    const odd = [0, ...new Uint8Array(80).fill(0xff)];
    const block = blockOf([0x84, 0, ...publicKey, 3, ...new Uint8Array(65), ...odd]);
    expect(hasCalls(block)).toBe(true);
    expect(extrinsicsIn(block, runtime())).toEqual([]);
  });

  test("are decoded once for all who read a block, by each runtime", () => {
    const [proof] = own as [Uint8Array];
    const block = { header: parseHeader(headerJson), extrinsics: [proof] };
    const metadata = runtime();
    const found = extrinsicsIn(block, metadata);
    expect(found).toHaveLength(1);
    expect(extrinsicsIn(block, metadata)).toBe(found);
    const other = { frame: { ...metadata.frame, callIndices: new Map() } };
    expect(extrinsicsIn(block, other)).toEqual([]);
  });

  test("have their call where the chain library finds it, whatever extensions come before", () => {
    const registry = new TypeRegistry();
    const extensions = [...frame.extensions];
    const given = fc.record({
      era: fc.constantFrom("0x00", { current: 7, period: 64 }, { current: 9_000, period: 4_096 }),
      nonce: fc.nat(),
      tip: fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }),
      mode: fc.constantFrom(0, 1),
    });
    fc.assert(
      fc.property(given, (one) => {
        const added = new Struct(registry, expandExtensionTypes(extensions, "extrinsic"), one);
        const call = encodeLedgerCall(removal);
        const bytes = concatBytes(Uint8Array.of(0x45, 0), added.toU8a(), call);
        const found = carriedBy(compactAddLength(bytes), frame);
        expect(found).toEqual({ call, submitter: null, nonce: one.nonce });
      }),
    );
  });
});

describe("headers", () => {
  test("have the hash that the chain library gives them", () => {
    const registry = new TypeRegistry();
    const header = parseHeader(headerJson);
    expect(header.number).toBe(0x12345n);
    expect<string>(header.hash).toBe(registry.createType("Header", headerJson).hash.toHex());
    expect(() => parseHeader({ ...headerJson, number: "0x100000000" })).toThrow("u32");
  });

  test("of a node that makes them up put nothing past the log", () => {
    const print = spyOn(console, "error").mockImplementation(() => {});
    try {
      for (const log of ["0x", "0x06", "0xff", "0x0661757261ff"]) {
        const { hash } = parseHeader({ ...headerJson, digest: { logs: [log] } });
        expect(hash).not.toBe(parseHeader(headerJson).hash);
      }
      expect(print).not.toHaveBeenCalled();
    } finally {
      print.mockRestore();
    }
  });
});
