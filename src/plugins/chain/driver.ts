/**
 * Composes the chain store: the endpoints, reading, submissions and their outbox. Loaded
 * only when a configuration names it, because the chain library loads slowly.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Keyring } from "@polkadot/api";
import { cryptoWaitReady } from "@polkadot/util-crypto";
import { encodeHex0x } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/fault.ts";
import type { PolicyScope } from "../../core/ledger/account.ts";
import { BoundedMap, withDeadline } from "../../core/std/bounded.ts";
import {
  type Ledger,
  type Store,
  type StoreEnvironment,
  StoreError,
} from "../../storage/contract.ts";
import { embeddedLimits } from "../../storage/embedded-records.ts";
import type { OpenLocalTable, OrderedTable } from "../../storage/table.ts";
import type { ChainOptions } from "./chain.ts";
import { Endpoints } from "./endpoints.ts";
import { isOwned, type OperatorKey } from "./layouts.ts";
import { type LightClients, openLightClients } from "./light.ts";
import { ChainOutbox } from "./outbox.ts";
import { KeyProofs } from "./proofs.ts";
import { ChainReader } from "./reader.ts";
import { systemHost } from "./rpc.ts";
import { type ChainHead, type Common, heartbeatMs } from "./session.ts";
import { Submissions } from "./submissions.ts";

const mebibyte = 1024 * 1024;
/** Whose metadata is kept; blocks of more than two at a time are rare. */
const runtimesMax = 8;
/**
 * The age of the final head at which the store is not ready: far above what finality needs,
 * about three blocks.
 */
const headAgeMsMax = 300_000;

export async function openChain(
  options: ChainOptions,
  environment: StoreEnvironment,
  openTable: OpenLocalTable,
): Promise<Store> {
  const key = await readOperatorKey(options);
  const place = {
    folder: resolve(options.outbox),
    floorBytes: options.free_space_floor_bytes,
    reserveBytes: mebibyte,
  };
  const local = await openTable(place, environment);
  let open: OpenLedger | null = null;
  let light: LightClients | null = null;
  try {
    const host = systemHost(environment.now);
    const { log, fatal } = environment;
    light = openLightClients(options, { host, log });
    const { table } = local;
    const { connect } = light;
    open = openLedger(options, {
      key,
      table,
      host,
      log,
      fatal,
      connect,
      runtimes: new BoundedMap(runtimesMax),
    });
    await firstContact(open, options.request_timeout_ms);
  } catch (error) {
    await Promise.all([open?.close(), light?.close()]);
    await local.close();
    throw error;
  }
  const { endpoints, ledger } = open;
  // Together: what is asked of a light client ends with it.
  const closeAll = () => Promise.all([open.close(), light.close()]);
  let closed: Promise<void> | null = null;
  return {
    plugin: "chain",
    capabilities: { ledger },
    async probe() {
      local.checkOpen();
      checkAge(endpoints.session().head, environment.now());
    },
    close() {
      closed ??= closeAll().then(() => local.close());
      return closed;
    },
  };
}

/** A node that stands still, or a chain without finality, confirms nothing. */
function checkAge({ number, timeMs }: ChainHead, nowMs: number): void {
  if (nowMs - timeMs <= headAgeMsMax) return;
  const minutes = Math.floor((nowMs - timeMs) / 60_000);
  throw new StoreError(
    "unavailable",
    `the chain's final head stands still: block ${number} is ${minutes} minutes old`,
  );
}

type LedgerParts = Omit<Common, "settings"> & {
  readonly key: OperatorKey & { readonly address: string };
  readonly table: OrderedTable;
  readonly fatal: StoreEnvironment["fatal"];
};

export type OpenLedger = {
  readonly endpoints: Endpoints;
  readonly ledger: Ledger;
  /**
   * Whether the outbox knew its chain before: then another chain is an outage, not a
   * mistake of a first start.
   */
  readonly isKnown: boolean;
  readonly close: () => Promise<void>;
};

/** Without waiting for the chain. */
export function openLedger(options: ChainOptions, parts: LedgerParts): OpenLedger {
  const { key, host, table, fatal } = parts;
  const outbox = new ChainOutbox(table, embeddedLimits.retainedMax);
  const keepFact: ChainOutbox["keepFact"] = (name, value) =>
    outbox
      .keepFact(name, value)
      .catch((error: unknown) => fatal(`the outbox can't be written: ${errorText(error)}`));
  const genesis = outbox.fact("genesis");
  if (isNewOperator(outbox, key.address)) void keepFact("operator", key.address);
  const common: Common = { ...parts, settings: options };
  const report = reporter(parts);
  // At most once a block time: after a restart, a node behind the last finalized block must
  // not be trusted.
  let anchorMs = Number.NEGATIVE_INFINITY;
  const keepAnchor = ({ anchor }: Endpoints) => {
    if (anchor === null || host.elapsedMs() - anchorMs < heartbeatMs(options)) return;
    anchorMs = host.elapsedMs();
    void keepFact("anchor", anchor);
  };
  const endpoints = new Endpoints(
    { ...common, genesis, anchor: outbox.fact("anchor") },
    {
      onSession: (session) => {
        if (outbox.fact("genesis") === null) void keepFact("genesis", session.genesis);
        submissions.resume();
        proofs.follow();
      },
      onHead: (head, isInUse) => {
        if (isInUse) report(head);
        keepAnchor(endpoints);
        submissions.follow();
        proofs.follow();
      },
    },
  );
  const reader = new ChainReader(endpoints);
  const proofs = new KeyProofs({ ...common, table, endpoints, reader });
  const submissions = new Submissions({ ...common, endpoints, reader, outbox });
  submissions.start();
  endpoints.start();
  return {
    endpoints,
    ledger: ledgerOver({ options, key, endpoints, reader, proofs, submissions }),
    isKnown: genesis !== null,
    async close() {
      await endpoints.close();
      await submissions.close();
      await proofs.close();
    },
  };
}

