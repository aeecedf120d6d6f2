/**
 * `waypost chain spec`: the first state that it makes, against the kept one, and what it refuses.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createProgram } from "../../../src/cli/program.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-chain-spec-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const keptFile = new URL("../../../runtime/artifacts/waypost-dev.raw.json", import.meta.url);
type Specification = {
  readonly genesis: { readonly raw: { readonly top: Record<string, string> } };
} & Record<string, unknown>;

/** The development accounts: account and block key, key for finality. */
const alice = {
  account: "0xd43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d",
  aura: "0xd43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d",
  grandpa: "0x88dc3417d5058ec4b4503e0c12ea1a0a89be200fe98922423d4334014fa6b0ee",
};
const bob = {
  account: "0x8eaf04151687736326c9fea17e25fc5287613693c912909cb226aa4794f26a48",
  aura: `0x${"b1".repeat(32)}`,
  grandpa: "0xd17c2d7823ebf260fd138f2d7e27d114c0145d968b5ff5006125f2414fadae69",
};
const charlie = "0x90b5ab205c6974c9ea841be688864633dc9ca8a357843eeacf2314649965fe22";
const network = {
  name: "A Network",
  id: "a_network",
  authorities: [alice],
  balances: { [alice.account]: "1000000", [bob.account]: "1000000", [charlie]: "1000000" },
};

async function make(file: unknown): Promise<Specification> {
  const [from, to] = [join(folder, "network.json"), join(folder, "network.raw.json")];
  writeFileSync(from, typeof file === "string" ? file : JSON.stringify(file));
  await (await createProgram(true)).parseAsync([
    "bun",
    "waypost",
    "chain",
    "spec",
    from,
    "--out",
    to,
    "--json",
  ]);
  return JSON.parse(readFileSync(to, "utf8"));
}

describe("the specification of a chain", () => {
  test("is that of the development chain when the keys are", async () => {
    const made = await make(network);
    const kept = JSON.parse(readFileSync(keptFile, "utf8")) as Specification;
    expect(made.genesis).toEqual(kept.genesis);
    expect(made).toMatchObject({
      name: "A Network",
      id: "a_network",
      chainType: "Live",
      bootNodes: [],
    });
  });

  test("has each authority's keys, its rules, balances and addresses", async () => {
    const bootNode = "/dns/node.example/tcp/30334/ws/p2p/12D3KooW";
    const rules = { self_certifying_only: true, plain_proofs: true, boot_nodes: [bootNode] };
    const balances = { [alice.account]: "0.001", [bob.account]: "12.000000000001" };
    const { genesis, bootNodes } = await make({
      ...network,
      ...rules,
      authorities: [alice, bob],
      balances,
    });
    const { top } = genesis.raw;
    expect(bootNodes).toEqual([bootNode]);
    const bare = (text: string) => text.slice(2);
    const listed = (...keys: string[]) => `0x08${keys.map(bare).join("")}`;
    const values = Object.values(top);
    // The authorities' own list and the session's.
    expect(values.filter((value) => value === listed(alice.account, bob.account))).toHaveLength(2);
    expect(values).toContain(listed(alice.aura, bob.aura));
    const weighed = (key: string) => `${bare(key)}0100000000000000`;
    expect(values).toContain(`0x08${weighed(alice.grandpa)}${weighed(bob.grandpa)}`);
    const queued = [alice, bob].map(({ account, aura, grandpa }) =>
      [account, aura, grandpa].map(bare).join(""),
    );
    expect(values).toContain(`0x08${queued.join("")}`);
    expect(values.filter((value) => value === bob.account)).toHaveLength(2);
    // Both own keys, have money and are kept by their session keys; the sum is what there is.
    const accounts = Object.entries(top).filter(
      ([key]) => key.endsWith(bare(bob.account)) && key.length === 162,
    );
    // 12.000000000001 units, nothing reserved or frozen, and the flags of a new account.
    const money = `${"01c0bcf7e90a".padEnd(32, "0")}${"0".repeat(64)}${"80".padStart(32, "0")}`;
    expect(accounts.map(([, value]) => value)).toContain(
      `0x000000000100000001000000${"0".repeat(8)}${money}`,
    );
    expect(Object.keys(top).some((key) => key.endsWith(bare(charlie)))).toBe(false);
    // The two rules of names and proofs.
    const plain = "0x72b29c5d16546b7d2c5310d5fbada68baf3f929cfecf08e38001b74fff4747a8";
    const certified = "0x72b29c5d16546b7d2c5310d5fbada68b470533c5d463bec30963363ae91e72c7";
    expect([top[plain], top[certified]]).toEqual(["0x01", "0x01"]);
  });

  const refused: readonly (readonly [what: string, file: unknown, reason: RegExp])[] = [
    ["no JSON", "{", /network\.json: /],
    ["another member", { ...network, sudo: alice.account }, /^sudo: unknown setting$/],
    ["no authority", { ...network, authorities: [] }, /from 1 to 32/],
    [
      "the same authority twice",
      { ...network, authorities: [alice, { ...bob, aura: alice.aura }] },
      /the same aura/,
    ],
    [
      "a key that is none",
      { ...network, authorities: [{ ...alice, grandpa: "0x88" }] },
      /^authorities\.0\.grandpa: /,
    ],
    [
      "an authority without money",
      { ...network, balances: { [charlie]: "1" } },
      /0xd435.* has none/,
    ],
    [
      "less than an account",
      { ...network, balances: { [alice.account]: "0.0009" } },
      /at least 0\.001/,
    ],
    [
      "a negative balance",
      { ...network, balances: { [alice.account]: "-1" } },
      /^balances\.0xd435/,
    ],
    [
      "a balance as a number",
      { ...network, balances: { [alice.account]: 1 } },
      /^balances\.0xd435/,
    ],
    ["an id with blanks", { ...network, id: "a network" }, /^id: must/],
    ["a rule as text", { ...network, plain_proofs: "no" }, /^plain_proofs: must be true or false/],
    ["a list", [], /: must be a table, not a list/],
  ];
  test.each(refused)("is not made of %s", async (_, file, reason) => {
    await expect(make(file)).rejects.toThrow(reason);
  });
});
