/**
 * The memory driver as a module, which writes down who called which capability of which store: a
 * test finds there whether each role of a process has the store that its configuration names.
 */
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { StoragePlugin, Store } from "../../src/storage/contract.ts";

/** `<store>: <capability>.<method>`, in the order of the calls. Sweeps are left out. */
export const calls: string[] = [];

type Options = { readonly name: string; readonly memory: unknown };

const recordingPlugin: StoragePlugin<Options> = {
  name: "recording",
  migrate: null,
  maintenance: null,
  provides: memoryPlugin.provides,
  parseOptions: (input) => {
    const { name, ...rest } = input as { readonly name: string };
    const parsed = memoryPlugin.parseOptions(rest);
    return parsed.ok ? { ok: true, options: { name, memory: parsed.options } } : parsed;
  },
  open: async ({ name, memory }, environment) => {
    const store = await memoryPlugin.open(memory as never, environment);
    const capabilities = Object.entries(store.capabilities).map(([capability, object]) => [
      capability,
      recorded(`${name}: ${capability}`, object),
    ]);
    return { ...store, capabilities: Object.fromEntries(capabilities) as Store["capabilities"] };
  },
};

function recorded<T extends object>(place: string, object: T): T {
  return new Proxy(object, {
    get: (target, method) => {
      const value: unknown = Reflect.get(target, method);
      if (typeof value !== "function") return value;
      return (...given: unknown[]) => {
        const isSweep = method === "expire" || given[0] === "last sweep";
        if (!isSweep) calls.push(`${place}.${String(method)}`);
        return Reflect.apply(value, target, given);
      };
    },
  });
}

export default recordingPlugin;
