/**
 * Receipts where one process owns the store, over the driver's table; and the bounds of
 * tags, keys and values, which every driver checks.
 */
import { concatBytes, equalBytes, utf8 } from "../core/codec/bytes.ts";
import type { ReceiptPage, Receipts } from "./contract.ts";
import type { OrderedTable, TableChange, TableView } from "./table.ts";

const textLengthMax = 512;
const receiptBytesMax = 64 * 1024;

/** A breach is a mistake of the caller, not a refusal. */
export function checkText(name: string, text: string): void {
  if (text.length === 0 || text.length > textLengthMax) {
    throw new RangeError(`a ${name} has 1 to ${textLengthMax} characters`);
  }
}

/** Throws `RangeError`: keys and values are of this program, so one that is too long is a bug. */
export function checkReceipt(key: string, value: Uint8Array): void {
  checkText("key", key);
  if (!key.isWellFormed() || utf8(key).length > textLengthMax) {
    throw new RangeError(`a key is at most ${textLengthMax} bytes of UTF-8`);
  }
  if (value.length > receiptBytesMax)
    throw new RangeError(`a receipt has at most ${receiptBytesMax} bytes`);
}

/** Whether a receipt's key is among those that `scan` finds. */
export const isScanned = (key: string): boolean => key.startsWith("/");

/** Throws `RangeError` for a prefix whose keys no scan finds. */
export function checkPrefix(prefix: string): void {
  checkText("prefix", prefix);
  if (!isScanned(prefix)) throw new RangeError("a prefix begins with a slash");
}

// ---------------------------------------------------------------------------------------- receipts

type Standing = { readonly value: Uint8Array; readonly untilMs: number };

const recordOverhead = 64;
const removal = { kind: "removal", bytes: recordOverhead } as const;
/** Each may be on a page of its own. */
const receiptsSweepOf = (receipts: number) =>
  ({ kind: "sweep", bytes: Math.min(2_048 * receipts, 1024 ** 2) }) as const;

/**
 *   r<key>         when the receipt ends (16 hex digits), and its value
 *   e<end><key>    nothing: in the order of the ends
 */
export class TableReceipts implements Receipts {
  constructor(private readonly table: OrderedTable) {}

  async put(key: string, value: Uint8Array, untilMs: number): Promise<void> {
    checkReceipt(key, value);
    await this.table.commit(
      (view) => set(view, codeOf(key), { value, untilMs }),
      recordSize(key, value),
    );
  }

  async putIfAbsent(
    key: string,
    value: Uint8Array,
    untilMs: number,
    nowMs: number,
  ): Promise<Uint8Array | null> {
    checkReceipt(key, value);
    const putRecord = (view: TableChange): Uint8Array | null => {
      const before = standing(view, codeOf(key));
      if (before !== null && before.untilMs > nowMs) return before.value;
      set(view, codeOf(key), { value, untilMs });
      return null;
    };
    return this.table.commit(putRecord, recordSize(key, value));
  }

  async get(key: string, nowMs: number): Promise<Uint8Array | null> {
    const found = standing(this.table, codeOf(key));
    return found !== null && found.untilMs > nowMs ? found.value : null;
  }

  async remove(key: string, value?: Uint8Array): Promise<void> {
    await this.table.commit((view) => {
      const before = standing(view, codeOf(key));
      if (before !== null && (value === undefined || equalBytes(before.value, value)))
        set(view, codeOf(key), null);
    }, removal);
  }

  async scan(
    prefix: string,
    { after, limit, nowMs }: ReceiptPage,
  ): Promise<[string, Uint8Array][]> {
    checkPrefix(prefix);
    const found: [string, Uint8Array][] = [];
    let last = after === null ? "" : `r${codeOf(after)}`;
    while (found.length < limit) {
      const page = this.table.range(`r${codeOf(prefix)}`, {
        after: last,
        limit: limit - found.length,
      });
      for (const [key, bytes] of page) {
        const { value, untilMs } = standingIn(bytes);
        if (untilMs > nowMs) found.push([textOf(key.slice(1)), value]);
      }
      if (page.length === 0) break;
      last = page.at(-1)![0];
    }
    return found;
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    // Looks first without a commit: mostly nothing has ended.
    if (limit <= 0 || endedIn(this.table, nowMs, 1).length === 0) return 0;
    return this.table.commit((view) => {
      const ended = endedIn(view, nowMs, limit);
      for (const end of ended) {
        view.remove(`e${end}`);
        view.remove(`r${end.slice(endDigits)}`);
      }
      return ended.length;
    }, receiptsSweepOf(limit));
  }
}

/** The receipt that a pair of the table holds; `null` for one that only orders ends. */
export function receiptIn(
  key: string,
  bytes: Uint8Array,
): (Standing & { readonly key: string }) | null {
  return key.startsWith("r") ? { key: textOf(key.slice(1)), ...standingIn(bytes) } : null;
}

function recordSize(key: string, value: Uint8Array) {
  return { kind: "record", bytes: 4 * key.length + value.length + recordOverhead } as const;
}

function standingIn(bytes: Uint8Array): Standing {
  const untilMs = Number.parseInt(Buffer.from(bytes.subarray(0, endDigits)).toString("latin1"), 16);
  return { untilMs, value: bytes.slice(endDigits) };
}

/** What stands under a key. Within a commit, the operations before this one count. */
function standing(view: TableView, code: string): Standing | null {
  const bytes = view.get(`r${code}`);
  return bytes === null ? null : standingIn(bytes);
}

/** Sets the value of a key; `null` removes it. */
function set(view: TableChange, code: string, to: Standing | null): void {
  const before = standing(view, code);
  if (before !== null && before.untilMs !== to?.untilMs)
    view.remove(`e${hexOf(before.untilMs)}${code}`);
  if (to === null) view.remove(`r${code}`);
  else {
    const until = hexOf(to.untilMs);
    view.put(`r${code}`, concatBytes(utf8(until), to.value));
    view.put(`e${until}${code}`, new Uint8Array(0));
  }
}

function endedIn(view: TableView, nowMs: number, limit: number): string[] {
  const ends = view.range("e", { limit }).map(([key]) => key.slice(1));
  return ends.filter((end) => end.slice(0, endDigits) <= hexOf(nowMs));
}

const endDigits = 16;
const hexOf = (ms: number): string => ms.toString(16).padStart(endDigits, "0");

/** A key of the table for any text: what begins with a text has a key that begins with its. */
const codeOf = encodeURIComponent;
const textOf = decodeURIComponent;
