/**
 * The attacks of two audits against the compiled runtime, each as the extrinsics that an attacker
 * would put into a block or into the pool: against names, records, aliases, fees and the majority.
 * They run on the kept runtime, and on the build that can check its own state (`try_state`), which
 * must be whole after them.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ApiPromise, Keyring, WsProvider } from "@polkadot/api";
import type { DispatchError, EventRecord } from "@polkadot/types/interfaces";
import type { Bytes, u64, Vec } from "@polkadot/types-codec";
import type { ITuple } from "@polkadot/types-codec/types";
import { xxhashAsHex } from "@polkadot/util-crypto";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import { authorizationMessage, encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { encodeExtrinsic } from "../../src/plugins/chain/layouts.ts";
import { type RuntimeMetadata, readMetadata } from "../../src/plugins/chain/metadata.ts";
import type { RuntimeVersion } from "../../src/plugins/chain/rpc.ts";
import {
  authorizedCall,
  certifiedOf,
  type Identity,
  identityOf,
  keyOf,
  registrationOf,
} from "../support/identity.ts";
import { apiOver } from "./api.ts";
import { canaryRuntime, endStand, type Node, type NodeOptions, startNode } from "./stand.ts";

afterAll(endStand);

const dayMs = 86_400_000;
const hex = encodeHex0x;
const keys = new Keyring({ type: "sr25519" });
type Account = ReturnType<typeof keys.addFromUri>;
/** Makes an extrinsic of an account as the library would. */
type Make = ReturnType<ApiPromise["tx"][string][string]>;

/** A chain, its clock, and what the runtime says of extrinsics. */
class Trial {
  readonly alice = keys.addFromUri("//Alice");
  readonly bob = keys.addFromUri("//Bob");
  readonly charlie = keys.addFromUri("//Charlie");
  nowMs = Date.now();
  private readonly known = new Map<number, RuntimeMetadata>();

  private constructor(
    readonly node: Node,
    readonly api: ApiPromise,
    readonly genesis: Uint8Array,
  ) {}

  static async open(options: NodeOptions): Promise<Trial> {
    const node = await startNode({ manual: true, strict: true, ...options });
    const api = await apiOver(new WsProvider(node.endpoint));
    return new Trial(node, api, api.genesisHash.toU8a());
  }

  async close(): Promise<void> {
    await this.api.disconnect();
    await this.node.kill();
  }

  tx(pallet: string, call: string, ...values: readonly unknown[]): Make {
    const make = this.api.tx[pallet]?.[call];
    if (make === undefined) throw new Error(`the runtime has no ${pallet}.${call}`);
    return make(...values);
  }

  /** `after` so many other extrinsics of the account. */
  async by(who: Account, call: Make, { after = 0, tip = 0 } = {}): Promise<string> {
    const nonce = (await this.nonceOf(who)) + after;
    return (await call.signAsync(who, { nonce, tip, era: 0 })).toHex();
  }

  private async nonceOf(who: Account): Promise<number> {
    const { nonce } = (await this.read("system", "account", who.address)).toJSON() as {
      readonly nonce: number;
    };
    return nonce;
  }

  /** Of the runtime in force, read once for each version. */
  private async metadata(): Promise<RuntimeMetadata> {
    const version = await this.node.ask<RuntimeVersion>("state_getRuntimeVersion");
    const known = this.known.get(version.specVersion);
    if (known !== undefined) return known;
    const bytes = await this.node.ask<`0x${string}`>("state_getMetadata");
    const metadata = readMetadata(bytes, { version, genesis: this.genesis });
    if (Array.isArray(metadata)) throw new Error(metadata.join());
    this.known.set(version.specVersion, metadata);
    return metadata;
  }

