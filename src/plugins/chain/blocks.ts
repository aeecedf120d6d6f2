/**
 * What blocks hold of ours: the extrinsics of a block by their marks, and what the block's events say
 * became of them.
 */
import { type Block, StoreError } from "../../storage/contract.ts";
import { marksOf } from "./extrinsic.ts";
import { storageKeys, u64Of } from "./keys.ts";
import type { Header, Session } from "./session.ts";
import type { DispatchFailure, Surface } from "./surface.ts";

type SignedBlock = {
  readonly block: {
    readonly header: { readonly number: string; readonly parentHash: string };
    readonly extrinsics: readonly string[];
  };
};

export type Contents = Header & {
  /** Index of an extrinsic by each of its marks. */
  readonly marks: ReadonlyMap<string, number>;
};

/** `null` when the node has let go of the block's body. */
export async function readContents(session: Session, hash: string, surface: Surface): Promise<Contents | null> {
  const found = await session.ask<SignedBlock | null>("chain_getBlock", [hash]);
  if (found === null) return null;
  const { header, extrinsics } = found.block;
  const marks = new Map<string, number>();
  for (const [index, text] of extrinsics.entries()) {
    for (const mark of marksOf(Uint8Array.fromHex(text.slice(2)), surface.frame)) {
      // Of several carriers of one call the first has the effect.
      if (!marks.has(mark)) marks.set(mark, index);
    }
  }
  return { number: BigInt(header.number), parentHash: header.parentHash, marks };
}

export type Outcomes = {
  readonly block: Block;
  readonly byIndex: ReadonlyMap<number, DispatchFailure | null>;
};

/** What became of a block's extrinsics, and the block's time. */
export async function readOutcomes(
  session: Session,
  hash: string,
  given: { number: bigint; surface: Surface },
): Promise<Outcomes> {
  const { number, surface } = given;
  const keys = storageKeys(surface);
  const [events, now] = await session.values([keys.events, keys.now], hash);
  if (!events || !now) throw new StoreError("unavailable", "the node no longer has the state of a block");
  return { block: { number, hash, timeMs: Number(u64Of(now)) }, byIndex: surface.outcomes(events) };
}
