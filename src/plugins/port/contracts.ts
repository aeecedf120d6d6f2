/**
 * The contracts of store and bus behind a message port, both ends of each: `serveStore` and `serveBus` in the thread that
 * has them open, `portStore` and `PortBus` in every other.
 *
 * Both ends know the store's contract only by its table of methods, so whatever a driver offers is offered to all
 * threads. A subscription of another thread is one of the bus itself, with its inbox and its bounds: a message counts as
 * being worked on until the other thread has answered it, so a thread that falls behind costs bounded memory.
 */
import { errorStack, isFault } from "../../core/fault.ts";
import { Waiters } from "../../core/std/bounded.ts";
import { capabilityMethods, capabilityNames, storeShapeProblem } from "../../storage/bind.ts";
import {
  type Bus,
  type BusEnvironment,
  type BusReceiver,
  type BusStats,
  checkSubject,
  type SubscribeOptions,
  type Subscription,
} from "../../storage/bus.ts";
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
  if (!isStore(store)) throw new Error(`store "${name}" of the other thread is not a store`);
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

// --------------------------------------------------------------------------------------------------------------- bus

const busTarget = "bus";
const receiverTarget = "bus receiver";

/** What another thread must know of a bus to offer it. */
export type BusDescription = Pick<Bus, "plugin" | "messageBytesMax">;

/**
 * A bus within one process as its threads use it, the thread that has it open included: each of them knows which
 * subjects have a receiver in any, because most messages have none, and then need not cross a port.
 */
export class ThreadsBus implements Bus {
  readonly plugin: string;
  readonly messageBytesMax: number;
  private readonly counts = new Map<string, number>();
  private readonly channels: Channel[] = [];

  constructor(private readonly bus: Bus) {
    this.plugin = bus.plugin;
    this.messageBytesMax = bus.messageBytesMax;
  }

  /** The subjects of now. The other end of the channel hears of every change from now on. */
  announceTo(channel: Channel): readonly string[] {
    this.channels.push(channel);
    return [...this.counts.keys()];
  }

  mayReach(subject: string): boolean {
    return this.counts.has(subject);
  }

  publish(subject: string, message: Uint8Array): void {
    this.bus.publish(subject, message);
  }

  request(subject: string, message: Uint8Array, timeoutMs: number): Promise<Uint8Array | "nobody"> {
    return this.bus.request(subject, message, timeoutMs);
  }

  /** `ready` resolves when every thread knows. A thread that is gone needs to know nothing. */
  subscribe(subject: string, handler: BusReceiver, options?: SubscribeOptions): Subscription {
    const subscription = this.bus.subscribe(subject, handler, options);
    this.counts.set(subject, (this.counts.get(subject) ?? 0) + 1);
    const announced = this.channels.map((channel) => channel.call(receiverTarget, "known", [subject]));
    const ready = Promise.allSettled([subscription.ready, ...announced]).then(() => {});
    let isOver = false;
    const unsubscribe = (): void => {
      subscription.unsubscribe();
      if (!isOver) this.end(subject);
      isOver = true;
    };
    return { ready, unsubscribe };
  }

  stats(): BusStats {
    return this.bus.stats();
  }

  close(): Promise<void> {
    return this.bus.close();
  }

  private end(subject: string): void {
    const left = (this.counts.get(subject) ?? 0) - 1;
    if (left > 0) this.counts.set(subject, left);
    else {
      this.counts.delete(subject);
      for (const channel of this.channels) channel.send(receiverTarget, "unknown", [subject]);
    }
  }
}

/** Lets the other end of the channel use the bus. */
export function serveBus(channel: Channel, bus: Bus): BusDescription {
  const subscriptions = new Map<number, Subscription>();
  channel.serve(busTarget, (method, args) => {
    const [first, second, third] = args;
    switch (method) {
      case "publish":
        return bus.publish(String(first), bytesOf(second));
      case "request":
        return bus.request(String(first), bytesOf(second), Number(third));
      case "subscribe": {
        const id = Number(first);
        const deliver: BusReceiver = async (message) => {
          const answer = await channel.call(receiverTarget, "deliver", [id, message]).catch(() => undefined);
          return answer instanceof Uint8Array ? answer : undefined;
        };
        const missed = () => channel.send(receiverTarget, "missed", [id, bus.stats().dropped]);
        const subscription = bus.subscribe(String(second), deliver, { missed });
        subscriptions.set(id, subscription);
        return subscription.ready;
      }
      case "unsubscribe":
        subscriptions.get(Number(first))?.unsubscribe();
        return void subscriptions.delete(Number(first));
      case "subjects":
        return bus instanceof ThreadsBus ? bus.announceTo(channel) : null;
      default:
        throw new Error(`a bus has no operation ${method}`);
    }
  });
  const { plugin, messageBytesMax } = bus;
  return { plugin, messageBytesMax };
}

