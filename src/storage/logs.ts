/**
 * The part of the storage contract (contract.ts, whose laws hold here too) that keeps append-only
 * logs: what a Directory signs of its ledger, and what witnesses copy.
 * Source: docs/trust.md "Log".
 */
import type { LogHead } from "../core/trust/log.ts";
import type { MapProof } from "../core/trust/map.ts";
import type { TilePlace } from "../core/trust/tree.ts";

/**
 * Entries of another log, as its reader gets them: a page that leads from `after` to a signed head.
 */
export type LogPage = {
  readonly after: number;
  readonly entries: readonly Uint8Array[];
  /** A head that was signed, and the proof that it continues the tree with these entries. */
  readonly within: LogHead & { readonly proof: readonly Uint8Array[] };
};

/**
 * Append-only logs (docs/trust.md "Log"): that of the store's embedded ledger, whose name is empty,
 * and copies of other logs under their origins. `null` answers what is not there.
 */
export interface Logs {
  head(log: string): Promise<LogHead | null>;
  /** What the embedded ledger's genesis hash covers in addition to the key of its log. */
  genesisSeed(): Promise<Uint8Array | null>;
  /** Hashes, or a bundle of entries. */
  tile(log: string, place: TilePlace): Promise<Uint8Array | null>;
  inclusion(log: string, index: number, size: number): Promise<readonly Uint8Array[] | null>;
  consistency(log: string, from: number, to: number): Promise<readonly Uint8Array[] | null>;
  /** A key in the map of the ledger's log, as of a size of the last 256 batches. */
  inMap(key: Uint8Array, size: number): Promise<MapProof | null>;
  /**
   * Appends whole batches to a copy that has `after` entries; `null` when it has another number,
   * when the map doesn't follow, or when they are not part of the tree `within`.
   */
  copy(log: string, batches: LogPage): Promise<LogHead | null>;
  /** The entries and pages of the map that a copy holds, in bytes; 0 for none. */
  copiedBytes(log: string): Promise<number>;
  /**
   * Puts entries of the ledger's log that the store has lost behind its first `from`, up to a head
   * that was signed, and appends what the store holds instead. Throws `corrupt` when they don't
   * lead there.
   */
  adopt(from: number, entries: readonly Uint8Array[], signed: LogHead): Promise<void>;
  /** Begins the ledger's log anew, behind a head that is lost. */
  restart(lost: LogHead): Promise<void>;
  /** The last note that was signed; empty for none. */
  note(log: string): Promise<string>;
  /** Replaces it; `false` when it is not `before` any more. */
  keepNote(log: string, before: string, note: string): Promise<boolean>;
}
