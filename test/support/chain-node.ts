/**
 * A node of a chain that stands still, as far as the chain driver asks for one: finalized blocks without
 * extrinsics, the kept metadata of the reference runtime, empty storage. A test may answer in its place.
 */
import { encodeHex0x } from "../../src/core/bytes.ts";
import { blake2b256 } from "../../src/core/hash.ts";

const metadata = (
  await Bun.file(new URL("../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url)).text()
).trim();

export const blockHash = (number: number): string =>
  encodeHex0x(blake2b256(new TextEncoder().encode(`block ${number}`)));

export type Asked = { readonly id: number; readonly method: string; readonly params: readonly unknown[] };
/** A frame as it is sent, `silence`, the end of the connection, or `null` for what a node would answer. */
export type InItsPlace = { readonly frame: string | Uint8Array } | "silence" | "cut" | null;

export type FakeNode = {
  /** Has a path and a query, as those of providers have. */
  readonly endpoint: string;
  answer: (asked: Asked) => InItsPlace | Promise<InItsPlace>;
  /** Questions so far, by method. */
  readonly seen: Map<string, number>;
  /** Connections so far, and those that stand. */
  opened: number;
  standing: number;
  readonly close: () => void;
};

/** Behind the host of every endpoint, and nowhere to be seen. */
export const endpointSecrets = ["0123456789abcdef", "fedcba98"] as const;

export function openFakeNode(headNumber = 6): FakeNode {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request, self) => (self.upgrade(request) ? undefined : new Response(null, { status: 400 })),
    websocket: {
      open() {
        node.opened++;
        node.standing++;
      },
      close() {
        node.standing--;
      },
      async message(socket, text) {
        const asked = JSON.parse(String(text)) as Asked;
        node.seen.set(asked.method, (node.seen.get(asked.method) ?? 0) + 1);
        const instead = await node.answer(asked);
        if (instead === "cut") socket.terminate();
        else if (instead === null)
          socket.send(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result: resultOf(asked, headNumber) }));
        else if (instead !== "silence") socket.send(instead.frame);
      },
    },
  });
  const [path, key] = endpointSecrets;
  const node: FakeNode = {
    endpoint: `ws://127.0.0.1:${server.port}/v1/${path}?apikey=${key}`,
    answer: () => null,
    seen: new Map(),
    opened: 0,
    standing: 0,
    close: () => void server.stop(true),
  };
  return node;
}

function resultOf({ method, params }: Asked, headNumber: number): unknown {
  const numberOf = (hash: unknown) =>
    Array.from({ length: headNumber + 1 }, (_, n) => n).find((n) => blockHash(n) === hash);
  const header = (number: number) => ({ number: `0x${number.toString(16)}`, parentHash: blockHash(number - 1) });
  switch (method) {
    case "chain_getBlockHash":
      return blockHash(typeof params[0] === "number" ? params[0] : headNumber);
    case "chain_getFinalizedHead":
      return blockHash(headNumber);
    case "chain_getHeader":
      return header(numberOf(params[0]) ?? headNumber);
    case "chain_getBlock":
      return { block: { header: header(numberOf(params[0]) ?? headNumber), extrinsics: [] } };
    case "state_getRuntimeVersion":
      return { specVersion: 1, transactionVersion: 1 };
    case "state_getMetadata":
      return metadata;
    case "state_queryStorageAt":
      return [{ changes: (params[0] as string[]).map((key) => [key, null]) }];
    case "system_health":
      return { isSyncing: false, peers: 1, shouldHavePeers: true };
    case "author_submitExtrinsic":
      return blockHash(0);
    default:
      return `subscription of ${method}`;
  }
}
