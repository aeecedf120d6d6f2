/** Canaries replace methods of the driver's classes, private ones among them. */
import type { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { ChainOutbox } from "../../src/plugins/chain/outbox.ts";
import { type Entry, type PoolAction, SubmissionPool } from "../../src/plugins/chain/pool.ts";
import { parseHeader, type SignedBlock } from "../../src/plugins/chain/rpc.ts";
import { type Anchor, ChainSession } from "../../src/plugins/chain/session.ts";
import { StoreError } from "../../src/storage/contract.ts";

type Methods = Record<string, (...given: never[]) => unknown>;

/** Replaces methods, private ones among them; the answer puts them back. */
export function replace(prototype: object, methods: Methods): () => void {
  const before = Object.keys(methods).map(
    (name) =>
      [name, Object.getOwnPropertyDescriptor(prototype, name) as PropertyDescriptor] as const,
  );
  for (const [name, method] of Object.entries(methods))
    Object.defineProperty(prototype, name, { value: method, configurable: true, writable: true });
  return () => {
    for (const [name, descriptor] of before) Object.defineProperty(prototype, name, descriptor);
  };
}

export const methodOf = <T>(prototype: object, name: string): T =>
  Reflect.get(prototype, name) as T;

/** In the place of `Endpoints.values`: those of the endpoint in use alone. */
export function ownValues(
  this: Endpoints,
  keys: readonly Uint8Array[],
  { hash }: { readonly hash: string },
) {
  return this.session().values(keys, hash);
}

/** In the place of `Endpoints.submit`: to the endpoint in use alone. */
export async function submitToOne(this: Endpoints, extrinsic: Uint8Array) {
  return this.session().submit(extrinsic);
}

/** What no block shows is signed again, without a look at the state. */
export const signUnseen = () => {
  const inspect = methodOf<(entry: Entry) => PoolAction[]>(SubmissionPool.prototype, "inspect");
  return replace(SubmissionPool.prototype, {
    inspect(this: SubmissionPool, entry: Entry) {
      const { nonce } = methodOf<{ readonly nonce: number }>(this, "head");
      if (entry.nonce !== null && nonce > entry.nonce)
        return methodOf<(entry: Entry) => PoolAction[]>(this, "onAbsent").call(this, entry);
      return inspect.call(this, entry);
    },
  });
};

/** The last final block that a restart finds is another one. */
export const replaceAnchor = (change: (anchor: Anchor | null) => Anchor | null) => {
  const fact = methodOf<(name: string) => Anchor | null>(ChainOutbox.prototype, "fact");
  return replace(ChainOutbox.prototype, {
    fact(this: ChainOutbox, name: string) {
      const kept = fact.call(this, name);
      return name === "anchor" ? change(kept) : kept;
    },
  });
};

/** The body as the node gives it, by another rule than that of the trie, or none. */
export const believeBodies = (
  isRootOf: (root: string, extrinsics: readonly Uint8Array[]) => boolean = () => true,
) =>
  replace(ChainSession.prototype, {
    async block(this: ChainSession, hash: string): Promise<SignedBlock> {
      type Ask = (
        method: string,
        params: unknown[],
        parse: (answer: unknown) => unknown,
      ) => unknown;
      const answer = await methodOf<Ask>(this, "ask").call(
        this,
        "chain_getBlock",
        [hash],
        (a) => a,
      );
      const { block } = answer as { block: { header: unknown; extrinsics: string[] } };
      const header = { ...parseHeader(block.header), hash };
      const extrinsics = block.extrinsics.map((hex) => Uint8Array.fromHex(hex.slice(2)));
      if (isRootOf(header.extrinsicsRoot, extrinsics)) return { header, extrinsics };
      throw new StoreError("unavailable", "the body has another root");
    },
  });
