/**
 * The chain store, put together: the connection, reading, the submission lane and its outbox. Loaded only
 * when a configuration names it, because the chain library takes its time to start.
 */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Keyring } from "@polkadot/api";
import { cryptoWaitReady } from "@polkadot/util-crypto";
import { encodeHex0x } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../../core/ledger/policy.ts";
import { errorText } from "../../core/std/error-text.ts";
import { type Ledger, type LedgerHead, type Store, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { openEnvironment } from "../lmdb/environment.ts";
import { openTable } from "../lmdb/table.ts";
import type { OperatorKey } from "./extrinsic.ts";
import { Lane } from "./lane.ts";
import { Link } from "./link.ts";
import type { ChainOptions } from "./options.ts";
import { Outbox } from "./outbox.ts";
import { Reader } from "./reader.ts";

const mebibyte = 1024 * 1024;
/** When the chain does not tell. */
const blockTimeMsDefault = 6_000;

export async function openChain(options: ChainOptions, environment: StoreEnvironment): Promise<Store> {
  const key = await readOperatorKey(options);
  const files = await openEnvironment({
    path: resolve(options.outbox),
    space: { floorBytes: options.free_space_floor_bytes, reserveBytes: mebibyte },
    host: environment,
  });
  let open: Open | null = null;
  try {
    const retention = { retainedMs: options.retention_days * dayMs, retainedMax: options.retention_entries };
    const outbox = new Outbox(
      openTable(files, () => "record"),
      openTable(files, () => "removal"),
      retention,
    );
    open = connect(options, { environment, key, outbox });
    await firstContact(open, options.start_wait_ms);
  } catch (error) {
    await open?.close();
    await files.close();
    throw error;
  }
  const { link, ledger } = open;
  const close = open.close;
  let closed: Promise<void> | null = null;
  return {
    plugin: "chain",
    durability: "flushed",
    capabilities: { ledger },
    async probe() {
      files.checkHealth();
      link.session();
    },
    close() {
      closed ??= close().then(() => files.close());
      return closed;
    },
  };
}

type Open = {
  readonly link: Link;
  readonly lane: Lane;
  readonly ledger: Ledger;
  readonly close: () => Promise<void>;
};

type Parts = {
  readonly environment: StoreEnvironment;
  readonly key: OperatorKey & { readonly address: string };
  readonly outbox: Outbox;
};

function connect(options: ChainOptions, { environment, key, outbox }: Parts): Open {
  const pollMs = options.block_time_ms ?? blockTimeMsDefault;
  const link = new Link(
    {
      endpoints: options.endpoints,
      finality: options.finality,
      names: { did_registry: options.did_registry_pallet, delivery_policy: options.delivery_policy_pallet },
      operator: key.publicKey,
      requestMs: options.request_timeout_ms,
      pollMs,
      reconnectMsMax: options.reconnect_max_ms,
      genesis: outbox.genesis(),
      log: environment.log,
    },
    {
      onSession: (session) => {
        if (outbox.genesis() === null) {
          outbox
            .keepGenesis(session.genesis)
            .catch((error) => environment.fatal(`the outbox can't be written: ${error}`));
        }
        if (session.head?.free === 0n)
          environment.log("warn", "the operator account has no funds", { account: key.address });
        lane.resume();
      },
      onHead: (head) => {
        lane.onHead(head);
      },
      onBest: (hash) => lane.onBest(hash),
    },
  );
  const reader = new Reader(link);
  const limits = {
    pendingMax: options.pending_max,
    inFlightMax: options.in_flight_max,
    resendMs: options.resend_ms ?? 2 * pollMs,
    lifetimeBlocks: options.lifetime_blocks,
  };
  const watchBest = options.finality === "finalized";
  const lane = new Lane({ link, reader, outbox, key, limits, environment, watchBest });
  lane.start();
  link.start();
  const close = async () => {
    await link.close();
    await lane.close();
  };
  return { link, lane, ledger: ledgerOf({ link, reader, lane, key, options }), close };
}

type Wired = {
  readonly link: Link;
  readonly reader: Reader;
  readonly lane: Lane;
  readonly key: OperatorKey;
  readonly options: ChainOptions;
};

function ledgerOf({ link, reader, lane, key, options }: Wired): Ledger {
  const checkOpen = () => {
    if (link.closed) throw new StoreError("closed", "the store is closed");
  };
  function policy(scope: "recipient" | "tag", key: string): Promise<DeliveryPolicy | null>;
  function policy(scope: "persona", key: string): Promise<PersonaPolicy | null>;
  function policy(scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null>;
  async function policy(scope: PolicyScope, name: string): Promise<DeliveryPolicy | PersonaPolicy | null> {
    checkOpen();
    return reader.policy(scope, name);
  }
  return {
    policy,
    async head(): Promise<LedgerHead> {
      const { number, hash, timeMs, surface } = link.session().head;
      const blockTimeMs = options.block_time_ms ?? surface.blockTimeMs ?? blockTimeMsDefault;
      return { finalized: { number, hash, timeMs }, blockTimeMs };
    },
    bounds: async () => link.session().head.surface.bounds,
    account: async (did: Did) => reader.account(did),
    aliasHolder: async (alias: string) => reader.aliasHolder(alias),
    async submit(call: LedgerCall, label: string) {
      checkOpen();
      return lane.submit(call, label);
    },
    async submission(txHash: string) {
      checkOpen();
      const hash = txHash.toLowerCase();
      return /^0x[0-9a-f]{64}$/.test(hash) ? lane.submission(hash) : null;
    },
    operator: async () => key.publicKey.slice(),
  };
}

/**
 * Waits for the first connection. An endpoint that is reached and has another chain is a mistake of the
 * configuration and ends the start; a chain that does not answer yet is waited for while the rest runs.
 */
async function firstContact({ link }: Open, waitMs: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((done) => {
    timer = setTimeout(done, waitMs);
  });
  await Promise.race([link.tried(), late]);
  clearTimeout(timer);
  if (link.differs()) throw new StoreError("unavailable", link.trouble());
}

/** The file holds one line: a seed of 32 bytes in hex, or a secret phrase with or without derivations. */
export async function readOperatorKey({
  operator_key_file: path,
  operator_key_type: type,
}: Pick<ChainOptions, "operator_key_file" | "operator_key_type">): Promise<OperatorKey & { readonly address: string }> {
  let text: string;
  try {
    text = readFileSync(resolve(path), "utf8").trim();
  } catch (error) {
    const reason = errorText(error);
    throw new StoreError("unavailable", `the operator's key file can't be read: ${reason}`, { cause: error });
  }
  await cryptoWaitReady();
  try {
    const pair = new Keyring({ type, ss58Format: 42 }).addFromUri(/^[0-9a-f]{64}$/i.test(text) ? `0x${text}` : text);
    return {
      publicKey: Uint8Array.from(pair.publicKey),
      scheme: type === "sr25519" ? 1 : 0,
      sign: (message) => pair.sign(encodeHex0x(message)),
      address: pair.address,
    };
  } catch {
    // The library's message may quote the secret.
    throw new StoreError("unavailable", `the operator's key file ${path} holds no seed and no secret phrase`);
  }
}
