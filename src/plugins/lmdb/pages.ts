/**
 * The mailbox's index on disk: a page holds the rows of 40 neighbouring slots, or the texts of 40
 * neighbouring numbers. A commit writes the pages that it changes, whole; a start reads all of
 * them. A page of rows fills one page of the file. Slots are handed out side by side, so the stores
 * of a commit share pages.
 */
import type { MailboxIndex } from "../../storage/mailbox-index.ts";
import type { TextTable } from "../../storage/mailbox-recipients.ts";
import type { RowTable } from "../../storage/mailbox-rows.ts";
import type { CommitBatch, Environment } from "./environment.ts";
import { orderedKey, orderedNumber, sealed, unsealed } from "./records.ts";

const pageSlots = 40;
export const pageOf = (slot: number): number => Math.floor(slot / pageSlots);
/** The latest arrival of all rows, also of those that are gone. */
const arrivalKey = Buffer.from("last arrival");
export const all = { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER };

/** What a start, or an export, reads the pages from. */
export type Reads = Pick<Environment, "keys" | "borrow">;

/** Reads all pages; `attempt` runs the reading of each. */
export function loadPages(
  reads: Reads,
  { rows, texts }: { readonly rows: RowTable; readonly texts: TextTable },
  attempt: (load: () => void) => void,
): void {
  const content = (table: "rows" | "texts", key: Buffer) =>
    unsealed(
      key,
      reads.borrow(table, key)!,
      `page ${orderedNumber(key)} of the ${table} of the index`,
    );
  const pages = reads.keys("rows", all);
  rows.reserve(pages.length === 0 ? 0 : (orderedNumber(pages.at(-1)!) + 1) * pageSlots);
  for (const key of pages)
    attempt(() => rows.load(orderedNumber(key) * pageSlots, pageSlots, content("rows", key)));
  for (const key of reads.keys("texts", all))
    attempt(() => {
      const found = JSON.parse(new TextDecoder().decode(content("texts", key))) as (
        | string
        | null
      )[];
      for (const [n, text] of found.entries())
        if (text !== null) texts.load(orderedNumber(key) * pageSlots + n, text);
    });
}

/** Numbers of pages. */
type PageNumbers = { readonly rows: Set<number>; readonly texts: Set<number> };
const noPages = (): PageNumbers => ({ rows: new Set(), texts: new Set() });

/** Collects the pages that the current commit changes, and writes them with it. */
export class IndexPages {
  private readonly changed = noPages();
  /** After the current commit. */
  private readonly onDisk = noPages();

  constructor(private readonly index: MailboxIndex) {}

  /** Returns the last arrival. */
  load(environment: Environment): number {
    loadPages(environment, this.index, (load) => load());
    for (const table of ["rows", "texts"] as const)
      for (const key of environment.keys(table, all)) this.onDisk[table].add(orderedNumber(key));
    const arrival = environment.get("meta", arrivalKey);
    return arrival === null ? 0 : orderedNumber(unsealed(arrivalKey, arrival, "the last arrival"));
  }

  rowChanges(slot: number): void {
    this.changed.rows.add(pageOf(slot));
  }

  textChanges(number: number): void {
    this.changed.texts.add(Math.floor(number / pageSlots));
  }

  get haveChanged(): boolean {
    return this.changed.rows.size > 0;
  }

  /** Calls `wrote` with each page of rows. */
  finish(batch: CommitBatch, wrote: (page: number) => void): void {
    if (!this.haveChanged) return;
    const { changed, index } = this;
    for (const page of changed.rows) {
      this.write(batch, "rows", page, index.rows.bytesOf(page * pageSlots, pageSlots));
      wrote(page);
    }
    for (const page of changed.texts) this.write(batch, "texts", page, this.textsOf(page));
    batch.put("meta", arrivalKey, sealed(arrivalKey, orderedKey(index.lastArrival)));
    changed.rows.clear();
    changed.texts.clear();
  }

  /** `null` where no text is left. */
  private textsOf(page: number): Uint8Array | null {
    const found = this.index.texts.slice(page * pageSlots, (page + 1) * pageSlots);
    const isEmpty = found.every((text) => text === undefined);
    return isEmpty ? null : Buffer.from(JSON.stringify(found));
  }

  private write(
    batch: CommitBatch,
    table: "rows" | "texts",
    page: number,
    content: Uint8Array | null,
  ): void {
    const onDisk = this.onDisk[table];
    const key = orderedKey(page);
    if (content === null) {
      batch.remove(table, key);
      onDisk.delete(page);
    } else if (onDisk.has(page)) batch.replace(table, key, sealed(key, content));
    else {
      batch.add(table, key, sealed(key, content));
      onDisk.add(page);
    }
  }
}
