/**
 * A store behind a message port: `serveStore` in the thread that has it open, `portStore` in every other. Both
 * ends know the contract only by its table of methods, so whatever a driver offers is offered to all threads.
 */
import { isFault } from "../../core/fault.ts";
import { capabilityMethods, capabilityNames, storeShapeProblem } from "../../storage/bind.ts";
import {
  type Capabilities,
  type CapabilityName,
  type Durability,
  type Store,
  StoreError,
  type Submission,
} from "../../storage/contract.ts";
import { type Channel, type PlainFault, packFault, unpackFault } from "./channel.ts";

/** What another thread must know of a store to offer it. */
export type StoreDescription = {
  readonly name: string;
  readonly plugin: string;
  readonly durability: Durability;
  readonly capabilities: readonly CapabilityName[];
  /** Shared memory that counts changes of the ledger's head, odd during one; `null` where nobody can count them. */
  readonly headChanges: SharedArrayBuffer | null;
};

/** Lets the other end of the channel use the store; it stays open when that end is done with it. */
export function serveStore(channel: Channel, name: string, store: Store): StoreDescription {
  const { plugin, durability } = store;
  const capabilities = capabilityNames.filter((one) => store.capabilities[one] !== undefined);
  channel.serve(targetOf(name), () => store.probe());
  for (const one of capabilities) {
    const capability = store.capabilities[one];
    channel.serve(targetOf(name, one), (method, args) => {
      const operation: unknown = capability === undefined ? undefined : Reflect.get(capability, method);
      if (typeof operation !== "function" || !Object.hasOwn(capabilityMethods[one], method)) {
        throw new Error(`a ${one} has no operation ${method}`);
      }
      const result: unknown = Reflect.apply(operation, capability, args);
      return bearsSubmission(one, method) ? Promise.resolve(result).then(packSubmission) : result;
    });
  }
  return { name, plugin, durability, capabilities, headChanges: countHeads(store) };
}

function countHeads(store: Store): SharedArrayBuffer | null {
  if (store.followHead === undefined) return null;
  const buffer = new SharedArrayBuffer(4);
  const changes = new Int32Array(buffer);
  store.followHead((phase) => {
    const isChanging = Atomics.load(changes, 0) % 2 !== 0;
    if (phase === "changed") Atomics.add(changes, 0, isChanging ? 1 : 2);
    else if (!isChanging) Atomics.add(changes, 0, 1);
  });
  return buffer;
}

/** The store at the other end of the channel. Closing it ends the use by this thread. */
export function portStore(channel: Channel, description: StoreDescription): Store {
  const { name, plugin, durability } = description;
  const inWork = new Set<Promise<unknown>>();
  let closed = false;
  const ask = (target: string, method: string, args: readonly unknown[]): Promise<unknown> => {
    if (closed) return Promise.reject(new StoreError("closed", `store "${name}" is closed`));
    const answer = channel.call(target, method, args);
    const settled: Promise<unknown> = answer.then(
      () => inWork.delete(settled),
      () => inWork.delete(settled),
    );
    inWork.add(settled);
    return answer;
  };
  const { headChanges } = description;
  const remembered = headChanges === null ? null : rememberReads(new Int32Array(headChanges));
  const capabilities = Object.fromEntries(
    description.capabilities.map((one) => {
      const through: Ask = (method, args) => ask(targetOf(name, one), method, args);
      if (one !== "ledger" || remembered === null) return [one, portCapability(one, through)];
      const reads: Ask = (method, args) => (closed ? through(method, args) : remembered(method, args, through));
      return [one, portCapability(one, reads)];
    }),
  );
  const store: unknown = {
    plugin,
    durability,
    capabilities,
    probe: async () => void (await ask(targetOf(name), "probe", [])),
    close: async () => {
      closed = true;
      await Promise.all(inWork);
    },
  };
  if (!isStore(store)) throw new Error(`store "${name}" of the other thread is no store`);
  return store;
}

type Ask = (method: string, args: readonly unknown[]) => Promise<unknown>;

function portCapability(name: CapabilityName, ask: Ask): Readonly<Record<string, unknown>> {
  const operation = (method: string) =>
    bearsSubmission(name, method)
      ? async (...args: readonly unknown[]) => unpackSubmission(await ask(method, args))
      : (...args: readonly unknown[]) => ask(method, args);
  return Object.fromEntries(Object.keys(capabilityMethods[name]).map((method) => [method, operation(method)]));
}

/** Reads of a ledger that are the same until its head changes. */
const headReads: readonly string[] = ["head", "bounds", "account", "aliasHolder", "policy", "operator", "proofs"];
/** An account with the longest document takes about 40 KiB. */
const readsMax = 4_096;

/**
 * What the ledger answered, until its head changes. The count of changes is in shared memory. It is odd from
 * before the first answer of the new state until the last of the previous one, and meanwhile nothing is remembered: so
 * nobody reads an older state than another thread has seen. An answer to a read of the previous state that comes in
 * late is remembered in the previous memory, which is gone.
 */
function rememberReads(changes: Int32Array) {
  let reads = new Map<string, Promise<unknown>>();
  let seen = Atomics.load(changes, 0);
  return (method: string, args: readonly unknown[], through: Ask): Promise<unknown> => {
    if (!headReads.includes(method)) return through(method, args);
    const now = Atomics.load(changes, 0);
    if (now !== seen) reads = new Map();
    seen = now;
    if (now % 2 !== 0) return through(method, args);
    const key = `${method} ${args.join(" ")}`;
    const known = reads.get(key);
    if (known !== undefined) return known;
    const memory = reads;
    const read = through(method, args);
    if (memory.size < readsMax) memory.set(key, read);
    read.catch(() => memory.delete(key));
    return read;
  };
}

function isStore(value: unknown): value is Store {
  return storeShapeProblem(value) === null;
}

function targetOf(store: string, capability?: keyof Capabilities): string {
  return capability === undefined ? `store ${store}` : `store ${store} ${capability}`;
}

// ---------------------------------------------------------------------------------------------- submissions

/** The one record of the contract that has a refusal inside: its class does not survive the way. */
type PlainSubmission = Omit<Submission, "reason"> & { readonly reason: PlainFault | null };

function bearsSubmission(capability: CapabilityName, method: string): boolean {
  return capability === "ledger" && (method === "submit" || method === "submission");
}

function packSubmission(result: unknown): unknown {
  if (result === null || isFault(result)) return result;
  const { reason, ...submission } = result as Submission;
  return { ...submission, reason: reason === null ? null : packFault(reason) } satisfies PlainSubmission;
}

function unpackSubmission(result: unknown): unknown {
  if (result === null || isFault(result)) return result;
  const { reason, ...submission } = result as PlainSubmission;
  return { ...submission, reason: reason === null ? null : unpackFault(reason) } satisfies Submission;
}
