/**
 * The table of the memory driver: a B+ tree of values. A commit changes a clone, which shares all that stays the same, and
 * takes the place of the tree when it is done: a throw leaves nothing behind.
 */
import BTree from "sorted-btree";
import { StoreError } from "../../storage/contract.ts";
import { checkKey, type Table, type TableChange, type TableView } from "../../storage/table.ts";

type Values = BTree<string, Uint8Array>;

export class MemoryTable implements Table {
  private values: Values = new BTree();
  private bytes = 0;
  private isClosed = false;

  constructor(private readonly bytesMax: number) {}

  get(key: string): Uint8Array | null {
    return viewOf(this.values).get(key);
  }

  range(...[prefix, options]: Parameters<TableView["range"]>): [string, Uint8Array][] {
    return viewOf(this.values).range(prefix, options);
  }

  prefetch(): void {}

  async commit<T>(change: (view: TableChange) => T): Promise<T> {
    if (this.isClosed) throw new StoreError("closed", "the store is closed");
    const values = this.values.clone();
    let { bytes } = this;
    const remove = (key: string): void => {
      bytes -= costOf(key, values.get(key));
      values.delete(key);
    };
    const put = (key: string, value: Uint8Array): void => {
      checkKey(key);
      bytes += costOf(key, value) - costOf(key, values.get(key));
      if (bytes > this.bytesMax) throw new StoreError("full", "the memory store has reached its size limit");
      values.set(key, value.slice());
    };
    const result = change({ ...viewOf(values), prefetch: this.prefetch, put, remove });
    [this.values, this.bytes] = [values, bytes];
    return result;
  }

  close(): void {
    this.isClosed = true;
  }
}

function viewOf(values: Values): Pick<TableView, "get" | "range"> {
  return {
    get: (key) => values.get(key)?.slice() ?? null,
    range(prefix, { after = "", limit }) {
      const found: [string, Uint8Array][] = [];
      for (const [key, value] of values.entries(after > prefix ? after : prefix)) {
        if (found.length === limit || !key.startsWith(prefix)) break;
        if (key !== after) found.push([key, value.slice()]);
      }
      return found;
    },
  };
}

/** Bytes of a pair, with a rough share of what the tree takes; 0 without a value. */
function costOf(key: string, value: Uint8Array | undefined): number {
  return value === undefined ? 0 : key.length + value.length + 128;
}
