/**
 * Runs calls of a Substrate runtime in this engine, which compiles it once for all of them. The
 * library runs it in an interpreter that is WebAssembly itself and reads the whole runtime anew for
 * each call: 160 ms a block instead of 5. `compared.ts` holds both against each other. What no call
 * of the reference runtime needs is missing, and throws.
 */
import { calculate_state_root } from "@acala-network/chopsticks-executor";
import { ed25519 } from "@noble/curves/ed25519";
import { type Bytes, TypeRegistry, type Vec } from "@polkadot/types";
import { compactFromU8a, compactToU8a, u8aConcat } from "@polkadot/util";
import { blake2AsU8a, keccakAsU8a, sr25519Verify } from "@polkadot/util-crypto";

type Hex = `0x${string}`;

/** The state before the call. */
export type Storage = {
  readonly getStorage: (key: Hex) => Promise<string | undefined>;
  /** The first key after `key` that begins with the prefix. */
  readonly getNextKey: (prefix: Hex, key: Hex) => Promise<string | undefined>;
};

export type Called = {
  readonly result: Hex;
  /** Null for what is deleted. */
  readonly storageDiff: [Hex, Hex | null][];
};

const packedMagic = "52bc537646db8e05";

/** The WebAssembly of a code that may be packed. */
export function unpacked(code: string): Uint8Array<ArrayBuffer> {
  const hex = code.slice(2);
  if (!hex.startsWith(packedMagic)) return Uint8Array.fromHex(hex);
  return new Uint8Array(Bun.zstdDecompressSync(Uint8Array.fromHex(hex.slice(packedMagic.length))));
}

/**
 * A runtime, compiled, and instances of it that no call uses: to make one takes longer than a call.
 */
class Runtime {
  readonly #module: Promise<WebAssembly.Module>;
  readonly #idle: Machine[] = [];

  constructor(code: string) {
    this.#module = WebAssembly.compile(unpacked(code));
  }

  async call(method: string, input: Uint8Array, host: Host): Promise<Uint8Array> {
    const machine = this.#idle.pop() ?? (await Machine.of(await this.#module));
    const answer = await machine.call(method, input, host);
    // One that has panicked is not as it was.
    this.#idle.push(machine);
    return answer;
  }
}

/** By code: a chain has one or two. */
const runtimes = new Map<string, Runtime>();

export type Call = {
  readonly code: string;
  readonly method: string;
  readonly args: readonly string[];
  /** Each signature is taken. */
  readonly isMocked?: boolean | undefined;
};

/** Calls a function of the runtime; throws when it panics. */
export async function callRuntime(call: Call, storage: Storage): Promise<Called> {
  const { code, method, args, isMocked = false } = call;
  const runtime = runtimes.get(code) ?? new Runtime(code);
  runtimes.set(code, runtime);
  const changes = new Changes(storage);
  const input = u8aConcat(...args.map((arg) => Uint8Array.fromHex(arg.slice(2))));
  const answer = await runtime.call(method, input, { changes, isMocked });
  return { result: keyHex(answer), storageDiff: changes.all() };
}

/** Of WebAssembly's suspension, which the types of the language do not have yet. */
const Suspending: new (work: (...given: never[]) => Promise<unknown>) => object = Reflect.get(
  WebAssembly,
  "Suspending",
);
const promising: (exported: unknown) => (pointer: number, length: number) => Promise<bigint> =
  Reflect.get(WebAssembly, "promising");

const missing = (name: string) => () => {
  throw new Error(`the host has no ${name}`);
};

const keyHex = (key: Uint8Array): Hex => `0x${key.toHex()}`;

/** What a call has changed, in transactions within each other, over the state before it. */
class Changes {
  readonly #layers: Map<Hex, Uint8Array | null>[] = [new Map()];

  constructor(readonly before: Storage) {}

  start(): void {
    this.#layers.push(new Map());
  }

  rollBack(): void {
    this.#layers.pop();
  }