  /** Of a call that carries its proof. */
  async general(call: ReturnType<typeof authorizedCall>): Promise<string> {
    const { node } = this;
    const { frame } = await this.metadata();
    const { number } = await node.ask<{ number: string }>("chain_getHeader");
    const birthHash = Uint8Array.fromHex((await node.ask<string>("chain_getBlockHash")).slice(2));
    const era = { birth: BigInt(number), birthHash, periodBlocks: 64 };
    const key = {
      publicKey: new Uint8Array(32),
      sign: () => new Uint8Array(64),
      scheme: 0 as const,
    };
    return hex(encodeExtrinsic(call, { era, nonce: null, tip: 0n }, { frame, key }).extrinsic);
  }

  /** What an intent of a key is now, for this chain. */
  async proof(
    { did, root }: Identity,
    intent: Intent,
    signerKeyId = "root",
    key = root,
  ): Promise<string> {
    const counters = {
      add_alias: "aliasNonces",
      update_alias: "aliasNonces",
      remove_alias: "aliasNonces",
    } as const;
    const map =
      counters[intent.action as "add_alias"] ??
      (intent.action === "UpdateRootPubkey" ? "rootPubkeyNonces" : "controlNonces");
    const nonce = BigInt((await this.read("didRegistry", map, did)).toString());
    const terms = { nonce, validUntilMs: BigInt(this.nowMs + 600_000), signerKeyId };
    return this.general(authorizedCall(intent, terms, key, this.genesis));
  }

  async read(pallet: string, name: string, ...values: readonly unknown[]) {
    return this.api.query[pallet]![name]!(...values);
  }

  registration(person: Identity, submitter: Account, alias?: string): Make {
    const { pubkey, signature, docBlob, timestamp } = registrationOf(person, {
      timestamp: `v3:0:${this.nowMs + 600_000}`,
      docBlob: encodeDidDocument(emptyDocument(person.did)),
      ...(alias !== undefined && { alias }),
      binding: { genesisHash: this.genesis, submitter: submitter.publicKey },
    });
    const given = [person.did, alias ?? null, timestamp, hex(pubkey), hex(signature), hex(docBlob)];
    return this.tx("didRegistry", "registerWithDocumentProofSigned", ...given);
  }

  /** One block of these extrinsics, in this order: what became of each. */
  async block(...extrinsics: readonly string[]): Promise<string[]> {
    const { node } = this;
    await node.ask("dev_timeTravel", [this.nowMs - 6_000]);
    const given = extrinsics.length === 0 ? [] : [{ transactions: extrinsics }];
    const hash = await node.ask<string>("dev_newBlock", given);
    const { block } = await node.ask<{ block: { extrinsics: string[] } }>("chain_getBlock", [hash]);
    const bytes = await node.ask<string>("state_getStorage", [
      this.api.query["system"]?.["events"]?.key(),
      hash,
    ]);
    const layout = "Vec<FrameSystemEventRecord>";
    const records = this.api.registry.createTypeUnsafe<Vec<EventRecord>>(layout, [bytes]);
    return extrinsics.map((extrinsic) => {
      const place = block.extrinsics.indexOf(extrinsic);
      if (place < 0) return "not in the block";
      const own = records.filter(
        ({ phase }) => phase.isApplyExtrinsic && phase.asApplyExtrinsic.toNumber() === place,
      );
      const failed = own.find(({ event }) => event.method === "ExtrinsicFailed")?.event.data[0] as
        | DispatchError
        | undefined;
      if (failed === undefined) {
        const said = own.filter(({ event }) =>
          ["didRegistry", "authorities"].includes(event.section),
        );
        return said.map(({ event }) => event.method).join(" ");
      }
      return failed.isModule
        ? this.api.registry.findMetaError(failed.asModule as never).name
        : failed.type;
    });
  }

