/** The stores that a command of `waypost storage` works on, and how it reports on each. */
import { failed } from "../app/failure.ts";
import { storesOf, toFailure } from "../app/stores.ts";
import type { OpenStep } from "../storage/bind.ts";
import type { FileMaintenance, StoreMaintenance } from "../storage/contract.ts";
import { createReport } from "./command.ts";
import { readConfig } from "./config.ts";

export type Options = {
  readonly config: string;
  readonly json?: boolean;
  readonly store?: readonly string[];
};
export type From = Options & { readonly from: string };

/** The stores of the configuration, or the one that `--store` names. */
export async function chosenSteps({ config, store }: Options): Promise<OpenStep[]> {
  const steps = await storesOf(await readConfig(config));
  const unknown = store?.find((wanted) => !steps.some(({ name }) => name === wanted));
  if (unknown !== undefined) throw failed(`no node uses a store named "${unknown}"`);
  return store === undefined ? steps : steps.filter(({ name }) => store.includes(name));
}

type Reported = { readonly name: string; readonly result: string };
/**
 * What comes after all stores, before anything is reported; lines of stores
 * that were not worked on.
 */
type Ending = {
  readonly after?: () => Promise<void>;
  readonly others?: readonly Reported[];
};

/** Works on one store after another; the result has a line for each. */
export async function reportEach<T extends { readonly name: string }>(
  { json = false }: Options,
  ones: readonly T[],
  work: (one: T) => Promise<string>,
  { after, others = [] }: Ending = {},
): Promise<void> {
  const done: Reported[] = [];
  for (const one of ones) done.push({ name: one.name, result: await work(one).catch(toFailure) });
  await after?.();
  done.push(...others);
  createReport(json).result(done, done.map(({ name, result }) => `${name}: ${result}`).join("\n"));
}

export type Maintained<T> = { readonly name: string; readonly work: T };

/** The chosen stores whose records this program moves. */
export async function moved(options: Options): Promise<Maintained<StoreMaintenance>[]> {
  const found = (await chosenSteps(options)).flatMap(({ name, maintenance }) =>
    maintenance === null ? [] : [{ name, work: maintenance }],
  );
  if (found.length === 0) throw failed("the stores hold nothing that can be moved");
  return found;
}

/** The chosen stores whose files this program maintains. */
export async function maintained(options: Options): Promise<Maintained<FileMaintenance>[]> {
  const found = (await moved(options)).flatMap(({ name, work: { files } }) =>
    files === null ? [] : [{ name, work: files }],
  );
  if (found.length === 0)
    throw failed("the stores keep their data in a database: use its own tools");
  return found;
}

/** The one that `--store` names, or the only one. */
export function theOne<T>([one, ...more]: readonly T[]): T {
  if (one === undefined || more.length > 0)
    throw failed("there are several stores: name one with --store");
  return one;
}
