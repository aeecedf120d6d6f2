/**
 * The light client as a connection, without a network: what its file must be, and how the driver's
 * questions become those that it can answer. A true one is asked by `bun run chain:net`.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLightClients } from "../../../../src/plugins/chain/light.ts";
import { endpointName, type Host, parseHeader } from "../../../../src/plugins/chain/rpc.ts";
import { chainPlugin } from "../../../../src/plugins/load.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-light-"));
afterAll(() => rmSync(folder, { recursive: true }));

function fileOf(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return `light:${path}`;
}

const whole = { genesis: { raw: { top: {} } }, bootNodes: ["/ip4/127.0.0.1/tcp/1/p2p/x"] };
const endpoint = fileOf("whole.json", whole);

describe("the specification of a light client", () => {
  const refusals: readonly (readonly [string, string, string])[] = [
    ["a file that is not there", `light:${join(folder, "none.json")}`, "can't be read"],
    ["an invalid JSON text", fileOf("text.json", "{not json"), "is not a JSON object"],
    ["a list", fileOf("list.json", []), "is not a JSON object"],
    [
      "the editable form",
      fileOf("plain.json", { ...whole, genesis: { runtimeGenesis: {} } }),
      "genesis.raw is missing",
    ],
    ["one without peers", fileOf("alone.json", { ...whole, bootNodes: [] }), "names no bootNodes"],
  ];
  test.each(refusals)("%s is refused with its path and the reason", (_, given, reason) => {
    let thrown: unknown;
    try {
      openLightClients({ endpoints: [given] }, { host, log: () => {} });
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(StoreError);
    expect((thrown as StoreError).code).toBe("unavailable");
    expect((thrown as StoreError).message).toContain(given.slice("light:".length));
    expect((thrown as StoreError).message).toContain(reason);
  });

  test("is taken when it is raw and names peers", () => {
    expect(() =>
      openLightClients({ endpoints: [endpoint] }, { host, log: () => {} }),
    ).not.toThrow();
  });
});

test("an endpoint may be a light client", () => {
  const options = { operator_key_file: "key", outbox: "outbox" };
  expect(
    chainPlugin.parseOptions({ ...options, endpoints: [endpoint, "ws://127.0.0.1:9944"] }).ok,
  ).toBe(true);
  expect(chainPlugin.parseOptions({ ...options, endpoints: ["light:"] }).ok).toBe(false);
  expect(endpointName(endpoint)).toBe(endpoint);
});

const host: Host = {
  nowMs: Date.now,
  elapsedMs: () => performance.now(),
  after: (ms, work) => {
    // The pauses between attempts pass at once.
    const timer = setTimeout(work, ms === 1_000 ? 0 : ms);
    return () => clearTimeout(timer);
  },
  connect: () => {
    throw new Error("no other endpoint is asked");
  },
  chance: () => 0,
};

type Header = {
  parentHash: string;
  number: string;
  stateRoot: string;
  extrinsicsRoot: string;
  digest: { logs: [] };
};
const zeros = `0x${"00".repeat(32)}`;

/** Headers that follow each other, by their hashes, and the hashes in order. */
function chainOf(length: number): { headers: Map<string, Header>; hashes: string[] } {
  const headers = new Map<string, Header>();
  const hashes: string[] = [];
  for (let number = 0; number < length; number++) {
    const header: Header = {
      parentHash: hashes.at(-1) ?? zeros,
      number: `0x${number.toString(16)}`,
      stateRoot: zeros,
      extrinsicsRoot: zeros,
      digest: { logs: [] },
    };
    const { hash } = parseHeader(header);
    headers.set(hash, header);
    hashes.push(hash);
  }
  return { headers, hashes };
}

type Reply =
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string } };
type Chosen = Reply | null;

