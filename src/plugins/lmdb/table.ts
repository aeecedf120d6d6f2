/**
 * The table of the embedded ledger: one database of the environment, keys as UTF-8, values sealed.
 */
import { checkKey, type Table, type TableChange, type TableView } from "../../storage/table.ts";
import type { Change, Environment } from "./environment.ts";
import { sealedUnder, unsealedUnder } from "./records.ts";
import type { WriteKind } from "./space.ts";

/** A commit of the ledger may write up to this much without saying so. */
const commitBytes = 256 * 1024;

/** `kind` says what the commits of the moment are worth: opening must succeed even on a full disk. */
export function openTable(environment: Environment, kind: () => WriteKind): Table {
  return {
    ...viewOf(environment),
    commit<T>(change: (view: TableChange) => T): Promise<T> {
      return environment.commit({ kind: kind(), bytes: commitBytes }, (view) =>
        change({
          ...viewOf(view),
          put(key, value) {
            checkKey(key);
            const bytes = Buffer.from(key);
            view.put("table", bytes, sealedUnder(bytes, value));
          },
          remove: (key) => view.remove("table", Buffer.from(key)),
        }),
      );
    },
  };
}

function viewOf(source: Pick<Change, "get" | "range">): TableView {
  return {
    get(key) {
      const bytes = Buffer.from(key);
      const record = source.get("table", bytes);
      return record === null ? null : unsealedUnder(bytes, record, `table record ${key}`);
    },
    range(prefix, { after, limit }) {
      const first = Buffer.from(prefix);
      const past = after === undefined ? null : Buffer.concat([Buffer.from(after), Buffer.of(0)]);
      const start = past !== null && past.compare(first) > 0 ? past : first;
      const end = endOfPrefix(first);
      if (limit <= 0 || (end !== null && start.compare(end) >= 0)) return [];
      // An empty start is no key to the library; no key of ours begins with a zero byte.
      const range = { start: start.length === 0 ? Buffer.of(0) : start, limit, ...(end === null ? {} : { end }) };
      return source.range("table", range).map(([key, record]) => {
        const text = key.toString();
        return [text, unsealedUnder(key, record, `table record ${text}`)];
      });
    },
  };
}

/** The first key after all that begin with the prefix, or `null` when there is none. */
function endOfPrefix(prefix: Buffer): Buffer | null {
  const end = Buffer.from(prefix);
  for (let i = end.length - 1; i >= 0; i--) {
    if (end[i] === 0xff) continue;
    end[i] = end[i]! + 1;
    return end.subarray(0, i + 1);
  }
  return null;
}
