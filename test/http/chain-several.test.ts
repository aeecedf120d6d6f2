/** Several endpoints of which one is silent, belongs to another chain, or is left just then. */
import { describe, expect, test } from "bun:test";
import { encodeWith, u64 } from "../../src/core/codec/scale.ts";
import { openLedger } from "../../src/plugins/chain/driver.ts";
import type { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { optionsOf } from "../conformance/options.ts";
import { keyOf } from "../support/identity.ts";
import { pause } from "../support/wait.ts";
import {
  blockHash,
  closedAfterEach,
  type FakeNode,
  type InItsPlace,
  nowKey,
} from "./chain-node.ts";

const { opened, fakeNode } = closedAfterEach();

async function until(what: string, isSo: () => boolean): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; await Bun.sleep(2)) if (isSo()) return;
  throw new Error(`waited too long for ${what}`);
}

function ledgerOn(nodes: readonly FakeNode[]) {
  const logged: string[] = [];
  const times = { block_time_ms: 20, request_timeout_ms: 1_000, reconnect_max_ms: 100 };
  const endpoints = nodes.map(({ endpoint }) => endpoint);
  const open = openLedger(
    optionsOf(chainPlugin, { endpoints, operator_key_file: "key", outbox: "x", ...times }),
    {
      key: {
        publicKey: new Uint8Array(32),
        scheme: 1,
        sign: keyOf("operator").sign,
        address: "operator",
      },
      table: new MemoryTable(1 << 24),
      host: systemHost(Date.now),
      log: (_, message) => logged.push(message),
      fatal: () => {},
      runtimes: new Map(),
      connect: Rpc.open,
    },
  );
  opened.push(open);
  return { ...open, logged };
}

const refusal = (id: number, code: number): InItsPlace => ({
  frame: JSON.stringify({ id, error: { code, message: "refused" } }),
});
/** All are connected, and have answered what a connection asks first. */
const untilOpen = (endpoints: Endpoints, count: number) =>
  until("all connections", () => openSessions(endpoints).length === count);
const openSessions = (endpoints: Endpoints) =>
  (Reflect.get(endpoints, "open") as () => { readonly genesis: string }[]).call(endpoints);
const methods = (node: FakeNode, method: string): number => node.seen.get(method) ?? 0;

