/**
 * The comparisons of the differential test after each block: the model's result of every call with
 * the block's, and the model's state with what the plugin reads from the chain. A difference is a
 * line that names its place and both sides.
 */
import type { TypeRegistry } from "@polkadot/types";
import type { DispatchError, EventRecord } from "@polkadot/types/interfaces";
import type { Vec } from "@polkadot/types-codec";
import { decodeUtf8, encodeHex0x } from "../../src/core/codec/bytes.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { extrinsicHash, type OperatorKey } from "../../src/plugins/chain/layouts.ts";
import type { RuntimeMetadata } from "../../src/plugins/chain/metadata.ts";
import type { Ledger } from "../../src/storage/contract.ts";
import type { LedgerEvent } from "../oracles/ledger-events.ts";
import type { Identity } from "../support/identity.ts";
import type { World } from "../support/world.ts";
import { type Node, until } from "./stand.ts";

/** The chain's side: a node, what its metadata says, and the plugin that reads it. */
export type ChainSide = {
  readonly node: Node;
  readonly ledger: Ledger;
  readonly metadata: RuntimeMetadata;
  readonly registry: TypeRegistry;
  readonly key: OperatorKey;
  /** Names of the errors of the registry pallet by their index. */
  readonly errors: readonly string[];
};

/** twox128 of `System` and of `Events`. */
const eventsKey = "0x26aa394eea5630e07c48ae0c9558cef780d41e5e16056765bc8461851072c9d7";

/** An extrinsic for a block, and what the model says of it: events, or the name of the refusal. */
export type Expected = {
  readonly bytes: Uint8Array;
  readonly expected: string;
  readonly call: LedgerCall;
};

/** The name of the refusal with which the node's validation meets an extrinsic, or `taken`. */
export async function validated({ node, errors }: ChainSide, bytes: Uint8Array): Promise<string> {
  const answer = await node.ask<string>("author_submitExtrinsic", [encodeHex0x(bytes)]).then(
    () => "taken",
    (refusal: unknown) => String(refusal),
  );
  const custom = /"custom":(\d+)/.exec(answer)?.[1];
  if (custom !== undefined) return errors[Number(custom)] ?? answer;
  return /badProof/.test(answer) ? "InvalidSignature" : answer;
}

export async function blockDifferences(
  chain: ChainSide,
  hash: string,
  expected: readonly Expected[],
): Promise<string[]> {
  const { node } = chain;
  const { block } = await node.ask<{ block: { extrinsics: string[] } }>("chain_getBlock", [hash]);
  const places = new Map(
    block.extrinsics.map((text, index) => [
      extrinsicHash(Uint8Array.fromHex(text.slice(2))),
      index,
    ]),
  );
  const said = await saidOf(chain, hash);
  const differences: string[] = [];
  for (const { bytes, expected: wanted, call } of expected) {
    const place = places.get(extrinsicHash(bytes));
    const found =
      place === undefined
        ? `not in the block (${await validated(chain, bytes)})`
        : (said.get(place) ?? []).join(" ");
    if (found !== wanted)
      differences.push(`${callText(call)}: the model says ${wanted}, the runtime: ${found}`);
  }
  return differences;
}

/** By the index of an extrinsic: events of our pallets in their order, or the name of the error. */
async function saidOf({ node, registry }: ChainSide, hash: string): Promise<Map<number, string[]>> {
  const bytes = await node.ask<string>("state_getStorage", [eventsKey, hash]);
  const records = registry.createTypeUnsafe<Vec<EventRecord>>("Vec<FrameSystemEventRecord>", [
    bytes,
  ]);
  const said = new Map<number, string[]>();
  for (const { phase, event } of records) {
    if (!phase.isApplyExtrinsic) continue;
    const index = phase.asApplyExtrinsic.toNumber();
    const lines = said.get(index) ?? [];
    said.set(index, lines);
    if (event.section === "didRegistry" || event.section === "deliveryPolicy")
      lines.push(chainEventText(event));
    else if (event.method === "ExtrinsicFailed") {
      const error = event.data[0] as DispatchError;
      lines.push(error.isModule ? registry.findMetaError(error.asModule).name : error.type);
    }
  }
  return said;
}

/** Names with the texts of their fields; the account of a registration shows in its record. */
function chainEventText(event: EventRecord["event"]): string {
  const fields = event.data.flatMap((field) => {
    if (field.toRawType() === "Bytes") return [decodeUtf8(field.toU8a(true)) ?? "?"];
    return event.section === "deliveryPolicy" ? [field.toString().toLowerCase()] : [];
  });
  return `${event.method}(${fields.join(",")})`;
}

export function eventText(events: readonly LedgerEvent[]): string {
  return events.map(({ name, fields }) => `${name}(${fields.join(",")})`).join(" ");
}

/**
 * What belongs to a group of people: their accounts and policies, and the aliases that they may
 * hold.
 */
export type Group = {
  readonly identities: readonly Identity[];
  readonly aliases: readonly string[];
  readonly world: World;
};

export async function stateDifferences(
  { ledger }: ChainSide,
  hash: string,
  group: Group,
): Promise<string[]> {
  const { identities, aliases, world } = group;
  await until(
    "the plugin to see the block",
    async () => (await ledger.head()).finalized.hash === hash,
  );
  const scopes = ["recipient", "tag", "persona"] as const;
  const found = await Promise.all([
    ...identities.map(async ({ did }) =>
      partsThatDiffer(did, world.account(did), await ledger.account(did)),
    ),
    ...aliases.map(async (alias) =>
      partsThatDiffer(
        `alias ${alias}`,
        world.aliases.get(alias) ?? null,
        await ledger.aliasHolder(alias),
      ),
    ),
    ...aliases.map(async (alias) =>
      partsThatDiffer(
        `reserve ${alias}`,
        world.reserves.get(alias) ?? null,
        await ledger.aliasReserve(alias),
      ),
    ),
    ...identities.flatMap(({ did }) =>
      scopes.map(async (scope) =>
        partsThatDiffer(
          `${scope} ${did}`,
          world.policies.get(`${scope} ${did}`) ?? null,
          await ledger.policy(scope, did),
        ),
      ),
    ),
  ]);
  return found.flat();
}

/** Goes down to the members that differ, so that a line says which they are. */
function partsThatDiffer(where: string, expected: unknown, found: unknown): string[] {
  if (Bun.deepEquals(expected, found)) return [];
  if (!isPlain(expected) || !isPlain(found))
    return [`${where}: the model has ${show(expected)}, the chain ${show(found)}`];
  const names = new Set([...Object.keys(expected), ...Object.keys(found)]);
  return [...names].flatMap((name) =>
    partsThatDiffer(`${where} ${name}`, expected[name], found[name]),
  );
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Uint8Array)
  );
}

const show = (value: unknown): string =>
  String(
    JSON.stringify(value, (_, part: unknown) =>
      typeof part === "bigint" ? `${part}n` : part instanceof Uint8Array ? part.toHex() : part,
    ),
  );

export const callText = (call: LedgerCall): string => `${call.name} ${show(call)}`.slice(0, 600);
