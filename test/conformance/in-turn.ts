/** Several stores over the same data, used as one. */
import type { Capabilities, Store } from "../../src/storage/contract.ts";
import { capabilityMethods } from "./methods.ts";

/** Stores over one schema as one of them: each operation goes through the next. */
export function inTurn(stores: readonly Store[]): Store {
  let turn = 0;
  const next = (): Store => stores[turn++ % stores.length] as Store;
  const [first] = stores;
  if (first === undefined) throw new Error("there is no store");
  const names = Object.keys(first.capabilities) as (keyof Capabilities)[];
  const capabilities = Object.fromEntries(
    names.map((name) => {
      const methods = Object.keys(capabilityMethods[name]).map((method) => {
        const operation = (...args: readonly unknown[]): unknown => {
          const capability = next().capabilities[name];
          return Reflect.apply(Reflect.get(capability ?? {}, method), capability, args);
        };
        return [method, operation] as const;
      });
      return [name, Object.fromEntries(methods)];
    }),
  );
  let ending: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    await Promise.all(stores.map((store) => store.close()));
  };
  return {
    ...first,
    capabilities,
    probe: () => next().probe(),
    close: () => {
      ending ??= close();
      return ending;
    },
  };
}
