/**
 * The blocks between the finalized head and the best one: what lies in them may come or may be taken
 * back. Of heads that come faster than they can be looked through, the newest counts.
 */
import { type Block, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { type Contents, readContents } from "./blocks.ts";
import type { Link } from "./link.ts";
import { singly } from "./singly.ts";

const blocksMax = 32;

export type BestOptions = {
  readonly link: Link;
  readonly log: StoreEnvironment["log"];
  /** Whether anything is waited for at all. */
  readonly isWanted: () => boolean;
  /** Told after each look: where every mark lies that lies in one of those blocks. */
  readonly onMarks: (marks: ReadonlyMap<string, Block>) => void;
};

export class BestBlocks {
  /** The blocks of the last look. */
  private known = new Map<string, Contents>();
  private best = "";
  private closing = false;
  private readonly follow = singly(() => this.lookAtBest());

  constructor(private readonly options: BestOptions) {}

  onBest(hash: string): void {
    this.best = hash;
    if (!this.closing) this.follow();
  }

  private async lookAtBest(): Promise<void> {
    if (this.closing || !this.options.isWanted()) return;
    try {
      const marks = await this.look(this.best);
      if (!this.closing) this.options.onMarks(marks);
    } catch (error) {
      if (error instanceof StoreError) return;
      this.options.log("warn", "a best block can't be read", { error: String(error) });
    }
  }

  /** From the best head back to the finalized one. */
  private async look(hash: string): Promise<Map<string, Block>> {
    const session = this.options.link.session();
    const { head } = session;
    const seen = new Map<string, Contents>();
    const marked = new Map<string, Block>();
    for (let at = hash, steps = 0; at !== head.hash && steps < blocksMax; steps++) {
      const contents = this.known.get(at) ?? (await readContents(session, at, head.surface));
      if (contents === null || contents.number <= head.number) break;
      seen.set(at, contents);
      // The time of a block that may go again is not asked for: the finalized one's stands in.
      const block: Block = { number: contents.number, hash: at, timeMs: head.timeMs };
      for (const mark of contents.marks.keys()) marked.set(mark, block);
      at = contents.parentHash;
    }
    this.known = seen;
    return marked;
  }

  close(): void {
    this.closing = true;
  }
}