  commit(): void {
    for (const [key, value] of this.#layers.pop() ?? []) this.set(key, value);
  }

  set(key: Hex, value: Uint8Array | null): void {
    this.#layers.at(-1)?.set(key, value);
  }

  async get(key: Hex): Promise<Uint8Array | null> {
    const layer = this.#layers.findLast((one) => one.has(key));
    if (layer !== undefined) return layer.get(key) ?? null;
    const value = await this.before.getStorage(key);
    return typeof value === "string" ? Uint8Array.fromHex(value.slice(2)) : null;
  }

  async next(key: Hex, prefix: Hex = "0x"): Promise<Hex | null> {
    let after = key;
    for (;;) {
      const stored = await this.before.getNextKey(prefix, after);
      const own = this.#layers
        .flatMap((layer) => [...layer.keys()])
        .filter((one) => one > after && one.startsWith(prefix));
      if (typeof stored === "string") own.push(stored as Hex);
      const [found] = own.sort();
      if (found === undefined) return null;
      if ((await this.get(found)) !== null) return found;
      after = found;
    }
  }

  /** The last value of each key. */
  all(): [Hex, Hex | null][] {
    const merged = new Map(this.#layers.flatMap((layer) => [...layer]));
    return [...merged].map(([key, value]) => [key, value === null ? null : keyHex(value)]);
  }
}

const registry = new TypeRegistry();

type Host = { readonly changes: Changes; readonly isMocked: boolean };

/**
 * An instance of a runtime, for one call at a time. Spans are a pointer and, in the upper half, a
 * length.
 */
class Machine {
  #exports: WebAssembly.Exports = {};
  #memory = new WebAssembly.Memory({ initial: 0 });
  /** The memory before a call. */
  #first = new Uint8Array(0);
  /** What is above was not used. Memory is not given back within a call. */
  #free = 0;
  #host: Host | null = null;

  static async of(module: WebAssembly.Module): Promise<Machine> {
    const machine = new Machine();
    const offered = machine.#functions();
    const env: WebAssembly.ModuleImports = {};
    for (const { name } of WebAssembly.Module.imports(module))
      env[name] = (offered[name] ?? missing(name)) as WebAssembly.ImportValue;
    const { exports } = await WebAssembly.instantiate(module, { env });
    machine.#exports = exports;
    machine.#memory = exports["memory"] as WebAssembly.Memory;
    machine.#first = machine.#bytes().slice();
    return machine;
  }

  async call(method: string, input: Uint8Array, host: Host): Promise<Uint8Array> {
    const entry = this.#exports[method];
    if (typeof entry !== "function") throw new Error(`the runtime has no function ${method}`);
    this.#bytes().fill(0, this.#first.length, this.#free);
    this.#bytes().set(this.#first);
    this.#free = (this.#exports["__heap_base"] as WebAssembly.Global).value;
    this.#host = host;
    return this.#read(await promising(entry)(this.#put(input), input.length));
  }

  get #changes(): Changes {
    if (this.#host === null) throw new Error("no call runs");
    return this.#host.changes;
  }

  #bytes(): Uint8Array {
    return new Uint8Array(this.#memory.buffer);
  }

  #allot(length: number): number {
    // Each block has a header and a power of two bytes, as in a node: this runtime panics when they
    // stand closer.
    const pointer = Math.ceil(this.#free / 8) * 8 + 8;
    this.#free = pointer + 2 ** Math.ceil(Math.log2(Math.max(length, 8)));
    const lacking = this.#free - this.#bytes().length;
    if (lacking > 0) this.#memory.grow(Math.ceil(lacking / 65_536) + 16);
    return pointer;
  }

  #put(bytes: Uint8Array): number {
    const pointer = this.#allot(bytes.length);
    this.#bytes().set(bytes, pointer);
    return pointer;
  }

  #at(pointer: number, length: number): Uint8Array {
    return this.#bytes().slice(pointer >>> 0, (pointer >>> 0) + length);
  }

