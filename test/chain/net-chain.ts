/** The campaign's own view of the chain, by the chain library: money, votes, upgrades, and what blocks hold. */
import { readFileSync } from "node:fs";
import { ApiPromise, Keyring, WsProvider } from "@polkadot/api";
import type { SubmittableExtrinsic } from "@polkadot/api/types";
import { blake2AsHex } from "@polkadot/util-crypto";
import { until } from "./stand.ts";

/** How long a busy machine may take for what takes seconds on a quiet one. */
const patienceMs = 900_000;

type Tx = SubmittableExtrinsic<"promise">;

export class Chain {
  private readonly keys = new Keyring({ type: "sr25519", ss58Format: 42 });

  private constructor(private readonly api: ApiPromise) {}

  /** The next endpoint is used when the connection to one is lost. */
  static async open(endpoints: string[]): Promise<Chain> {
    // A node that compiles another runtime answers nobody meanwhile, on a busy machine for minutes.
    const provider = new WsProvider(endpoints, 2_500, {}, patienceMs);
    const api = await ApiPromise.create({ provider, noInitWarn: true, throwOnConnect: true });
    return new Chain(api);
  }

  account(secret: string): string {
    return this.keys.addFromUri(secret).address;
  }

  async endow(secrets: readonly string[], amount: bigint): Promise<void> {
    const txs = secrets.map((secret) => this.tx("balances", "transferKeepAlive", this.account(secret), amount));
    await this.inTurn("//Alice", txs);
    for (const secret of secrets) {
      const { address } = this.keys.addFromUri(secret);
      await until("the money", async () => (await this.stateOf(address)).free > 0n, patienceMs);
    }
  }

  /** Two of three authorities vote, then anybody brings the code. Resolves when a final block has it. */
  async upgrade(file: string): Promise<void> {
    const code = `0x${readFileSync(file).toHex()}`;
    const motion = { AuthorizeUpgrade: { codeHash: blake2AsHex(code, 256) } };
    const before = await this.specVersion();
    for (const voter of ["//Alice", "//Bob"]) await this.inTurn(voter, [this.tx("authorities", "vote", motion)]);
    await until("the vote to be carried", async () => !(await this.isEmpty("authorizedUpgrade")), patienceMs);
    await this.inTurn("//Charlie", [this.tx("system", "applyAuthorizedUpgrade", code)]);
    await until("the upgrade", async () => (await this.specVersion()) === before + 1, patienceMs);
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
    const version = await this.api.rpc.state.getRuntimeVersion(await this.api.rpc.chain.getFinalizedHead());
    return version.specVersion.toNumber();
  }

  async nonce(address: string): Promise<number> {
    return (await this.stateOf(address)).nonce;
  }

  private async stateOf(address: string): Promise<{ readonly nonce: number; readonly free: bigint }> {
    // By its bytes: while the library changes to another runtime, its text may not be read.
    const account = await (await this.finalized()).query.system.account(this.keys.decodeAddress(address));
    return { nonce: account.nonce.toNumber(), free: account.data.free.toBigInt() };
  }

  /** Of every final block: how often each DID was registered, and how many extrinsics of ours failed. */
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
          .filter(({ event, phase }) => phase.isApplyExtrinsic && event.method === "ExtrinsicFailed")
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

  /** Hands in what an account signs, one after the other, each when a final block holds the one before. */
  private async inTurn(secret: string, txs: readonly Tx[]): Promise<void> {
    const pair = this.keys.addFromUri(secret);
    for (const tx of txs) {
      const { nonce } = await this.stateOf(pair.address);
      await tx.signAndSend(pair, { nonce });
      await until("a final block to hold it", async () => (await this.nonce(pair.address)) > nonce, patienceMs);
    }
  }

  close(): Promise<void> {
    return this.api.disconnect();
  }
}
