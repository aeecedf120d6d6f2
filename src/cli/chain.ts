/**
 * `waypost chain spec`: the first state of a community's chain, from one file with the public keys of its authorities
 * and the first balances. Nothing is compiled or executed: the kept specification of the development chain has the
 * runtime and every entry, and those that depend on keys are replaced. All authorities run it on the same file and
 * compare the SHA-256 of the result.
 * Source: docs/chain.md "Starting a chain".
 */
import { readFile, writeFile } from "node:fs/promises";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { concatBytes, encodeHex0x, equalBytes, utf8 } from "../core/codec/bytes.ts";
import { blake2b128, sha256 } from "../core/codec/crypto.ts";
import { boolean, encodeWith, fixedBytes, structure, u32, u64, u128, vector } from "../core/codec/scale.ts";
import { errorText } from "../core/fault.ts";
import { createReport, print } from "./command.ts";

const authoritiesMax = 32;
const unit = 10n ** 12n;
/** Below it an account is none. */
const leastBalance = 10n ** 9n;

/** The file: members that it must have, and those that it may have. */
type Network = {
  readonly name: string;
  readonly id: string;
  readonly authorities: readonly Authority[];
  readonly balances: readonly Balance[];
  readonly bootNodes: readonly string[];
  readonly selfCertifyingOnly: boolean;
  readonly plainProofs: boolean;
};

type Balance = { readonly account: Uint8Array; readonly amount: bigint };
type Authority = { readonly account: Uint8Array; readonly aura: Uint8Array; readonly grandpa: Uint8Array };

export function registerChainCommand(program: Command): void {
  const chain = program.command("chain").description("prepare a chain of your own");
  chain
    .command("spec <file>")
    .description("make the raw specification of a chain from its authorities' public keys, named in a JSON file")
    .option("--out <file>", "write it there instead of printing it, and print its SHA-256")
    .option("--json", "print the result as JSON")
    .action(async (file: string, flags: { readonly out?: string; readonly json?: boolean }) => {
      const text = `${JSON.stringify(await specificationOf(await readNetwork(file)), null, 2)}\n`;
      if (flags.out === undefined) return void print(text);
      await writeFile(flags.out, text);
      const hash = sha256(utf8(text)).toHex();
      createReport(flags.json === true).result({ file: flags.out, sha256: hash }, `${hash}  ${flags.out}`);
    });
}

/** The kept specification with other keys, balances and rules. */
async function specificationOf(network: Network): Promise<object> {
  const { default: kept } = await import("../../runtime/artifacts/waypost-dev.raw.json");
  const top: Record<string, string> = { ...kept.genesis.raw.top };
  for (const key of Object.keys(top)) if (replaced.some((prefix) => key.startsWith(prefix))) delete top[key];
  for (const [key, value] of ownEntries(network)) top[key] = encodeHex0x(value);
  const sorted = Object.fromEntries(Object.entries(top).sort(([a], [b]) => (a < b ? -1 : 1)));
  return {
    ...kept,
    name: network.name,
    id: network.id,
    chainType: "Live",
    bootNodes: network.bootNodes,
    genesis: { raw: { top: sorted, childrenDefault: {} } },
  };
}

// --------------------------------------------------------------------------------------------- entries of the state

const prefixOf = (pallet: string, name: string): Uint8Array => concatBytes(twox128(pallet), twox128(name));
const places = {
  aura: prefixOf("Aura", "Authorities"),
  authorities: prefixOf("Authorities", "Authorities"),
  grandpa: prefixOf("Grandpa", "Authorities"),
  validators: prefixOf("Session", "Validators"),
  queued: prefixOf("Session", "QueuedKeys"),
  nextKeys: prefixOf("Session", "NextKeys"),
  keyOwner: prefixOf("Session", "KeyOwner"),
  account: prefixOf("System", "Account"),
  issuance: prefixOf("Balances", "TotalIssuance"),
  plainProofs: prefixOf("DidRegistry", "PlainProofs"),
  selfCertifyingOnly: prefixOf("DidRegistry", "SelfCertifyingOnly"),
};
const replaced = Object.values(places).map(encodeHex0x);

const key = fixedBytes(32);
const accounts = vector(key, authoritiesMax);
/** Each with one vote. */
const voters = vector(structure<{ key: Uint8Array; weight: bigint }>({ key, weight: u64 }), authoritiesMax);
const queue = vector(structure<Authority>({ account: key, aura: key, grandpa: key }), authoritiesMax);
const accountInfo = structure<Record<"nonce" | "consumers" | "providers" | "sufficients", number> & Money>({
  ...{ nonce: u32, consumers: u32, providers: u32, sufficients: u32 },
  ...{ free: u128, reserved: u128, frozen: u128, flags: u128 },
});
type Money = Record<"free" | "reserved" | "frozen" | "flags", bigint>;

