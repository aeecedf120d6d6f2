/** The table of the memory driver: a map in the order of its keys. */
import { OrderedMap } from "@js-sdsl/ordered-map";
import { StoreError } from "../../storage/contract.ts";
import { type OrderedTable, Overlay, type TableChange } from "../../storage/table.ts";

export class MemoryTable implements OrderedTable {
  private readonly values = new OrderedMap<string, Uint8Array>();
  private bytes = 0;
  private isClosed = false;

  constructor(private readonly bytesMax: number) {}

  get(key: string): Uint8Array | null {
    this.checkOpen();
    return this.values.getElementByKey(key) ?? null;
  }

  range(
    prefix: string,
    { after = "", limit }: { readonly after?: string; readonly limit: number },
  ) {
    this.checkOpen();
    const found: [string, Uint8Array][] = [];
    for (
      const at = this.values.lowerBound(after > prefix ? after : prefix);
      at.isAccessible();
      at.next()
    ) {
      const [key, value] = at.pointer;
      if (found.length >= limit || !key.startsWith(prefix)) break;
      if (key !== after) found.push([key, value.slice()]);
    }
    return found;
  }

  prefetch(): void {}

  async commit<T>(change: (view: TableChange) => T): Promise<T> {
    this.checkOpen();
    const changes = new Overlay(this);
    const result = change(changes);
    this.checkRoom(changes.written);
    for (const [key, value] of changes.written) this.write(key, value);
    return result;
  }

  close(): void {
    this.isClosed = true;
  }

  private checkOpen(): void {
    if (this.isClosed) throw new StoreError("closed", "the store is closed");
  }

  private checkRoom(written: ReadonlyMap<string, Uint8Array | null>): void {
    let more = 0;
    for (const [key, value] of written)
      more += cost(key, value) - cost(key, this.values.getElementByKey(key) ?? null);
    if (more > 0 && this.bytes + more > this.bytesMax)
      throw new StoreError("full", "the memory store has reached its size limit");
  }

  private write(key: string, value: Uint8Array | null): void {
    this.bytes += cost(key, value) - cost(key, this.values.getElementByKey(key) ?? null);
    if (value === null) this.values.eraseElementByKey(key);
    else this.values.setElement(key, value);
  }
}

/** Bytes of a pair, with a rough share of what the map and the keys in order take. */
function cost(key: string, value: Uint8Array | null): number {
  return value === null ? 0 : key.length + value.length + 128;
}
