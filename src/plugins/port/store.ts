/**
 * A store behind a message port: `serveStore` in the thread that has it open, `portStore` in every other. Both
 * ends know the contract only by its table of methods, so whatever a driver offers is offered to all threads.
 */
import { isFault } from "../../core/fault.ts";
import {
  type Capabilities,
  type CapabilityName,
  type Durability,
  type Store,
  StoreError,
  type Submission,
} from "../../storage/contract.ts";
import { capabilityMethods, storeShapeProblem } from "../../storage/shape.ts";
import type { Channel } from "./channel.ts";
import { type PlainFault, packFault, unpackFault } from "./values.ts";

/** What another thread must know of a store to offer it. */
export type StoreDescription = {
  readonly name: string;
  readonly plugin: string;
  readonly durability: Durability;
  readonly capabilities: readonly CapabilityName[];
};

const capabilityNames = Object.keys(capabilityMethods) as CapabilityName[];

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
  return { name, plugin, durability, capabilities };
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
  const capabilities = Object.fromEntries(
    description.capabilities.map((one) => [one, portCapability(one, (...call) => ask(targetOf(name, one), ...call))]),
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