  #read(span: bigint): Uint8Array {
    const whole = BigInt.asUintN(64, span);
    return this.#at(Number(whole & 0xffff_ffffn), Number(whole >> 32n));
  }

  #span(bytes: Uint8Array): bigint {
    return (BigInt(bytes.length) << 32n) | BigInt(this.#put(bytes));
  }

  #option(value: Uint8Array | null): bigint {
    return this.#span(value === null ? Uint8Array.of(0) : u8aConcat([1], value));
  }

  #key(span: bigint): Hex {
    return keyHex(this.#read(span));
  }

  /** The host functions, by their names in the runtime. */
  #functions(): Record<string, unknown> {
    const hash = (digest: (bytes: Uint8Array) => Uint8Array) => (span: bigint) =>
      this.#put(digest(this.#read(span)));
    const waits = (work: (...given: never[]) => Promise<unknown>) => new Suspending(work);
    const nothing = () => {};
    return {
      ext_allocator_malloc_version_1: (length: number) => this.#allot(length),
      ext_allocator_free_version_1: nothing,
      ext_logging_log_version_1: nothing,
      ext_logging_max_level_version_1: () => 0,
      ext_misc_print_utf8_version_1: nothing,
      ext_misc_print_hex_version_1: nothing,
      ext_misc_runtime_version_version_1: waits(async (span: bigint) => {
        const version = await versionBytes(keyHex(this.#read(span)));
        return this.#option(u8aConcat(compactToU8a(version.length), version));
      }),
      ext_hashing_blake2_128_version_1: hash((bytes) => blake2AsU8a(bytes, 128)),
      ext_hashing_blake2_256_version_1: hash((bytes) => blake2AsU8a(bytes, 256)),
      ext_hashing_keccak_256_version_1: hash((bytes) => keccakAsU8a(bytes, 256)),
      ext_hashing_sha2_256_version_1: hash((bytes) => Bun.SHA256.hash(bytes) as Uint8Array),
      ext_hashing_twox_64_version_1: hash((bytes) => twox(bytes, 1)),
      ext_hashing_twox_128_version_1: hash((bytes) => twox(bytes, 2)),
      ext_crypto_ed25519_verify_version_1: (signature: number, message: bigint, key: number) =>
        this.#verify(() =>
          ed25519.verify(this.#at(signature, 64), this.#read(message), this.#at(key, 32), {
            zip215: true,
          }),
        ),
      ext_crypto_sr25519_verify_version_2: (signature: number, message: bigint, key: number) =>
        this.#verify(() =>
          sr25519Verify(this.#read(message), this.#at(signature, 64), this.#at(key, 32)),
        ),
      ext_trie_blake2_256_ordered_root_version_2: waits(async (span: bigint, version: number) =>
        this.#put(await orderedRoot(this.#read(span), version)),
      ),
      ext_storage_start_transaction_version_1: () => this.#changes.start(),
      ext_storage_commit_transaction_version_1: () => this.#changes.commit(),
      ext_storage_rollback_transaction_version_1: () => this.#changes.rollBack(),
      ext_storage_set_version_1: (key: bigint, value: bigint) =>
        this.#changes.set(this.#key(key), this.#read(value)),
      ext_storage_clear_version_1: (key: bigint) => this.#changes.set(this.#key(key), null),
      ext_storage_get_version_1: waits(async (key: bigint) => {
        const value = await this.#changes.get(this.#key(key));
        return this.#option(value === null ? null : u8aConcat(compactToU8a(value.length), value));
      }),
      ext_storage_exists_version_1: waits(async (key: bigint) =>
        (await this.#changes.get(this.#key(key))) === null ? 0 : 1,
      ),
      ext_storage_read_version_1: waits(async (key: bigint, out: bigint, offset: number) => {
        const value = await this.#changes.get(this.#key(key));
        if (value === null) return this.#option(null);
        const rest = value.subarray(offset >>> 0);
        const [pointer, length] = [
          Number(out & 0xffff_ffffn),
          Number(BigInt.asUintN(64, out) >> 32n),
        ];
        this.#bytes().set(rest.subarray(0, length), pointer);
        return this.#option(u32(rest.length));
      }),
      ext_storage_append_version_1: waits(async (key: bigint, value: bigint) => {
        const [name, added] = [this.#key(key), this.#read(value)];
        this.#changes.set(name, appended(await this.#changes.get(name), added));
      }),
      ext_storage_next_key_version_1: waits(async (key: bigint) => {
        const next = await this.#changes.next(this.#key(key));
        const bytes = next === null ? null : Uint8Array.fromHex(next.slice(2));
        return this.#option(bytes === null ? null : u8aConcat(compactToU8a(bytes.length), bytes));
      }),
      ext_storage_clear_prefix_version_2: waits(async (prefix: bigint, limit: bigint) => {
        const [isLimited, ...most] = this.#read(limit);
        if (isLimited === 1 && most.some((byte) => byte !== 255))
          throw new Error("the host clears no part of a prefix");
        const name = this.#key(prefix);
        let count = 0;
        const first =
          (await this.#changes.get(name)) === null ? await this.#changes.next(name, name) : name;
        for (let key = first; key !== null; key = await this.#changes.next(key, name)) {
          this.#changes.set(key, null);
          count++;
        }
        return this.#span(u8aConcat([0], u32(count)));
      }),
      // The library puts none into its blocks.
      ext_storage_root_version_2: () => this.#span(new Uint8Array(32)),
    };
  }

  #verify(holds: () => boolean): number {
    if (this.#host?.isMocked) return 1;
    try {
      return holds() ? 1 : 0;
    } catch {
      // Bytes that are no key or no signature.
      return 0;
    }
  }
}

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** The 64-bit xxHash by as many seeds, least byte first. */
function twox(bytes: Uint8Array, seeds: number): Uint8Array {
  const out = new DataView(new ArrayBuffer(8 * seeds));
  for (let seed = 0; seed < seeds; seed++)
    out.setBigUint64(8 * seed, Bun.hash.xxHash64(bytes, BigInt(seed)), true);
  return new Uint8Array(out.buffer);
}

/** A list with one more item; what is no list becomes one. */
function appended(list: Uint8Array | null, item: Uint8Array): Uint8Array {
  if (list === null || list.length === 0) return u8aConcat(compactToU8a(1), item);
  const [offset, count] = compactFromU8a(list);
  return u8aConcat(compactToU8a(count.toNumber() + 1), list.subarray(offset), item);
}

/** The root of a trie whose keys are the positions. */
async function orderedRoot(encoded: Uint8Array, version: number): Promise<Uint8Array> {
  const items = registry.createType<Vec<Bytes>>("Vec<Bytes>", encoded);
  const entries = [...items].map((item, n) => [keyHex(compactToU8a(n)), keyHex(item.toU8a(true))]);
  const root = String(await calculate_state_root(entries, version));
  return Uint8Array.fromHex(root.slice(2));
}

/** A state without any key. */
export const nowhere: Storage = {
  getStorage: async () => undefined,
  getNextKey: async () => undefined,
};

async function versionBytes(code: string): Promise<Uint8Array> {
  const { result } = await callRuntime({ code, method: "Core_version", args: [] }, nowhere);
  return Uint8Array.fromHex(result.slice(2));
}

/** What a code says of itself, in the form of the library. */
export async function readVersion(code: string) {
  const version = registry.createType("RuntimeVersion", await versionBytes(code));
  return {
    specName: version.specName.toString(),
    implName: version.implName.toString(),
    authoringVersion: version.authoringVersion.toNumber(),
    specVersion: version.specVersion.toNumber(),
    implVersion: version.implVersion.toNumber(),
    apis: version.apis.map(([id, number]) => [id.toHex(), number.toNumber()]),
    transactionVersion: version.transactionVersion.toNumber(),
    stateVersion: version.stateVersion.toNumber(),
  };
}
