/**
 * The chain driver and its options: the ledger on a Substrate chain that has the two
 * pallets. It provides nothing else; mailboxes, claims and receipts stay with another
 * store.
 * Source: docs/decisions.md D74 to D76, rules section 4 ("Finality").
 */
import { z } from "zod";
import type { StoragePlugin } from "../../storage/contract.ts";
import type { OpenLocalTable } from "../../storage/table.ts";
import { loadNative } from "../lmdb/lmdb.ts";
import { parseWith, sizeOption } from "../shared/drivers.ts";

const mebibyte = 1024 * 1024;

/** Begins an endpoint that is a light client; the file of a specification follows. */
export const lightScheme = "light:";
export const isLight = (endpoint: string): boolean => endpoint.startsWith(lightScheme);
const isNodeUrl = (text: string): boolean => /^wss?:\/\/[^\s@#]+$/.test(text) && URL.canParse(text);
const endpoint = z
  .string()
  .refine(
    (text) => (isLight(text) ? text.length > lightScheme.length : isNodeUrl(text)),
    "must be a ws:// or wss:// URL without credentials and fragment, or light:<file of a chain specification>",
  );
const milliseconds = (min: number, max: number) => z.int().min(min).max(max);

const amount = z
  .union([
    z.int().min(0),
    z
      .string()
      .regex(/^(0|[1-9][0-9]{0,37})$/, "must be a whole number of the smallest denomination"),
  ])
  .transform((units) => BigInt(units));

export const chainOptions = z.strictObject({
  endpoints: z
    .array(endpoint)
    .min(1)
    .max(16)
    .describe(
      "Nodes of the chain, ws:// or wss://, or light:<specification>; of several, two must agree before a call ends",
    ),
  operator_key_file: z
    .string()
    .min(1)
    .describe("File with the seed or secret phrase of the operator account"),
  operator_key_type: z
    .enum(["sr25519", "ed25519"])
    .default("sr25519")
    .describe("Kind of the operator's key"),
  outbox: z
    .string()
    .min(1)
    .describe(
      "Folder of the submitted calls and their outcomes, on a local disk; created with mode 0700",
    ),
  tip: amount
    .default(0n)
    .describe(
      "Tip for each of the operator's calls, in the smallest denomination; a number or its digits",
    ),
  block_time_ms: milliseconds(10, 3_600_000)
    .optional()
    .describe("Milliseconds between two blocks, if the chain states a wrong time or none"),
  request_timeout_ms: milliseconds(100, 600_000)
    .default(10_000)
    .describe("Longest wait for one answer of a node"),
  reconnect_max_ms: milliseconds(100, 600_000)
    .default(10_000)
    .describe("Longest pause between two rounds through the endpoints"),
  resend_ms: milliseconds(50, 3_600_000)
    .optional()
    .describe("Time after which a call that is in no block is sent again; default four blocks"),
  lifetime_blocks: z
    .int()
    .min(4)
    .max(4_096)
    .refine((blocks) => Number.isInteger(Math.log2(blocks)), "must be a power of two")
    .default(64)
    .describe("Life of an extrinsic in blocks; a power of two"),
  pending_max: z
    .int()
    .min(1)
    .max(1_000_000)
    .default(10_000)
    .describe("Most calls without an outcome; further ones get 503"),
  free_space_floor_bytes: sizeOption(256 * mebibyte, 0).describe(
    "Below this much free space on the file system, calls are refused",
  ),
});

export type ChainOptions = z.output<typeof chainOptions>;

/** Over a table on a local disk, which keeps what was submitted. */
export const chainPluginOver = (openTable: OpenLocalTable): StoragePlugin<ChainOptions> => ({
  name: "chain",
  provides: ["ledger"],
  parseOptions: (input) => parseWith(chainOptions, input),
  async open(options, environment) {
    const { openChain } = await loadNative(() => import("./driver.ts"));
    return openChain(options, environment, openTable);
  },
  migrate: null,
  maintenance: null,
});