type ChainParts = {
  readonly options: ChainOptions;
  readonly key: LedgerParts["key"];
  readonly endpoints: Endpoints;
  readonly reader: ChainReader;
  readonly proofs: KeyProofs;
  readonly submissions: Submissions;
};

/** The capability that nodes use: each question goes to the part that answers it. */
function ledgerOver(parts: ChainParts): Ledger {
  const { options, key, endpoints, reader, proofs, submissions } = parts;
  return {
    policy: (async (scope: PolicyScope, name: string) =>
      reader.policy(scope, name)) as Ledger["policy"],
    async head() {
      const { number, hash, timeMs, metadata } = endpoints.session().head;
      const blockTimeMs = options.block_time_ms ?? metadata.blockTimeMs;
      return { finalized: { number, hash, timeMs }, blockTimeMs, asOfMs: timeMs };
    },
    bounds: async () => endpoints.session().head.metadata.bounds,
    account: async (did) => reader.account(did),
    // Others change a chain at any time.
    stamp: () => null,
    keyProof: (did) => proofs.of(did),
    aliasHolder: async (alias) => reader.aliasHolder(alias),
    aliasReserve: async (alias) => reader.aliasReserve(alias),
    submit: (call, label) => submissions.submit(call, label),
    async submission(txHash) {
      if (endpoints.closed) throw new StoreError("closed", "the store is closed");
      const hash = txHash.toLowerCase();
      return /^0x[0-9a-f]{64}$/.test(hash) ? submissions.submission(hash) : null;
    },
    operator: async () => key.publicKey.slice(),
    proofs: async () => endpoints.session().head.proofs,
  };
}

/**
 * Refuses another operator account while calls are pending: signed again by it, they would
 * fail.
 */
function isNewOperator(outbox: ChainOutbox, address: string): boolean {
  const previous = outbox.fact("operator");
  if (previous === address) return false;
  const waiting = previous === null ? [] : outbox.pending().filter(({ call }) => isOwned(call));
  if (waiting.length === 0) return true;
  const text = `${waiting.length} calls that the account ${previous} signed have not ended`;
  throw new StoreError(
    "unavailable",
    `${text}: start with its key until they have, or with another outbox`,
  );
}

/**
 * One line for each runtime that lacks something, and one when the operator's balance is
 * used up.
 */
function reporter({ log, key }: Pick<LedgerParts, "log" | "key">): (head: ChainHead) => void {
  let [isLow, reported] = [false, ""];
  return ({ free, metadata }) => {
    const lacks = metadata.lacks.join("; ");
    if (lacks !== "" && lacks !== reported)
      log("warn", "the chain lacks protections that the reference runtime has", { lacks });
    if (free === 0n && !isLow)
      log("warn", "the operator account has no funds", { account: key.address });
    [isLow, reported] = [free === 0n, lacks];
  };
}

/**
 * Waits for the first connection. At a first start an endpoint that is reached and has
 * another chain is a mistake of the configuration and ends it. Later it is an outage,
 * because the outbox knows its chain: that is waited for while the rest runs, as is a chain
 * that does not answer.
 */
async function firstContact({ endpoints, isKnown }: OpenLedger, waitMs: number): Promise<void> {
  await withDeadline(endpoints.tried(), waitMs);
  if (!isKnown && endpoints.differs()) throw new StoreError("unavailable", endpoints.outage());
}

/**
 * The file holds one line: a seed of 32 bytes in hex, or a secret phrase with or without
 * derivations.
 */
export async function readOperatorKey({
  operator_key_file: path,
  operator_key_type: type,
}: Pick<ChainOptions, "operator_key_file" | "operator_key_type">): Promise<
  OperatorKey & { readonly address: string }
> {
  let text: string;
  try {
    text = readFileSync(resolve(path), "utf8").trim();
  } catch (error) {
    const reason = errorText(error);
    throw new StoreError("unavailable", `the operator's key file can't be read: ${reason}`, {
      cause: error,
    });
  }
  await cryptoWaitReady();
  try {
    const pair = new Keyring({ type, ss58Format: 42 }).addFromUri(
      /^[0-9a-f]{64}$/i.test(text) ? `0x${text}` : text,
    );
    return {
      publicKey: Uint8Array.from(pair.publicKey),
      scheme: type === "sr25519" ? 1 : 0,
      sign: (message) => pair.sign(encodeHex0x(message)),
      address: pair.address,
    };
  } catch {
    // The library's message may quote the secret.
    throw new StoreError(
      "unavailable",
      `the operator's key file ${path} contains neither a seed nor a secret phrase`,
    );
  }
}