function ownEntries({ authorities, balances, ...rules }: Network): [string, Uint8Array][] {
  const entries: [string, Uint8Array][] = [];
  const put = (place: Uint8Array, value: Uint8Array) => entries.push([encodeHex0x(place), value]);
  const isAuthority = (account: Uint8Array) => authorities.some((one) => equalBytes(one.account, account));
  const allAccounts = encodeWith(
    accounts,
    authorities.map(({ account }) => account),
  );
  put(places.authorities, allAccounts);
  put(places.validators, allAccounts);
  put(
    places.aura,
    encodeWith(
      accounts,
      authorities.map(({ aura }) => aura),
    ),
  );
  put(
    places.grandpa,
    encodeWith(
      voters,
      authorities.map(({ grandpa }) => ({ key: grandpa, weight: 1n })),
    ),
  );
  put(places.queued, encodeWith(queue, authorities));
  for (const { account, aura, grandpa } of authorities) {
    put(concatBytes(places.nextKeys, twox64Concat(account)), concatBytes(aura, grandpa));
    for (const [kind, own] of [
      ["aura", aura],
      ["gran", grandpa],
    ] as const) {
      // The key of the map is the kind and the key as a byte string.
      const named = concatBytes(utf8(kind), Uint8Array.of(32 << 2), own);
      put(concatBytes(places.keyOwner, twox64Concat(named)), account);
    }
  }
  for (const { account, amount } of balances) {
    // Session keys keep an account from being removed.
    const references = { nonce: 0, consumers: isAuthority(account) ? 1 : 0, providers: 1, sufficients: 0 };
    const money = { free: amount, reserved: 0n, frozen: 0n, flags: 1n << 127n };
    const place = concatBytes(places.account, blake2b128(account), account);
    put(place, encodeWith(accountInfo, { ...references, ...money }));
  }
  put(
    places.issuance,
    encodeWith(
      u128,
      balances.reduce((sum, { amount }) => sum + amount, 0n),
    ),
  );
  put(places.plainProofs, encodeWith(boolean, rules.plainProofs));
  put(places.selfCertifyingOnly, encodeWith(boolean, rules.selfCertifyingOnly));
  return entries;
}

/** XXH64 with the seeds 0 and 1, each little endian. */
function twox128(text: string): Uint8Array {
  return concatBytes(xxh64(utf8(text), 0n), xxh64(utf8(text), 1n));
}

const twox64Concat = (bytes: Uint8Array): Uint8Array => concatBytes(xxh64(bytes, 0n), bytes);

function xxh64(bytes: Uint8Array, seed: bigint): Uint8Array {
  return encodeWith(u64, Bun.hash.xxHash64(bytes, seed));
}

// ---------------------------------------------------------------------------------------------------------- the file

async function readNetwork(file: string): Promise<Network> {
  let json: unknown;
  try {
    json = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    throw failed(`${file}: ${errorText(error)}`);
  }
  const network = membersOf(json, "the file", [
    ...["name", "id", "authorities", "balances"],
    ...["boot_nodes", "self_certifying_only", "plain_proofs"],
  ]);
  const authorities = listOf(network["authorities"], "authorities").map((one, index) => {
    const where = `authorities, number ${index + 1}`;
    const keys = membersOf(one, where, ["account", "aura", "grandpa"]);
    const read = (member: string) => readKey(keys[member], `${where}, ${member}`);
    return { account: read("account"), aura: read("aura"), grandpa: read("grandpa") };
  });
  if (authorities.length === 0 || authorities.length > authoritiesMax) {
    throw failed(`authorities: a chain has from 1 to ${authoritiesMax}`);
  }
  for (const member of ["account", "aura", "grandpa"] as const) {
    checkDistinct(
      authorities.map((authority) => authority[member]),
      `authorities: two have the same ${member}`,
    );
  }
  const balances = Object.entries(membersOf(network["balances"], "balances")).map(([account, amount]) => {
    return { account: readKey(account, `balances: ${account}`), amount: readAmount(amount, account) };
  });
  checkDistinct(
    balances.map(({ account }) => account),
    "balances: an account is there twice",
  );
  const poor = authorities.find(({ account }) => !balances.some((one) => equalBytes(one.account, account)));
  if (poor !== undefined) throw failed(`balances: ${encodeHex0x(poor.account)} has none, and a vote costs a fee`);
  return {
    name: readText(network["name"], "name", /^[^\p{C}]{1,64}$/u),
    id: readText(network["id"], "id", /^[a-z0-9_]{1,64}$/),
    authorities,
    balances,
    bootNodes: listOf(network["boot_nodes"] ?? [], "boot_nodes").map((one) => readText(one, "boot_nodes", /^\/\S+$/)),
    selfCertifyingOnly: readRule(network["self_certifying_only"], "self_certifying_only"),
    plainProofs: readRule(network["plain_proofs"], "plain_proofs"),
  };
}

/** With `names`, no other members. */
function membersOf(value: unknown, where: string, names?: readonly string[]): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw failed(`${where} must be an object`);
  const members = { ...value };
  const unknown = Object.keys(members).find((name) => names?.includes(name) === false);
  if (unknown !== undefined) throw failed(`${where}: ${unknown} is unknown`);
  return members;
}

function listOf(value: unknown, where: string): readonly unknown[] {
  if (!Array.isArray(value)) throw failed(`${where} must be a list`);
  return value;
}

function readText(value: unknown, where: string, form: RegExp): string {
  if (typeof value !== "string" || !form.test(value))
    throw failed(`${where} must be a text of the form ${form.source}`);
  return value;
}

function readRule(value: unknown, where: string): boolean {
  if (value !== undefined && typeof value !== "boolean") throw failed(`${where} must be true or false`);
  return value ?? false;
}

function readKey(value: unknown, where: string): Uint8Array {
  return Uint8Array.fromHex(readText(value, where, /^0x[0-9a-f]{64}$/).slice(2));
}

/** Units with up to twelve decimals, as text. */
function readAmount(value: unknown, account: string): bigint {
  const [whole = "", parts = ""] = readText(value, `balances: ${account}`, /^\d{1,15}(\.\d{1,12})?$/).split(".");
  const amount = BigInt(whole) * unit + BigInt(parts.padEnd(12, "0"));
  if (amount < leastBalance) throw failed(`balances: ${account} has less than 0.001, which is no account`);
  return amount;
}

function checkDistinct(keys: readonly Uint8Array[], otherwise: string): void {
  if (new Set(keys.map((one) => one.toHex())).size < keys.length) throw failed(otherwise);
}
