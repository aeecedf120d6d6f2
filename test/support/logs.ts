/**
 * Logs whose operator may lie: they hold their own entries, sign whatever a test asks for, and
 * serve tiles. And keys in files.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { encodeBase64, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { encodeBatch, encodeLogEntry, type LogEntry } from "../../src/core/trust/log.ts";
import { changeMap, type MapChange, proveInMap } from "../../src/core/trust/map.ts";
import {
  cosign,
  type NoteKey,
  noteKey,
  renderCheckpoint,
  renderNote,
  renderSignerKey,
  renderVerifierKey,
  type SignedNote,
  signNote,
} from "../../src/core/trust/note.ts";
import {
  encodeBundle,
  hashLeaf,
  hashTile,
  nodesOfTiles,
  parseTilePath,
  proveConsistency,
  proveInclusion,
  treeRoot,
  widthOfTile,
} from "../../src/core/trust/tree.ts";

export type TestKey = {
  readonly key: NoteKey;
  readonly seed: Uint8Array;
  readonly sign: (message: Uint8Array) => Uint8Array;
};

export function testKey(
  name: string,
  type: NoteKey["type"],
  seed: Uint8Array = sha256(utf8(`key of ${name}`)),
): TestKey {
  const key = noteKey(name, type, ed25519.getPublicKey(seed));
  if (key === null) throw new Error("no name of a key");
  return { key, seed, sign: (message) => ed25519.sign(message, seed) };
}

export const vkeyOf = ({ key }: TestKey): string => renderVerifierKey(key);

/** Files of keys in a folder that `remove` removes. */
export function keyFiles(): {
  readonly fileOf: (key: TestKey) => string;
  readonly remove: () => void;
} {
  const folder = mkdtempSync(join(tmpdir(), "waypost-keys-"));
  return {
    fileOf: ({ key, seed }) => {
      const file = join(folder, key.id);
      writeFileSync(file, `${renderSignerKey(key, seed)}\n`, { mode: 0o600 });
      return file;
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** A log in memory. `fork` is one with the same beginning. */
export class TestLog {
  readonly entries: Uint8Array[] = [];
  readonly #pages = new Map<string, Uint8Array>();

  constructor(readonly key: TestKey) {}

  /** Appends a batch; a test may name another map root than the one that follows. */
  append(changes: readonly MapChange[], root?: Uint8Array): this {
    const changed = changeMap(this.#read, changes);
    for (const [path, page] of changed.pages)
      page === null ? this.#pages.delete(path) : this.#pages.set(path, page);
    this.entries.push(...encodeBatch(changes, root ?? changed.root));
    return this;
  }

  readonly #read = (path: string) => this.#pages.get(path) ?? null;

  fork(): TestLog {
    const other = new TestLog(this.key);
    other.entries.push(...this.entries);
    for (const [path, page] of this.#pages) other.#pages.set(path, page);
    return other;
  }

  /** Goes on as another one. */
  adopt(other: TestLog): void {
    this.entries.splice(0, this.entries.length, ...other.entries);
    this.#pages.clear();
    for (const [path, page] of other.#pages) this.#pages.set(path, page);
  }

  get size(): number {
    return this.entries.length;
  }

  readonly #nodes = nodesOfTiles((level, index) => this.tile(level, index, this.size));

  tile(level: number, index: number, size: number): Uint8Array {
    const width = widthOfTile(level, index, size);
    const hashes = Array.from({ length: width }, (_, i) =>
      level === 0
        ? hashLeaf(this.entries[index * 256 + i] as Uint8Array)
        : hashTile(this.tile(level - 1, index * 256 + i, size)),
    );
    return new Uint8Array(Buffer.concat(hashes));
  }

  root(size = this.size): Uint8Array {
    return treeRoot(this.#nodes, size);
  }

  consistency(from: number, to = this.size): Uint8Array[] {
    return proveConsistency(this.#nodes, from, to);
  }

  inclusion(index: number): Uint8Array[] {
    return proveInclusion(this.#nodes, index, this.size);
  }

  note(size = this.size): SignedNote {
    const text = renderCheckpoint({ origin: this.key.key.name, size, root: this.root(size) });
    return { text, signatures: [signNote(text, this.key.key, this.key.sign)] };
  }

  /** A note with the signatures of witnesses, true ones or not. */
  cosigned(witnesses: readonly TestKey[], nowMs: number, size = this.size): SignedNote {
    const note = this.note(size);
    const others = witnesses.map(({ key, sign }) => cosign(note.text, key, { sign, nowMs }));
    return { ...note, signatures: [...note.signatures, ...others] };
  }

  /** What a Directory answers of one key, as of the present size. */
  entry(
    key: Uint8Array,
    note: SignedNote,
    { from = 0, ...more }: { from?: number } & Partial<LogEntry> = {},
  ): Uint8Array {
    const { size } = this;
    return encodeLogEntry({
      logKey: renderVerifierKey(this.key.key),
      genesisSeed: null,
      note: renderNote(note),
      mapRoot: this.entries.at(-1) as Uint8Array,
      inclusion: this.inclusion(size - 1),
      ...proveInMap(this.#read, key),
      consistency: from === 0 || from > size ? [] : this.consistency(from),
      restart: null,
      ...more,
    });
  }

  /** The body of `add-checkpoint`. */
  added(
    old: number,
    note = this.note(),
    proof = old > this.size ? [] : this.consistency(old),
  ): string {
    return `old ${old}\n${proof.map((hash) => `${encodeBase64(hash)}\n`).join("")}\n${renderNote(note)}`;
  }

  /** Tiles and entries under `/log`. */
  serve(): { readonly url: string; readonly stop: () => Promise<void> } {
    const server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: ({ url }) => {
        const place = parseTilePath(new URL(url).pathname.replace("/log/tile/", ""));
        if (place === null) return new Response(null, { status: 404 });
        const { level, index, width } = place;
        if (level === "entries")
          return new Response(
            encodeBundle(
              this.entries.slice(index * 256, index * 256 + width),
            ) as Uint8Array<ArrayBuffer>,
          );
        return new Response(
          this.tile(level, index, this.size).slice(0, width * 32) as Uint8Array<ArrayBuffer>,
        );
      },
    });
    return { url: `http://127.0.0.1:${server.port}/log`, stop: () => server.stop(true) };
  }
}
