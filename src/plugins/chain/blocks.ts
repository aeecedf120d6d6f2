/**
 * What blocks hold of ours: the extrinsics of a block by their marks, and what the block's events say
 * became of them.
 */
import { type Block, StoreError } from "../../storage/contract.ts";
import type { Header } from "./answers.ts";
import { marksOf } from "./extrinsic.ts";
import { storageKeys, u64Of } from "./keys.ts";
import type { Session } from "./session.ts";
import type { DispatchFailure, Surface } from "./surface.ts";

export type Contents = Header & {
  /** Index of an extrinsic by each of its marks. */
  readonly marks: ReadonlyMap<string, number>;
};

/** `null` when the node has let go of the block's body. */
export async function readContents(session: Session, hash: string, surface: Surface): Promise<Contents | null> {
  const block = await session.block(hash);
  if (block === null) return null;
  const marks = new Map<string, number>();
  for (const [index, extrinsic] of block.extrinsics.entries()) {
    for (const mark of marksOf(extrinsic, surface.frame)) {
      // Of several carriers of one call the first has the effect.
      if (!marks.has(mark)) marks.set(mark, index);
    }
  }
  return { ...block.header, marks };
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
