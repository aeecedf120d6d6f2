/**
 * A chain node with everything that the chain driver asks for: finalized blocks that are empty
 * until a test fills them, the kept metadata of the reference runtime, empty storage. It makes no
 * blocks by itself, and a test may answer in its place.
 */
import { afterEach } from "bun:test";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { parseHeader } from "../../src/plugins/chain/rpc.ts";
import { orderedRoot } from "../../src/plugins/chain/trie.ts";

const metadata = (
  await Bun.file(
    new URL("../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url),
  ).text()
).trim();

const zeros = `0x${"00".repeat(32)}`;
type Blocks = ReadonlyMap<number, readonly string[]>;
type FakeHeader = { readonly json: Readonly<Record<string, unknown>>; readonly hash: string };

function headersTo(number: number, blocks: Blocks): FakeHeader[] {
  const headers: FakeHeader[] = [];
  for (let n = 0; n <= number; n++) {
    const extrinsics = (blocks.get(n) ?? []).map((hex) => Uint8Array.fromHex(hex.slice(2)));
    const json = {
      parentHash: headers.at(-1)?.hash ?? zeros,
      number: `0x${n.toString(16)}`,
      stateRoot: zeros,
      extrinsicsRoot: orderedRoot(extrinsics, 0),
      digest: { logs: [] },
    };
    headers.push({ json, hash: parseHeader(json).hash });
  }
  return headers;
}

const headerAt = (number: number, blocks: Blocks = new Map()) =>
  headersTo(number, blocks).at(-1) as FakeHeader;

/** Of a block on a chain whose blocks are empty. */
export const blockHash = (number: number): string => headerAt(number).hash;

export type Asked = {
  readonly id: number;
  readonly method: string;
  readonly params: readonly unknown[];
};
/**
 * A frame as it is sent, `silence`, the end of the connection, or `null` for what a node would
 * answer.
 */
export type InItsPlace = { readonly frame: string | Uint8Array } | "silence" | "cut" | null;

export type FakeNode = {
  /** Has a path and a query, as those of providers have. */
  readonly endpoint: string;
  answer: (asked: Asked) => InItsPlace | Promise<InItsPlace>;
  /** Number of the last block, all of which are final. */
  head: number;
  /** How old every block is. */
  ageMs: number;
  /** Extrinsics in hex, by the number of their block. */
  readonly blocks: Map<number, readonly string[]>;
  /** Questions so far, by method. */
  readonly seen: Map<string, number>;
  /** Connections so far, and those that stand. */
  opened: number;
  standing: number;
  readonly close: () => void;
};

/** Behind the host of every endpoint, and nowhere to be seen. */
export const endpointSecrets = ["0123456789abcdef", "fedcba98"] as const;

export function openFakeNode(): FakeNode {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request, self) =>
      self.upgrade(request) ? undefined : new Response(null, { status: 400 }),
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
          socket.send(
            JSON.stringify({ jsonrpc: "2.0", id: asked.id, result: resultOf(asked, node) }),
          );
        else if (instead !== "silence") socket.send(instead.frame);
      },
    },
  });
  const [path, key] = endpointSecrets;
  const node: FakeNode = {
    endpoint: `ws://127.0.0.1:${server.port}/v1/${path}?apikey=${key}`,
    answer: () => null,
    head: 6,
    ageMs: 0,
    blocks: new Map(),
    seen: new Map(),
    opened: 0,
    standing: 0,
    close: () => void server.stop(true),
  };
  return node;
}

/** What a test opens and closes after itself, nodes among it. */
export function closedAfterEach() {
  const opened: { readonly close: () => unknown }[] = [];
  afterEach(async () => {
    for (const one of opened.splice(0).reverse()) await one.close();
  });
  const fakeNode = (): FakeNode => {
    const node = openFakeNode();
    opened.push(node);
    return node;
  };
  return { opened, fakeNode };
}

function resultOf({ method, params }: Asked, { head, ageMs, blocks }: FakeNode): unknown {
  const headers = headersTo(head, blocks);
  const numberOf = (asked: unknown) => {
    const number = headers.findIndex(({ hash }) => hash === asked);
    return number < 0 ? head : number;
  };
  const header = (number: number) => headers[number]?.json;
  switch (method) {
    case "chain_getBlockHash":
      return headerAt(typeof params[0] === "number" ? params[0] : head, blocks).hash;
    case "chain_getFinalizedHead":
      return headers.at(-1)?.hash;
    case "chain_getHeader":
      return header(numberOf(params[0]));
    case "chain_getBlock":
      return {
        block: {
          header: header(numberOf(params[0])),
          extrinsics: blocks.get(numberOf(params[0])) ?? [],
        },
      };
    case "state_getRuntimeVersion":
      return { specName: "waypost", specVersion: 1, transactionVersion: 1 };
    case "state_getMetadata":
      return metadata;
    case "state_call":
      return "0x00";
    case "state_queryStorageAt":
      return [
        {
          block: params[1],
          changes: (params[0] as string[]).map((key) => [key, storedAt(key, ageMs)]),
        },
      ];
    case "system_health":
      return { isSyncing: false, peers: 1, shouldHavePeers: true };
    case "author_submitExtrinsic":
      return blockHash(0);
    default:
      return `subscription of ${method}`;
  }
}

/** twox128 of `Timestamp` and of `Now`. */
export const nowKey = "0xf0c365c3cf59d671eb72da0e7a4113c49f1f0515f462cdcf84e0f1d6045dfcbb";

/** twox128 of `DidRegistry` and of `PlainProofs`. */
const plainProofsKey = "0x72b29c5d16546b7d2c5310d5fbada68baf3f929cfecf08e38001b74fff4747a8";

/**
 * The time of every block is the present, less its age; proofs of every version are taken, and
 * nothing else has a value.
 */
function storedAt(key: string, ageMs: number): string | null {
  if (key === plainProofsKey) return "0x01";
  if (key !== nowKey) return null;
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(Date.now() - ageMs), true);
  return encodeHex0x(bytes);
}