function bytesOf(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw new Error("a message is bytes");
}

type Receiver = { readonly subject: string; readonly handler: BusReceiver; readonly missed: (() => void) | undefined };

/** The bus at the other end of the channel. */
export class PortBus implements Bus {
  readonly plugin: string;
  readonly messageBytesMax: number;
  private readonly receivers = new Map<number, Receiver>();
  private readonly known = new Set<string>();
  /** Whether a subject that is not known has no receiver in any thread. */
  private knowsAll = false;
  private readonly ending = new Waiters();
  private lastId = 0;
  /** Too large, or while the other thread hung. */
  private dropped = 0;
  /** At the other end since the start, when it last reported. */
  private droppedThere = 0;
  private closed = false;

  constructor(
    private readonly channel: Channel,
    description: BusDescription,
    private readonly log: BusEnvironment["log"],
  ) {
    this.plugin = description.plugin;
    this.messageBytesMax = description.messageBytesMax;
    channel.serve(receiverTarget, (method, [id, given]) => {
      if (method === "known") return void this.known.add(String(id));
      if (method === "unknown") return void this.known.delete(String(id));
      if (method === "missed") this.droppedThere = Number(given);
      const receiver = this.receivers.get(Number(id));
      if (receiver === undefined) return undefined;
      return method === "missed" ? this.reportMissed(receiver) : this.deliver(receiver, bytesOf(given));
    });
    const learn = (subjects: unknown): void => {
      this.knowsAll = Array.isArray(subjects);
      if (Array.isArray(subjects)) for (const subject of subjects) this.known.add(String(subject));
    };
    channel.call(busTarget, "subjects", []).then(learn, () => undefined);
  }

  publish(subject: string, message: Uint8Array): void {
    checkSubject(subject);
    if (this.closed || !this.mayReach(subject)) return;
    if (message.length > this.messageBytesMax || this.channel.isSilent) this.dropped++;
    else this.channel.send(busTarget, "publish", [subject, message.slice()]);
  }

  subscribe(subject: string, handler: BusReceiver, { missed }: SubscribeOptions = {}): Subscription {
    checkSubject(subject);
    if (this.closed) return { ready: Promise.resolve(), unsubscribe: () => {} };
    const id = ++this.lastId;
    this.receivers.set(id, { subject, handler, missed });
    // Others know when `ready` resolves; messages of this thread reach it from now on.
    this.known.add(subject);
    const ready = this.channel.call(busTarget, "subscribe", [id, subject]).then(
      () => {},
      () => {},
    );
    const unsubscribe = () => {
      if (this.receivers.delete(id)) this.channel.send(busTarget, "unsubscribe", [id]);
    };
    return { ready, unsubscribe };
  }

  async request(subject: string, message: Uint8Array, timeoutMs: number): Promise<Uint8Array | "nobody"> {
    checkSubject(subject);
    if (this.closed || message.length > this.messageBytesMax || !this.mayReach(subject)) return "nobody";
    const asked = this.channel.call(busTarget, "request", [subject, message.slice(), timeoutMs]).catch(() => "nobody");
    const answer = await this.ending.orEvent(asked);
    return answer instanceof Uint8Array ? answer : "nobody";
  }

  /** Of this thread. Whether other processes are reached is known at the other end. */
  stats(): BusStats {
    const dropped = this.dropped + this.droppedThere;
    return { connected: !this.closed, subscriptions: this.receivers.size, dropped };
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const id of this.receivers.keys()) this.channel.send(busTarget, "unsubscribe", [id]);
    this.receivers.clear();
    this.ending.release();
  }

  mayReach(subject: string): boolean {
    return !this.knowsAll || this.known.has(subject);
  }

  private async deliver({ subject, handler }: Receiver, message: Uint8Array): Promise<Uint8Array | undefined> {
    try {
      return await handler(message);
    } catch (error) {
      this.log("error", "a bus handler failed", { subject, error: errorStack(error) });
      return undefined;
    }
  }

  private reportMissed({ subject, missed }: Receiver): void {
    try {
      missed?.();
    } catch (error) {
      this.log("error", "a bus handler of missed messages failed", { subject, error: errorStack(error) });
    }
  }
}
