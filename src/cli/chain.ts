/**
 * `waypost chain spec`: the first state of a community's chain, from one file with the public keys
 * of its authorities and the first balances. Nothing is compiled or executed: the kept
 * specification of the development chain has the runtime and every entry, and those that depend on
 * keys are replaced. All authorities run it on the same file and compare the SHA-256 of the result.
 * Source: docs/chain.md "Starting a chain".
 */
import { readFile, writeFile } from "node:fs/promises";
import type { Command } from "commander";
import { z } from "zod";
import { failed } from "../app/failure.ts";
import { concatBytes, encodeHex0x, equalBytes, utf8 } from "../core/codec/bytes.ts";
import { blake2b128, sha256 } from "../core/codec/crypto.ts";
import {
  boolean,
  encodeWith,
  fixedBytes,
  structure,
  u32,
  u64,
  u128,
  vector,
} from "../core/codec/scale.ts";
import { errorText } from "../core/fault.ts";
import { parseWith } from "../plugins/shared/drivers.ts";
import { createReport, print } from "./command.ts";

const authoritiesMax = 32;
const unit = 10n ** 12n;
/** Below it an account is none. */
const leastBalance = 10n ** 9n;

type Network = Omit<z.output<typeof networkFile>, "balances"> & {
  readonly balances: readonly Balance[];
};
type Balance = { readonly account: Uint8Array; readonly amount: bigint };
type Authority = {
  readonly account: Uint8Array;
  readonly aura: Uint8Array;
  readonly grandpa: Uint8Array;
};

export function registerChainCommand(program: Command): void {
  const chain = program.command("chain").description("prepare a chain of your own");
  chain
    .command("spec <file>")
    .description(
      "make the raw specification of a chain from its authorities' public keys, named in a JSON file",
    )
    .option("--out <file>", "write it there instead of printing it, and print its SHA-256")
    .option("--json", "print the result as JSON")
    .action(async (file: string, flags: { readonly out?: string; readonly json?: boolean }) => {
      const text = `${JSON.stringify(await specificationOf(await readNetwork(file)), null, 2)}\n`;
      if (flags.out === undefined) return void print(text);
      await writeFile(flags.out, text);
      const hash = sha256(utf8(text)).toHex();
      createReport(flags.json === true).result(
        { file: flags.out, sha256: hash },
        `${hash}  ${flags.out}`,
      );
    });
}

/** The kept specification with other keys, balances and rules. */
async function specificationOf(network: Network): Promise<object> {
  const { default: kept } = await import("../../runtime/artifacts/waypost-dev.raw.json");
  const top: Record<string, string> = { ...kept.genesis.raw.top };
  for (const key of Object.keys(top))
    if (replaced.some((prefix) => key.startsWith(prefix))) delete top[key];
  for (const [key, value] of ownEntries(network)) top[key] = encodeHex0x(value);
  const sorted = Object.fromEntries(Object.entries(top).sort(([a], [b]) => (a < b ? -1 : 1)));
  return {
    ...kept,
    name: network.name,
    id: network.id,
    chainType: "Live",
    bootNodes: network.boot_nodes,
    genesis: { raw: { top: sorted, childrenDefault: {} } },
  };
}

// ---------------------------------------------------------------------------- entries of the state

const prefixOf = (pallet: string, name: string): Uint8Array =>
  concatBytes(twox128(pallet), twox128(name));
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
const voters = vector(
  structure<{ key: Uint8Array; weight: bigint }>({ key, weight: u64 }),
  authoritiesMax,
);
const queue = vector(
  structure<Authority>({ account: key, aura: key, grandpa: key }),
  authoritiesMax,
);
const accountInfo = structure<
  Record<"nonce" | "consumers" | "providers" | "sufficients", number> & Money
>({
  ...{ nonce: u32, consumers: u32, providers: u32, sufficients: u32 },
  ...{ free: u128, reserved: u128, frozen: u128, flags: u128 },
});
type Money = Record<"free" | "reserved" | "frozen" | "flags", bigint>;