/** A light client whose answers the test gives; `null` is none. */
async function opened(answer: (method: string, params: readonly unknown[]) => Chosen) {
  const seen: string[] = [];
  let addCount = 0;
  const load = async () => () => ({
    terminate: async () => {},
    addChain: async ({ chainSpec }: { readonly chainSpec: string }) => {
      expect(JSON.parse(chainSpec)).toEqual(whole);
      addCount++;
      const replies: string[] = [];
      let wake = () => {};
      return {
        jsonRpcResponses: (async function* () {})(),
        remove: () => {},
        sendJsonRpc: (text: string) => {
          const { id, method, params } = JSON.parse(text) as {
            id: number;
            method: string;
            params: unknown[];
          };
          seen.push(method);
          const chosen = answer(method, params);
          if (chosen === null) return;
          replies.push(JSON.stringify({ jsonrpc: "2.0", id, ...chosen }));
          wake();
        },
        nextJsonRpcResponse: async () => {
          while (replies.length === 0) await new Promise<void>((done) => (wake = done));
          return replies.shift() as string;
        },
      };
    },
  });
  const clients = openLightClients({ endpoints: [endpoint] }, { host, log: () => {}, load });
  const connect = () =>
    clients.connect(endpoint, { waitMs: 2_000, signal: new AbortController().signal, host });
  return { rpc: await connect(), connect, seen, added: () => addCount };
}

describe("a light client answers", () => {
  const { headers, hashes } = chainOf(40);
  const ofChain = (method: string, params: readonly unknown[]): Chosen => {
    if (method === "chain_getFinalizedHead") return { result: hashes.at(-1) };
    if (method === "chain_getHeader") return { result: headers.get(String(params[0])) ?? null };
    return null;
  };

  test("several values of one block by single ones", async () => {
    const { rpc } = await opened((method, [key]) =>
      method === "state_getStorage" ? { result: key === "0xaa" ? "0x01" : null } : null,
    );
    const block = hashes[3];
    expect(await rpc.ask("state_queryStorageAt", [["0xaa", "0xbb"], block], 1_500)).toEqual([
      {
        block,
        changes: [
          ["0xaa", "0x01"],
          ["0xbb", null],
        ],
      },
    ]);
  });

  test("the hash of a number by the parents of the finalized head, and fetches no header twice", async () => {
    const { rpc, seen } = await opened(ofChain);
    expect(await rpc.ask("chain_getBlockHash", [20], 1_500)).toBe(hashes[20] as string);
    const fetched = seen.filter((method) => method === "chain_getHeader").length;
    expect(fetched).toBe(19);
    expect(await rpc.ask("chain_getBlockHash", [25], 1_500)).toBe(hashes[25] as string);
    expect(seen.filter((method) => method === "chain_getHeader").length).toBe(fetched);
    expect(await rpc.ask("chain_getBlockHash", [40], 1_500)).toBeNull();
  });

  test("nothing when a peer's header is not the one that was asked for", async () => {
    const { rpc } = await opened((method, params) =>
      method === "chain_getHeader"
        ? { result: headers.get(hashes[1] as string) ?? null }
        : ofChain(method, params),
    );
    await expect(rpc.ask("chain_getBlockHash", [20], 1_500)).rejects.toThrow(
      "not the one that was asked for",
    );
  });

  test("after asking again, when peers fail at first", async () => {
    let failures = 3;
    const { rpc } = await opened((method, params) => {
      if (method !== "state_getStorage") return ofChain(method, params);
      return failures-- > 0 ? { error: { code: -32_000, message: "no peer" } } : { result: "0x07" };
    });
    const answer = await rpc.ask("state_queryStorageAt", [["0xaa"], hashes[39]], 1_500);
    expect(answer).toEqual([{ block: hashes[39], changes: [["0xaa", "0x07"]] }]);
  });

  test("nothing at all about a new block that no peer has, so that the connection ends", async () => {
    const { rpc } = await opened(ofChain);
    await expect(rpc.ask("chain_getBlock", [hashes[39]], 1_500)).rejects.toThrow(
      "no answer to chain_getBlock",
    );
  });

  test("that a block is gone when peers may have discarded it", async () => {
    const long = chainOf(300);
    const { rpc } = await opened((method, params) => {
      if (method === "chain_getFinalizedHead") return { result: long.hashes.at(-1) };
      if (method === "chain_getHeader")
        return { result: long.headers.get(String(params[0])) ?? null };
      return method === "chain_getBlock" ? { result: null } : null;
    });
    expect(await rpc.ask("chain_getBlockHash", [10], 1_500)).toBe(long.hashes[10] as string);
    await expect(rpc.ask("chain_getBlock", [long.hashes[10]], 1_500)).rejects.toThrow(
      "discarded it",
    );
  });

  test("over one client, however often a connection is lost", async () => {
    const { rpc, connect, added } = await opened(ofChain);
    rpc.close();
    const again = await connect();
    expect(await again.ask("chain_getFinalizedHead", [], 1_500)).toBe(hashes.at(-1) as string);
    expect(added()).toBe(1);
  });
});