  /** Priority and tags with which the pool takes an extrinsic, or its refusal. */
  async validity(
    extrinsic: string,
  ): Promise<{ readonly priority: bigint; readonly tags: readonly string[] } | string> {
    const hash = await this.node.ask<string>("chain_getBlockHash");
    const given = `0x02${extrinsic.slice(2)}${hash.slice(2)}`;
    const bytes = await this.node.ask<string>("state_call", [
      "TaggedTransactionQueue_validate_transaction",
      given,
    ]);
    if (!bytes.startsWith("0x00")) return bytes;
    const layout = "(u64, Vec<Bytes>, Vec<Bytes>, u64, bool)";
    type Valid = ITuple<[u64, Vec<Bytes>, Vec<Bytes>]>;
    const [priority, , tags] = this.api.registry.createTypeUnsafe<Valid>(layout, [
      `0x${bytes.slice(4)}`,
    ]);
    return { priority: priority.toBigInt(), tags: tags.map((tag) => tag.toHex()) };
  }

  async holder(alias: string): Promise<string | null> {
    const did = (await this.read("didRegistry", "aliasIndex", alias)).toHuman();
    return typeof did === "string" ? did : null;
  }

  async held(who: Account): Promise<bigint> {
    const { data } = (await this.read("system", "account", who.address)).toJSON() as {
      readonly data: { readonly reserved: string | number };
    };
    return BigInt(data.reserved);
  }

  /** `null` when the maps of the registry agree (`try_state`). */
  async damage(): Promise<string | null> {
    return this.node.ask<string>("state_call", ["CheckState_check_state", "0x"]).then(
      () => null,
      (error: unknown) => String(error),
    );
  }
}

let people = 0;
const person = (): Identity => identityOf(`attacks ${people++} ${crypto.randomUUID()}`);

const builds: readonly (readonly [name: string, options: NodeOptions])[] = [
  ["the kept runtime", {}],
  ["the runtime that checks its state", { runtime: canaryRuntime }],
];

