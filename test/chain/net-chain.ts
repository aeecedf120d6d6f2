/**
 * The campaign's own view of the chain, by the chain library: money, votes, upgrades, and what
 * blocks hold.
 */
import { readFileSync } from "node:fs";
import { type ApiPromise, Keyring, WsProvider } from "@polkadot/api";
import type { SubmittableExtrinsic } from "@polkadot/api/types";
import type { KeyringPair } from "@polkadot/keyring/types";
import { concatBytes } from "../../src/core/codec/bytes.ts";
import { blake2b128 } from "../../src/core/codec/crypto.ts";
import { readAccountState } from "../../src/plugins/chain/metadata.ts";
import { apiOver } from "./api.ts";
import type { NetworkNode } from "./network.ts";
import { until } from "./stand.ts";

/** Of `System.Account`. */
const accountPrefix = "0x26aa394eea5630e07c48ae0c9558cef7b99d880ec681799c0cf30e8886371da9";
/** How long a busy machine may take for what takes seconds on a quiet one. */
const patienceMs = 900_000;

type Tx = SubmittableExtrinsic<"promise">;

export class Chain {
  private readonly keys = new Keyring({ type: "sr25519", ss58Format: 42 });

  private constructor(
    private api: ApiPromise,
    private readonly nodes: readonly NetworkNode[],
  ) {}

  /** The next node is asked when the connection to one is lost. */
  static async open(nodes: readonly NetworkNode[]): Promise<Chain> {
    return new Chain(await connect(nodes), nodes);
  }

  account(secret: string): string {
    return this.keys.addFromUri(secret).address;
  }

  async endow(secrets: readonly string[], amount: bigint): Promise<void> {
    const txs = secrets.map((secret) =>
      this.tx("balances", "transferKeepAlive", this.account(secret), amount),
    );
    await this.inTurn("//Alice", txs);
    for (const secret of secrets) {
      const { address } = this.keys.addFromUri(secret);
      await until("the money", async () => (await this.stateOf(address)).free > 0n, patienceMs);
    }
  }

  /**
   * Anybody brings the code for which the authorities have voted, once its time has come. Resolves
   * when a final block has it.
   */
  async upgrade(file: string): Promise<void> {
    const code = `0x${readFileSync(file).toHex()}`;
    const before = await this.specVersion();
    await until(
      "the upgrade to be authorized",
      async () => !(await this.isEmpty("authorizedUpgrade")),
      patienceMs,
    );
    await this.inTurn("//Charlie", [this.tx("system", "applyAuthorizedUpgrade", code)]);
    await until("the upgrade", async () => (await this.specVersion()) === before + 1, patienceMs);
    // A library that saw the change of runtimes may mix their types up.
    await this.api.disconnect();
    this.api = await connect(this.nodes);
  }

  private async isEmpty(item: string): Promise<boolean> {
    const at = await this.finalized();
    return (await at.query["system"]?.[item]?.())?.isEmpty ?? true;
  }

  private async finalized() {
    return this.api.at(await this.api.rpc.chain.getFinalizedHead());
  }

  /** Of the newest final block. */
  async specVersion(): Promise<number> {
    const version = await this.api.rpc.state.getRuntimeVersion(
      await this.api.rpc.chain.getFinalizedHead(),
    );
    return version.specVersion.toNumber();
  }

  async nonce(address: string): Promise<number> {
    return (await this.stateOf(address)).nonce;
  }

  /**
   * At the newest final block of those who answer. Read without the library, which for a while
   * after an upgrade reads entries by the types of the other runtime.
   */
  private async stateOf(
    address: string,
  ): Promise<{ readonly nonce: number; readonly free: bigint }> {
    const id = this.keys.decodeAddress(address);
    const key = `${accountPrefix}${concatBytes(blake2b128(id), id).toHex()}`;
    const answers = await Promise.allSettled(
      this.nodes.map(async ({ ask }) => {
        const head = await ask<string>("chain_getFinalizedHead");
        const value = await ask<string | null>("state_getStorage", [key, head]);
        return readAccountState(value === null ? null : Uint8Array.fromHex(value.slice(2)));
      }),
    );
    const states = answers.flatMap((answer) =>
      answer.status === "fulfilled" ? [answer.value] : [],
    );
    const newest = states.toSorted((a, b) => b.nonce - a.nonce || (b.free > a.free ? 1 : -1));
    return newest[0] ?? { nonce: 0, free: 0n };
  }

  /**
   * Of every final block: how often each DID was registered, and how many extrinsics of ours
   * failed.
   */
  async registrations(): Promise<{
    readonly byDid: ReadonlyMap<string, number>;
    readonly failed: number;
    readonly blocks: number;
  }> {
    const byDid = new Map<string, number>();
    let failed = 0;
    const head = await this.api.rpc.chain.getHeader(await this.api.rpc.chain.getFinalizedHead());
    for (let number = 1; number <= head.number.toNumber(); number++) {
      const hash = await this.api.rpc.chain.getBlockHash(number);
      const [{ block }, events] = await Promise.all([
        this.api.rpc.chain.getBlock(hash),
        this.api.at(hash).then((at) => at.query.system.events()),
      ]);
      const lost = new Set(
        events
          .filter(
            ({ event, phase }) => phase.isApplyExtrinsic && event.method === "ExtrinsicFailed",
          )
          .map(({ phase }) => phase.asApplyExtrinsic.toNumber()),
      );
      for (const [index, { method }] of block.extrinsics.entries()) {
        if (method.section !== "didRegistry") continue;
        const did = Buffer.from(method.args[0]?.toU8a(true) ?? []).toString("utf8");
        if (lost.has(index)) failed++;
        byDid.set(did, (byDid.get(did) ?? 0) + 1);
      }
    }
    return { byDid, failed, blocks: head.number.toNumber() };
  }

  private tx(pallet: string, name: string, ...values: readonly unknown[]): Tx {
    const make = this.api.tx[pallet]?.[name];
    if (make === undefined) throw new Error(`the runtime has no ${pallet}.${name}`);
    return make(...values);
  }

  /**
   * Hands in what an account signs, one after the other, each when a final block holds the one
   * before.
   */
  private async inTurn(secret: string, txs: readonly Tx[]): Promise<void> {
    const pair = this.keys.addFromUri(secret);
    for (const tx of txs) {
      const { nonce } = await this.stateOf(pair.address);
      await until(
        `a final block to hold the call of ${secret}`,
        () => this.isHeld(pair, nonce, tx),
        patienceMs,
      );
    }
  }

  /**
   * A node may refuse or lose a call on a busy machine: all get it, until the account has used its
   * nonce.
   */
  private async isHeld(pair: KeyringPair, nonce: number, tx: Tx): Promise<boolean> {
    if ((await this.nonce(pair.address)) > nonce) return true;
    const signed = (await tx.signAsync(pair, { nonce })).toHex();
    await Promise.allSettled(
      this.nodes.map((node) => node.ask("author_submitExtrinsic", [signed])),
    );
    for (let n = 0; n < 10 && (await this.nonce(pair.address)) === nonce; n++)
      await Bun.sleep(3_000);
    return false;
  }

  close(): Promise<void> {
    return this.api.disconnect();
  }
}

/** A node that compiles another runtime answers no one meanwhile, on a busy machine for minutes. */
function connect(nodes: readonly NetworkNode[]): Promise<ApiPromise> {
  const endpoints = nodes.map(({ endpoint }) => endpoint);
  const provider = new WsProvider(endpoints, 2_500, {}, patienceMs);
  return apiOver(provider, { throwOnConnect: true });
}
