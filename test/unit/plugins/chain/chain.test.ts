/**
 * The chain driver without a chain: its options, the metadata that it reads from the kept metadata of the
 * reference runtime, the bytes of its extrinsics as the chain library reads them, and its outbox.
 */
import { describe, expect, test } from "bun:test";
import { type GenericExtrinsic, type GenericExtrinsicPayload, Metadata, TypeRegistry } from "@polkadot/types";
import { encodeHex0x } from "../../../../src/core/codec/bytes.ts";
import { embeddedBounds } from "../../../../src/core/ledger/bounds.ts";
import { encodeLedgerCall, type LedgerCall } from "../../../../src/core/ledger/calls.ts";
import { faultOfRefusal, ledgerErrors, refuse } from "../../../../src/core/ledger/refusals.ts";
import { faultOfFailure } from "../../../../src/plugins/chain/blocks.ts";
import { chainPlugin } from "../../../../src/plugins/chain/chain.ts";
import {
  callFingerprint,
  encodeCompact,
  extrinsicHash,
  type Frame,
  fingerprintsOf,
  generalExtrinsic,
  signedExtrinsic,
} from "../../../../src/plugins/chain/extrinsic.ts";
import { lackingProtections } from "../../../../src/plugins/chain/layouts.ts";
import {
  parseMetadataCall,
  type RuntimeMetadata,
  readAccountState,
  readMetadata,
  storageKeys,
} from "../../../../src/plugins/chain/metadata.ts";
import { Outbox, type Pending } from "../../../../src/plugins/chain/outbox.ts";
import { parseHeader, parseStorage } from "../../../../src/plugins/chain/rpc.ts";
import { singleFlight } from "../../../../src/plugins/chain/session.ts";
import { openMemoryTable } from "../../../../src/plugins/memory/table.ts";
import { identityOf, keyOf, registrationOf } from "../../../support/identity.ts";
import { storageMapKey } from "../../../support/scale-judge.ts";