describe.each(builds)("%s", (_, options) => {
  let trial: Trial;
  beforeAll(async () => {
    trial = await Trial.open(options);
  });
  afterAll(() => trial.close());

  const registered = async (who: Identity, submitter: Account, alias?: string): Promise<string[]> =>
    trial.block(await trial.by(submitter, trial.registration(who, submitter, alias)));

  test("an owner's account changes no document, device or life of a DID", async () => {
    const victim = person();
    const { alice } = trial;
    await registered(victim, alice);
    const { did } = victim;
    const blob = hex(encodeDidDocument(emptyDocument(did)));
    const calls: [string, ...unknown[]][] = [
      ["setDocument", did, blob],
      ["deactivateDid", did],
      ["addDevice", did, "phone"],
      ["tombstoneDevice", did, "phone"],
      ["updateDevice", did, "phone", "other"],
      ["removeDevice", did, "phone"],
    ];
    const extrinsics = await Promise.all(
      calls.map(([name, ...values], after) =>
        trial.by(alice, trial.tx("didRegistry", name, ...values), { after }),
      ),
    );
    expect(await trial.block(...extrinsics)).toEqual(calls.map(() => "RootKeyRequired"));
  });

  test("a registration that a watcher submits first is not his", async () => {
    const victim = person();
    const stolen = trial.registration(victim, trial.alice);
    const [theft, own] = [
      await trial.by(trial.bob, stolen, { tip: 1_000 }),
      await trial.by(trial.alice, stolen),
    ];
    expect(await trial.block(theft, own)).toEqual(["InvalidSignature", "Registered DocumentSet"]);
  });

  /**
   * So key proofs need no events: what a block shows of a call with a proof tells whether it was
   * applied.
   */
  test("a call with a proof is refused in the extrinsic of an account, and in a general one is only in a block when applied", async () => {
    const victim = person();
    await registered(victim, trial.alice);
    const { did, root } = victim;
    const intent = {
      did,
      action: "UpdateRootPubkey",
      newRootPubkey: keyOf(`${victim.label} next`).publicKey,
    } as const;
    const rotationAt = (nonce: bigint) => {
      const terms = { nonce, validUntilMs: BigInt(trial.nowMs + 600_000), signerKeyId: "root" };
      return authorizedCall(intent, terms, root, trial.genesis);
    };
    const call = rotationAt(0n) as ReturnType<typeof authorizedCall> & {
      signedPayload: Uint8Array;
      signature: Uint8Array;
    };
    const given = [
      did,
      hex(intent.newRootPubkey),
      hex(call.signedPayload),
      hex(call.signature),
      "root",
    ];
    const wrapped = await trial.by(
      trial.bob,
      trial.tx("didRegistry", "updateRootPubkey", ...given),
    );
    const extrinsics = [wrapped, await trial.general(rotationAt(1n)), await trial.general(call)];
    expect(await trial.block(...extrinsics)).toEqual([
      "BadOrigin",
      "not in the block",
      "RootPubkeyUpdated",
    ]);
  });

  test("a self-certifying name is registered by no other key, and only root ends it", async () => {
    const victim = certifiedOf(crypto.randomUUID(), trial.genesis);
    const squatter = { ...person(), did: victim.did };
    const attack = await trial.by(trial.bob, trial.registration(squatter, trial.bob), {
      tip: 1_000,
    });
    expect(await trial.block(attack)).toEqual(["NameNotDerived"]);
    // Without a document nothing would prove its keys.
    const given = [victim.did, null, "v3:0:1", hex(victim.root.publicKey), hex(new Uint8Array(64))];
    const bare = await trial.by(trial.bob, trial.tx("didRegistry", "registerWithProof", ...given));
    expect(await trial.block(bare)).toEqual(["DocumentNeeded"]);
    expect(await registered(victim, trial.alice)).toEqual(["Registered DocumentSet"]);
    const end: Intent = { did: victim.did, action: "delete_did" };
    const change: Intent = { did: victim.did, action: "add_alias", alias: `own-${people}` };
    // A signer that is not root is asked for the right to end before its key is looked at.
    const byMethod = await trial.proof(victim, end, `${victim.did}#k1`);
    // Invalid, `Custom`, OnlyRootSigns.
    expect(await trial.validity(byMethod)).toBe("0x01000737");
    expect(await trial.block(await trial.proof(victim, change))).toEqual(["AliasAdded"]);
    expect(await trial.block(await trial.proof(victim, end))).toEqual(["DidDeleted"]);
    trial.nowMs += 1_000;
    expect(await registered(victim, trial.alice)).toEqual(["NameRetired"]);
  });

  test("an operator moves no alias to another DID, nor takes one that was released", async () => {
    const [victim, attacker] = [person(), person()];
    const { alice } = trial;
    const alias = `bank-${people}`;
    await registered(victim, alice, alias);
    await registered(attacker, alice);
    const set = (who: Identity, name: string, after: number) =>
      trial.by(alice, trial.tx("didRegistry", "setAlias", who.did, name), { after });
    // The alias of the victim is replaced, which would release it, and given to the attacker in the
    // same block.
    expect(
      await trial.block(await set(victim, `other-${people}`, 0), await set(attacker, alias, 1)),
    ).toEqual(["RootKeyRequired", "AliasTaken"]);
    expect(await trial.holder(alias)).toBe(victim.did);
    // The victim releases it: for thirty days it is his alone.
    const release: Intent = { did: victim.did, action: "remove_alias", alias };
    expect(await trial.block(await trial.proof(victim, release))).toEqual(["AliasRemoved"]);
    expect(await trial.block(await set(attacker, alias, 0))).toEqual(["AliasTaken"]);
    const registeredWith = await registered(person(), alice, alias);
    expect(registeredWith).toEqual(["Registered DocumentSet AliasConflict"]);
    const again: Intent = { did: victim.did, action: "add_alias", alias };
    expect(await trial.block(await trial.proof(victim, again))).toEqual(["AliasAdded"]);
    expect(
      await trial.block(await trial.proof(victim, { did: victim.did, action: "delete_did" })),
    ).toEqual(["DidDeleted"]);
    // Another key registers the same name: the alias is no one's.
    trial.nowMs += 1_000;
    const heir = { ...person(), did: victim.did };
    expect(await registered(heir, trial.bob, alias)).toEqual([
      "Registered DocumentSet AliasConflict",
    ]);
    trial.nowMs += 30 * dayMs;
    expect(await trial.block(await set(attacker, alias, 0))).toEqual(["AliasSet"]);
  });

  test("nobody takes an alias that a registration in the pool names without paying", async () => {
    const [victim, watcher] = [person(), person()];
    const alias = `wanted-${people}`;
    await registered(watcher, trial.bob);
    const registration = await trial.by(
      trial.alice,
      trial.registration(victim, trial.alice, alias),
    );
    const free = await trial.proof(watcher, { did: watcher.did, action: "add_alias", alias });
    const [paid, unpaid] = [await trial.validity(registration), await trial.validity(free)];
    if (typeof paid === "string" || typeof unpaid === "string")
      throw new Error(`${paid} ${unpaid}`);
    expect(paid.priority).toBeGreaterThan(unpaid.priority);
    // Of two free calls for one alias the pool keeps the first.
    const other = person();
    await registered(other, trial.bob);
    const second = await trial.validity(
      await trial.proof(other, { did: other.did, action: "add_alias", alias }),
    );
    if (typeof second === "string") throw new Error(second);
    expect(second.tags.filter((tag) => unpaid.tags.includes(tag))).toHaveLength(1);
  });

  test("calls that nobody pays raise no fee", async () => {
    const before = (await trial.read("transactionPayment", "nextFeeMultiplier")).toString();
    const [one, two] = [person(), person()];
    await registered(one, trial.alice);
    await registered(two, trial.alice);
    const deletions = await Promise.all(
      [one, two].map((who) => trial.proof(who, { did: who.did, action: "delete_did" })),
    );
    expect(await trial.block(...deletions)).toEqual(["DidDeleted", "DidDeleted"]);
    expect((await trial.read("transactionPayment", "nextFeeMultiplier")).toString()).toBe(before);
  });

  test("an owner is changed by his account or by the DID's keys, and the deposit goes with him", async () => {
    const subject = person();
    const { alice, bob, charlie } = trial;
    await registered(subject, alice);
    const change = (owner: Account) =>
      trial.tx("didRegistry", "changeOwner", subject.did, owner.publicKey);
    const before = { alice: await trial.held(alice), bob: await trial.held(bob) };
    expect(await trial.block(await trial.by(bob, change(bob)))).toEqual(["NotDidOwner"]);
    expect(await trial.block(await trial.by(alice, change(bob)))).toEqual(["OwnerChanged"]);
    const deposit = before.alice - (await trial.held(alice));
    expect(deposit).toBeGreaterThan(0n);
    expect((await trial.held(bob)) - before.bob).toBe(deposit);
    const adopt = async (named: Account, nonce: bigint) => {
      const layout = "(Bytes, (u8, [u8; 32]), u64, u64, Bytes)";
      const action = [8, hex(named.publicKey)];
      const values = [subject.did, action, nonce, trial.nowMs + 600_000, "root"];
      const signedPayload = trial.api.createType(layout, values).toU8a();
      const signature = subject.root.sign(
        authorizationMessage("control", trial.genesis, signedPayload),
      );
      return trial.tx("didRegistry", "adopt", hex(signedPayload), hex(signature), "root");
    };
    // The proof names one account: no one else can bring it.
    expect(await trial.block(await trial.by(alice, await adopt(charlie, 0n)))).toEqual([
      "InvalidControlPayload",
    ]);
    expect(await trial.block(await trial.by(charlie, await adopt(charlie, 0n)))).toEqual([
      "OwnerChanged",
    ]);
    expect(await trial.held(bob)).toBe(before.bob);
    expect(await trial.held(charlie)).toBe(deposit);
    expect(await trial.block(await trial.by(charlie, await adopt(charlie, 0n)))).toEqual([
      "InvalidControlNonce",
    ]);
    // A year without a change, and the deposit of what was given up comes back.
    const reclaim = () => trial.by(charlie, trial.tx("didRegistry", "reclaimDeposit", subject.did));
    expect(await trial.block(await reclaim())).toEqual(["DidInUse"]);
    trial.nowMs += 365 * dayMs;
    expect(
      await trial.block(
        await trial.by(bob, trial.tx("didRegistry", "reclaimDeposit", subject.did)),
      ),
    ).toEqual(["NotDidOwner"]);
    expect(await trial.block(await reclaim())).toEqual(["DidDeactivated DepositReturned"]);
    expect(await trial.held(charlie)).toBe(0n);
    const thief = { ...person(), did: subject.did };
    expect(await registered(thief, bob)).toEqual(["DidAlreadyExists"]);
  });

  test("a majority's runtime waits a day", async () => {
    const codeHash = `0x${"07".repeat(32)}`;
    const motion = { AuthorizeUpgrade: { codeHash } };
    expect(
      await trial.block(await trial.by(trial.bob, trial.tx("authorities", "vote", motion))),
    ).toEqual(["NotAuthority"]);
    expect(
      await trial.block(await trial.by(trial.alice, trial.tx("authorities", "vote", motion))),
    ).toEqual(["Voted Carried"]);
    const authorized = async () => !(await trial.read("system", "authorizedUpgrade")).isEmpty;
    expect(await authorized()).toBe(false);
    const { number } = await trial.node.ask<{ number: string }>("chain_getHeader");
    const [hash, at] = (await trial.read("authorities", "upgrade")).toJSON() as [string, number];
    expect([hash, at]).toEqual([codeHash, Number(number) + 14_400]);
    // The block before its time, and its time.
    const key = `${xxhashAsHex("Authorities", 128)}${xxhashAsHex("Upgrade", 128).slice(2)}`;
    const waitsUntil = (block: number) => {
      const bytes = new Uint8Array(4);
      new DataView(bytes.buffer).setUint32(0, block, true);
      return trial.node.ask("dev_setStorage", [[[key, `${codeHash}${bytes.toHex()}`]]]);
    };
    await waitsUntil(Number(number) + 2);
    await trial.block();
    expect(await authorized()).toBe(false);
    await trial.block();
    expect(await authorized()).toBe(true);
  });

  test("no account but the majority changes code, authorities or finality", async () => {
    const { alice, api } = trial;
    const calls = [
      trial.tx("system", "setCode", "0x00"),
      trial.tx("system", "setStorage", [["0x00", "0x00"]]),
      trial.tx("system", "authorizeUpgrade", `0x${"07".repeat(32)}`),
      trial.tx("balances", "forceSetBalance", alice.address, 1),
      trial.tx("grandpa", "noteStalled", 1, 1),
    ];
    const extrinsics = await Promise.all(
      calls.map((call, after) => trial.by(alice, call, { after })),
    );
    expect(await trial.block(...extrinsics)).toEqual(calls.map(() => "BadOrigin"));
    expect(api.tx["sudo"]).toBeUndefined();
    const last = trial.tx("authorities", "vote", { Remove: { authority: alice.address } });
    const ahead = trial.tx("authorities", "vote", { RestartFinality: { lastFinal: 4_000_000 } });
    expect(
      await trial.block(await trial.by(alice, last), await trial.by(alice, ahead, { after: 1 })),
    ).toEqual(["LastAuthority", "FutureBlock"]);
  });

  if (!("runtime" in options)) return;
  test("has a whole state after all of this, and would notice damage", async () => {
    expect(await trial.damage()).toBeNull();
    const survivor = person();
    await registered(survivor, trial.alice, `survivor-${people}`);
    const key = trial.api.query["didRegistry"]!["aliasIndex"]!.key(`survivor-${people}`);
    await trial.node.ask("dev_setStorage", [[[key, null]]]);
    expect(await trial.damage()).toMatch(/RuntimeError|unreachable/);
  });
});