describe("of several endpoints, one", () => {
  test("that never answers a submission delays no call that the other one takes", async () => {
    const nodes = [fakeNode(), fakeNode()];
    for (const node of nodes) {
      node.answer = ({ method }) =>
        method === "author_submitExtrinsic" && node === nodes[0] ? "silence" : null;
    }
    const { endpoints } = ledgerOn(nodes);
    await untilOpen(endpoints, nodes.length);
    const beganMs = Date.now();
    expect((await endpoints.submit(new Uint8Array(1))).verdict).toBe("taken");
    expect(Date.now() - beganMs).toBeLessThan(1_000);
    // The question to the silent one may arrive after the answer of the other.
    const asked = () => nodes.map((node) => methods(node, "author_submitExtrinsic"));
    await until("both questions", () => asked().every((count) => count > 0));
    expect(asked()).toEqual([1, 1]);
  });

  test("that submits for nobody hides no refusal of the other one", async () => {
    const nodes = [fakeNode(), fakeNode()];
    for (const [n, node] of nodes.entries())
      node.answer = ({ id, method }) =>
        method === "author_submitExtrinsic" ? refusal(id, n === 0 ? -32_601 : 1_010) : null;
    const { endpoints } = ledgerOn(nodes);
    await untilOpen(endpoints, nodes.length);
    expect((await endpoints.submit(new Uint8Array(1))).verdict).toBe("invalid");
  });

  test("that belongs to another chain is not used, even if both were away at a first start", async () => {
    const nodes = [fakeNode(), fakeNode()];
    let away = true;
    const held = Promise.withResolvers<void>();
    for (const [n, node] of nodes.entries()) {
      node.answer = async ({ id, method, params }) => {
        if (away) return "cut";
        // Both are asked what they are before one of them has answered.
        if (method === "system_health") await held.promise;
        if (method !== "chain_getBlockHash" || params[0] !== 0 || n === 0) return null;
        return { frame: JSON.stringify({ id, result: blockHash(99) }) };
      };
    }
    const { endpoints } = ledgerOn(nodes);
    await endpoints.tried();
    away = false;
    await until("both", () => nodes.every((node) => methods(node, "system_health") > 0));
    held.resolve();
    await until("one", () => openSessions(endpoints).length > 0);
    await pause(300, "the other one would open too");
    expect(new Set(openSessions(endpoints).map(({ genesis }) => genesis)).size).toBe(1);
  });

  test("that is left while it answers does not confirm itself", async () => {
    const nodes = [fakeNode(), fakeNode()];
    const { endpoints } = ledgerOn(nodes);
    await untilOpen(endpoints, nodes.length);
    const { hash } = endpoints.session().head;
    const all = Reflect.get(endpoints, "nodes") as { readonly name: string }[];
    const inUse = all.indexOf(Reflect.get(endpoints, "current"));
    const key = Uint8Array.of(1);
    for (const [n, node] of nodes.entries()) {
      node.answer = ({ id, method, params }) => {
        const [keys] = params as readonly (readonly string[])[];
        if (method !== "state_queryStorageAt" || keys?.length !== 1) return null;
        Reflect.set(endpoints, "current", all[1 - inUse]);
        const result = [{ block: params[1], changes: [["0x01", `0x0${n}`]] }];
        return { frame: JSON.stringify({ id, result }) };
      };
    }
    expect(await endpoints.values([key], { hash, about: "a key" }).catch(String)).toContain(
      "no second endpoint agrees",
    );
  });

  test("that answers one question never delays only the first call that asks for it", async () => {
    const nodes = [fakeNode(), fakeNode(), fakeNode()];
    const hung = nodes[1] as FakeNode;
    // One time for all: a head of another time is another state.
    const now = `0x${encodeWith(u64, BigInt(Date.now())).toHex()}`;
    for (const node of nodes) {
      node.answer = ({ id, method, params }) => {
        const [keys] = params as readonly (readonly string[])[];
        if (method !== "state_queryStorageAt" || keys === undefined) return null;
        if (node === hung && keys.length === 1) return "silence";
        const changes = keys.map((key) => [
          key,
          key === "0x01" ? "0x07" : key === nowKey ? now : null,
        ]);
        return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
      };
    }
    const { endpoints } = ledgerOn(nodes);
    await untilOpen(endpoints, nodes.length);
    const ask = () => {
      const { hash } = endpoints.session().head;
      return endpoints.values([Uint8Array.of(1)], { hash, about: "a key" });
    };
    expect(await ask()).toEqual([Uint8Array.of(7)]);
    await until("another connection", () => hung.opened === 2);
    await untilOpen(endpoints, nodes.length);
    const beganMs = Date.now();
    expect(await ask()).toEqual([Uint8Array.of(7)]);
    expect(Date.now() - beganMs).toBeLessThan(900);
  });

  test("that is not in use tells the log nothing about the operator's funds", async () => {
    const nodes = [fakeNode(), fakeNode()];
    // The first names funds, the second none: the account of the operator is the last key of a
    // head.
    const account = `0x${"00".repeat(16)}01${"00".repeat(63)}`;
    const [first] = nodes as [FakeNode, FakeNode];
    first.answer = ({ id, method, params }) => {
      const [keys] = params as readonly (readonly string[])[];
      if (method !== "state_queryStorageAt" || keys?.length !== 3) return null;
      const now = new Uint8Array(8);
      new DataView(now.buffer).setBigUint64(0, BigInt(Date.now()), true);
      const values = [`0x${now.toHex()}`, "0x01", account];
      return {
        frame: JSON.stringify({
          id,
          result: [{ block: params[1], changes: keys.map((k, n) => [k, values[n]]) }],
        }),
      };
    };
    const { logged } = ledgerOn(nodes);
    for (let head = 7; head < 12; head++) {
      for (const node of nodes) node.head = head;
      await Bun.sleep(60);
    }
    expect(logged).not.toContain("the operator account has no funds");
  });
});