const metadataFile = new URL("../../../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url);
const kept = (await Bun.file(metadataFile).text()).trim();
/** The kept form may be any version of the metadata that the runtime tells. */
const metadataHex = (kept.startsWith("0x") ? kept : `0x${kept}`) as `0x${string}`;
const names = { did_registry: "DidRegistry", delivery_policy: "DeliveryPolicy" };
const version = { specName: "waypost", specVersion: 1, transactionVersion: 1 };
const genesis = new Uint8Array(32).fill(0x45);

function runtimeOf(given = names): RuntimeMetadata | string[] {
  return readMetadata(metadataHex, { version, genesis, names: given });
}

function runtime(): RuntimeMetadata {
  const read = runtimeOf();
  if (Array.isArray(read)) throw new Error(read.join("\n"));
  return read;
}

const alice = identityOf("alice");
const registration = registrationOf(alice, { timestamp: "1800000000000" });
const removal: LedgerCall = {
  name: "remove_service",
  did: alice.did,
  id: `${alice.did}#s`,
  signedPayload: new Uint8Array(3),
  signature: new Uint8Array(64),
  signerKeyId: "root",
};

test("work that is called for at any moment of a run is done once more, one at a time", async () => {
  for (let moment = 0; moment < 16; moment++) {
    let [news, seen, running, most] = [1, 0, 0, 0];
    const call = singleFlight(async () => {
      most = Math.max(most, ++running);
      await null;
      seen = news;
      running--;
    });
    call();
    for (let tick = 0; tick < moment; tick++) await null;
    news = 2;
    call();
    call();
    await Bun.sleep(0);
    expect([moment, seen, most]).toEqual([moment, 2, 1]);
  }
});

describe("options", () => {
  const least = { endpoints: ["ws://127.0.0.1:9944"], operator_key_file: "key", outbox: "outbox" };

  test("the least that is needed gets the documented defaults", () => {
    const parsed = chainPlugin.parseOptions(least);
    expect(parsed.ok && parsed.options).toMatchObject({
      finality: "finalized",
      lifetime_blocks: 64,
      in_flight_max: 4_096,
      tip: 0n,
    });
  });

  const wrong: readonly [string, Record<string, unknown>, string][] = [
    ["no endpoint", { endpoints: [] }, "endpoints"],
    ["an endpoint of another protocol", { endpoints: ["http://node"] }, "endpoints.0"],
    ["credentials in an endpoint", { endpoints: ["ws://a:b@node"] }, "endpoints.0"],
    ["a fragment in an endpoint", { endpoints: ["ws://node/#key"] }, "endpoints.0"],
    ["a key in the configuration", { operator_seed: "//Alice" }, "operator_seed"],
    ["a life that is no power of two", { lifetime_blocks: 60 }, "lifetime_blocks"],
    ["more calls in flight than a pool takes of one account", { in_flight_max: 4_097 }, "in_flight_max"],
    ["a tip that is not a whole number", { tip: "1.5" }, "tip"],
    ["a pallet that can't be a name", { did_registry_pallet: "did registry" }, "did_registry_pallet"],
  ];
  test.each(wrong)("%s is refused", (_, spoiled, setting) => {
    const parsed = chainPlugin.parseOptions({ ...least, ...spoiled });
    expect(parsed.ok ? [] : parsed.problems.map((problem) => problem.setting)).toEqual([setting]);
  });
});

describe("the metadata of the reference runtime", () => {
  test("has every layout, and the bounds of the embedded ledger", () => {
    const bounds = runtime().bounds;
    expect(bounds).toEqual(
      Object.fromEntries(Object.keys(bounds).map((name) => [name, embeddedBounds[name as never]])) as never,
    );
    expect(runtime().blockTimeMs).toBe(6_000);
  });

  test("keys its maps as the specification says", () => {
    const { entry } = storageKeys(runtime());
    for (const map of ["Dids", "AliasIndex", "DocumentNonces", "ControlNonces"] as const) {
      expect(entry(map, alice.did).toHex()).toBe(storageMapKey("DidRegistry", map, alice.did).toHex());
    }
    for (const map of ["RecipientPolicies", "TagPolicies", "PersonaPolicies"] as const) {
      expect(entry(map, alice.did).toHex()).toBe(storageMapKey("DeliveryPolicy", map, alice.did).toHex());
    }
  });

  test("numbers its calls as the specification says", () => {
    for (const call of [registration, removal]) {
      expect(runtime().encodeCall(call).toHex()).toBe(encodeLedgerCall(call).toHex());
    }
  });

  test("names the protections that a chain of the family lacks", () => {
    const none = { pallets: new Set<string>(), calls: new Set<string>(), constants: new Set<string>() };
    const family = { ...none, pallets: new Set(["Sudo"]), calls: new Set(["register_with_document_proof"]) };
    expect(lackingProtections({ ...family, storage: new Set() })).toHaveLength(5);
    const whole = { ...none, constants: new Set(["RecordDeposit"]), storage: new Set(["PlainProofs", "Lives"]) };
    expect(lackingProtections(whole)).toEqual([]);
    expect(lackingProtections({ ...whole, pallets: new Set(["Sudo"]) })).toEqual([
      "no key that rules the chain (Sudo)",
    ]);
  });

  test("is refused under other names, and every difference is told", () => {
    expect(runtimeOf({ ...names, did_registry: "Registry" })).toEqual(["there is no pallet Registry"]);
    const swapped = runtimeOf({ did_registry: "DeliveryPolicy", delivery_policy: "DidRegistry" });
    expect(swapped).toContain("storage DeliveryPolicy.Dids is missing");
    expect(swapped).toContain("call DeliveryPolicy.add_alias is missing");
    expect(swapped).toContain("constant DeliveryPolicy.MaxIdLen is missing or no u32");
    expect(swapped).toContain("storage DidRegistry.TagPolicies is missing");
  });
});

describe("extrinsics", () => {
  const { publicKey, sign } = keyOf("operator");
  const key = { publicKey, sign, scheme: 0 as const };
  const era = { birth: 1_234n, birthHash: new Uint8Array(32).fill(9), periodBlocks: 64 };
  const frame: Frame = runtime().frame;
  const registry = new TypeRegistry();
  registry.setMetadata(new Metadata(registry, metadataHex));

  test("of the operator are what the chain library reads and would sign", () => {
    const call = runtime().encodeCall(registration);
    const bytes = signedExtrinsic(call, { era, nonce: 70_000, tip: 5n }, { frame, key });
    const read = registry.createTypeUnsafe<GenericExtrinsic>("Extrinsic", [bytes]);
    expect([read.isSigned, read.nonce.toNumber(), read.tip.toNumber()]).toEqual([true, 70_000, 5]);
    expect<string>(read.method.toHex()).toBe(encodeHex0x(call));
    expect(read.signer.toString()).toBe(registry.createType("AccountId", publicKey).toString());
    expect([read.era.asMortalEra.birth(1_234), read.era.asMortalEra.death(1_234)]).toEqual([1_234, 1_298]);
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
    // The library signs what is longer than 256 bytes by its hash, and asks the key to name its kind.
    const signed: Uint8Array[] = [];
    const signing = (message: Uint8Array) => {
      signed.push(message);
      return Uint8Array.of(0, ...sign(message));
    };
    payload.sign({ sign: signing } as never);
    expect(bytes.toHex()).toContain(sign(signed[0]!).toHex());
  });

  test("that carry a proof are found by their call, whoever framed them", () => {
    const call = runtime().encodeCall(removal);
    const one = generalExtrinsic(call, era, frame);
    const other = generalExtrinsic(call, { ...era, birth: 99n }, frame);
    expect(extrinsicHash(one)).not.toBe(extrinsicHash(other));
    expect(fingerprintsOf(one, frame)).toEqual([extrinsicHash(one), callFingerprint(call)]);
    expect(fingerprintsOf(other, frame)).toContain(callFingerprint(call));
    expect(fingerprintsOf(signedExtrinsic(call, { era, nonce: 1, tip: 0n }, { frame, key }), frame)).toHaveLength(1);
  });

  test("have compact numbers as the chain library has", () => {
    for (const value of [
      0,
      63,
      64,
      16_383,
      16_384,
      2 ** 30 - 1,
      2 ** 30,
      2 ** 32 - 1,
      2n ** 32n,
      2n ** 64n - 1n,
      2n ** 128n - 1n,
    ]) {
      expect(encodeCompact(value).toHex()).toBe(
        Buffer.from(registry.createType("Compact<u128>", value).toU8a()).toString("hex"),
      );
    }
  });
});

describe("answers of nodes", () => {
  test("of storage must have every key of the block that was asked for", () => {
    const [block, other] = [`0x${"11".repeat(32)}`, `0x${"22".repeat(32)}`];
    const parse = parseStorage(["0xaa", "0xbb"], block);
    const set = (at: string, ...changes: unknown[]) => [{ block: at, changes }];
    expect([...(parse(set(block, ["0xaa", null], ["0xbb", "0x07"])) ?? [])]).toEqual([
      ["0xaa", null],
      ["0xbb", Uint8Array.of(7)],
    ]);
    expect(parse([])).toBeNull();
    expect(() => parse(set(block, ["0xaa", null]))).toThrow("leaves out a key");
    expect(() => parse(set(other, ["0xaa", null], ["0xbb", "0x07"]))).toThrow("another block");
    expect(() => parse(set(block))).toThrow("leaves out a key");
  });

  test("of headers have the hash that the chain library gives them", () => {
    const registry = new TypeRegistry();
    const zeros = `0x${"00".repeat(32)}`;
    const json = {
      parentHash: `0x${"ab".repeat(32)}`,
      number: "0x12345",
      stateRoot: zeros,
      extrinsicsRoot: `0x${"cd".repeat(32)}`,
      digest: { logs: ["0x066175726120b1c2d30000000000", "0x056175726108aabb"] },
    };
    const header = parseHeader(json);
    expect(header.number).toBe(0x12345n);
    expect<string>(header.hash).toBe(registry.createType("Header", json).hash.toHex());
    expect(() => parseHeader({ ...json, number: "0x100000000" })).toThrow("u32");
  });

  test("of a metadata version are an option of bytes", () => {
    expect(parseMetadataCall("0x00")).toBeNull();
    expect(parseMetadataCall("0x010c6d6574")).toBe("0x6d6574");
  });
});

test("an account's nonce and balance are read from its bytes", () => {
  expect(readAccountState(null)).toEqual({ nonce: 0, free: 0n });
  const bytes = Uint8Array.fromHex(
    `07000000${"00".repeat(12)}${"01".padEnd(16, "0")}${"02".padEnd(16, "0")}${"00".repeat(48)}`,
  );
  expect(readAccountState(bytes)).toEqual({ nonce: 7, free: 1n + (2n << 64n) });
});

describe("faults", () => {
  test("are the ledger's for every error that both know", () => {
    for (const error of ledgerErrors) {
      expect(faultOfFailure({ pallet: "did_registry", error }, removal)).toEqual(faultOfRefusal(refuse(error)));
    }
  });

  test("of a whole document are told as such", () => {
    const failure = { pallet: "did_registry", error: "ServiceAlreadyExists" } as const;
    expect(faultOfFailure(failure, registration).code).toBe("document_invalid");
    expect(faultOfFailure(failure, removal).code).toBe("component_exists");
  });

  test("that nobody knows are refusals of the chain with their name", () => {
    for (const failure of [
      { pallet: null, error: "InvalidSignature" },
      { pallet: "did_registry", error: "Novel" },
    ] as const) {
      const { code, detail } = faultOfFailure(failure, removal);
      expect([code, detail.includes(failure.error)]).toEqual(["chain_submission_rejected", true]);
    }
  });
});

describe("the outbox", () => {
  const pending = (n: number): Pending => ({
    sequence: BigInt(n),
    call: n % 2 === 0 ? registration : removal,
    submission: {
      txHash: `0x${n.toString(16).padStart(64, "0")}`,
      did: alice.did,
      call: n % 2 === 0 ? registration.name : removal.name,
      label: "test",
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: n,
    },
    signed: [
      {
        extrinsic: Uint8Array.of(n),
        fingerprint: `fingerprint ${n}`,
        nonce: n % 2 === 0 ? n : null,
        birth: 7n,
        death: 71n,
        specVersion: 1,
        out: true,
      },
    ],
    renewals: 0,
  });
  const ended = (n: number) => ({
    ...pending(n),
    submission: { ...pending(n).submission, state: "finalized" as const },
  });
  const open = (table = openMemoryTable({ bytesMax: 1 << 24 }), retention = { retainedMs: 1_000, retainedMax: 3 }) => ({
    table,
    outbox: new Outbox(table, table, retention),
  });

  test("gives back what it was given, in order, until it has ended", async () => {
    const { table, outbox } = open();
    for (const n of [0, 1, 2]) await outbox.keep(pending(n));
    await outbox.replace({ ...pending(2), renewals: 1 });
    await outbox.finish([ended(1)], { nowMs: 0, anchor: null });
    const again = open(table).outbox;
    expect(again.pending()).toEqual([pending(0), { ...pending(2), renewals: 1 }]);
    expect(again.submission(pending(1).submission.txHash)).toEqual(ended(1).submission);
    expect(again.submission(pending(9).submission.txHash)).toBeNull();
  });

  test("keeps ends for their time and up to their number, also over a restart", async () => {
    const { table, outbox } = open();
    for (let n = 0; n < 4; n++) {
      await outbox.keep(pending(n));
      await outbox.finish([ended(n)], { nowMs: 10, anchor: null });
    }
    const known = (box: Outbox) => [0, 1, 2, 3, 4].filter((n) => box.submission(pending(n).submission.txHash) !== null);
    expect(known(outbox)).toEqual([1, 2, 3]);
    const again = open(table).outbox;
    await again.keep(pending(4));
    await again.finish([ended(4)], { nowMs: 2_000, anchor: null });
    expect(known(again)).toEqual([4]);
  });

  test("remembers the last finalized block, also when only ends are written", async () => {
    const { table, outbox } = open();
    const anchor = (number: bigint) => ({ number, hash: `0x${"ab".repeat(32)}`, seenAtMs: 5 });
    expect(outbox.anchor()).toBeNull();
    await outbox.keepAnchor(anchor(7n));
    expect(open(table).outbox.anchor()).toEqual(anchor(7n));
    await outbox.keep(pending(0));
    await outbox.finish([ended(0)], { nowMs: 0, anchor: anchor(9n) });
    expect(open(table).outbox.anchor()).toEqual(anchor(9n));
  });

  test("remembers the chain it belongs to", async () => {
    const { table, outbox } = open();
    expect(outbox.genesis()).toBeNull();
    await outbox.keepGenesis("0xab");
    expect(open(table).outbox.genesis()).toBe("0xab");
  });
});