function ownEntries({ authorities, balances, ...rules }: Network): [string, Uint8Array][] {
  const entries: [string, Uint8Array][] = [];
  const put = (place: Uint8Array, value: Uint8Array) => entries.push([encodeHex0x(place), value]);
  const isAuthority = (account: Uint8Array) =>
    authorities.some((one) => equalBytes(one.account, account));

  const list = authorities.map(({ account }) => account);
  for (const place of [places.authorities, places.validators])
    put(place, encodeWith(accounts, list));
  const aura = authorities.map((one) => one.aura);
  put(places.aura, encodeWith(accounts, aura));
  const votes = authorities.map(({ grandpa }) => ({ key: grandpa, weight: 1n }));
  put(places.grandpa, encodeWith(voters, votes));
  put(places.queued, encodeWith(queue, authorities));

  for (const { account, aura, grandpa } of authorities) {
    put(concatBytes(places.nextKeys, twox64Concat(account)), concatBytes(aura, grandpa));
    // The key of the map is the kind and the key as a byte string.
    const owner = (kind: string, own: Uint8Array) =>
      put(
        concatBytes(
          places.keyOwner,
          twox64Concat(concatBytes(utf8(kind), Uint8Array.of(32 << 2), own)),
        ),
        account,
      );
    owner("aura", aura);
    owner("gran", grandpa);
  }
  for (const { account, amount } of balances) {
    // Session keys keep an account from being removed.
    const references = {
      nonce: 0,
      consumers: isAuthority(account) ? 1 : 0,
      providers: 1,
      sufficients: 0,
    };
    const money = { free: amount, reserved: 0n, frozen: 0n, flags: 1n << 127n };
    const place = concatBytes(places.account, blake2b128(account), account);
    put(place, encodeWith(accountInfo, { ...references, ...money }));
  }
  const issued = balances.reduce((sum, { amount }) => sum + amount, 0n);
  put(places.issuance, encodeWith(u128, issued));
  put(places.plainProofs, encodeWith(boolean, rules.plain_proofs));
  put(places.selfCertifyingOnly, encodeWith(boolean, rules.self_certifying_only));
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

// ---------------------------------------------------------------------------------------- the file

const publicKey = z
  .string()
  .regex(/^0x[0-9a-f]{64}$/, "must be 0x and 64 hex digits in lower case")
  .transform((text) => Uint8Array.fromHex(text.slice(2)));
/** In units, with up to twelve decimals. */
const amount = z
  .string()
  .regex(/^\d{1,15}(\.\d{1,12})?$/, "must be an amount in units as text, such as 2500.5")
  .transform((text) => {
    const [whole = "", parts = ""] = text.split(".");
    return BigInt(whole) * unit + BigInt(parts.padEnd(12, "0"));
  })
  .refine((value) => value >= leastBalance, "must be at least 0.001: less is not an account");
const networkFile = z.strictObject({
  name: z.string().regex(/^[^\p{C}]{1,64}$/u, "must be 1 to 64 characters"),
  id: z.string().regex(/^[a-z0-9_]{1,64}$/, "must be 1 to 64 of a-z, 0-9 and _"),
  authorities: z
    .array(z.strictObject({ account: publicKey, aura: publicKey, grandpa: publicKey }))
    .min(1, `must be from 1 to ${authoritiesMax}`)
    .max(authoritiesMax, `must be from 1 to ${authoritiesMax}`),
  balances: z.record(z.string(), amount),
  boot_nodes: z.array(z.string().regex(/^\/\S+$/, "must begin with a slash")).default([]),
  self_certifying_only: z.boolean().default(false),
  plain_proofs: z.boolean().default(false),
});

async function readNetwork(file: string): Promise<Network> {
  let json: unknown;
  try {
    json = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    throw failed(`${file}: ${errorText(error)}`);
  }
  const parsed = parseWith(networkFile, json);
  if (!parsed.ok)
    throw failed(
      parsed.problems.map(({ setting, message }) => `${setting}: ${message}`).join("\n"),
    );
  const { authorities, balances: amounts, ...network } = parsed.options;
  for (const member of ["account", "aura", "grandpa"] as const)
    if (new Set(authorities.map((one) => one[member].toHex())).size < authorities.length)
      throw failed(`authorities: two have the same ${member}`);
  const balances = Object.entries(amounts).map(([text, amount]) => {
    const account = publicKey.safeParse(text);
    if (!account.success)
      throw failed(`balances.${text}: is not an account, 0x and 64 hex digits in lower case`);
    return { account: account.data, amount };
  });
  const poor = authorities.find(
    ({ account }) => !balances.some((one) => equalBytes(one.account, account)),
  );
  if (poor !== undefined)
    throw failed(`balances: ${encodeHex0x(poor.account)} has none, and a vote costs a fee`);
  return { ...network, authorities, balances };
}
