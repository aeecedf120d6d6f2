/**
 * Records that end at a time, for replay claims and receipts: a database from key to sealed record, and
 * a second one from (end, key) that says what is due. Keys are the UTF-16 units of the caller's text,
 * so that no two texts meet in one key. Operations that come together share a commit.
 */
import type { Receipts, Replay } from "../../storage/contract.ts";
import { checkReceipt, checkText } from "../drivers.ts";
import type { Change, Environment } from "./environment.ts";
import { orderedKey, orderedNumber, Reader, sealedUnder, unsealedUnder, Writer } from "./records.ts";

type Kind = "claims" | "receipts";
type Standing = { readonly untilMs: number; readonly value: Uint8Array };

const endBytes = 8;
const recordOverhead = 64;

export function openReplay(environment: Environment): Replay {
  return {
    async claim(tag, untilMs, nowMs) {
      checkText("tag", tag);
      const key = keyOf(tag);
      return environment.join({ kind: "removal", bytes: key.length * 2 + recordOverhead }, (view) => {
        const standing = read(view, "claims", key);
        if (standing !== null && standing.untilMs > nowMs) return false;
        write(view, "claims", { key, before: standing, untilMs, value: nothing });
        return true;
      });
    },
    expire: (nowMs, limit) => expire(environment, "claims", { nowMs, limit }),
  };
}

export function openReceipts(environment: Environment): Receipts {
  const size = (key: Buffer, value: Uint8Array) => ({
    kind: "record" as const,
    bytes: key.length * 2 + value.length + recordOverhead,
  });
  return {
    async put(text, value, untilMs) {
      checkReceipt(text, value);
      const key = keyOf(text);
      await environment.join(size(key, value), (view) => {
        write(view, "receipts", { key, before: read(view, "receipts", key), untilMs, value });
      });
    },
    async putIfAbsent(text, value, untilMs, nowMs) {
      checkReceipt(text, value);
      const key = keyOf(text);
      return environment.join(size(key, value), (view) => {
        const standing = read(view, "receipts", key);
        if (standing !== null && standing.untilMs > nowMs) return standing.value;
        write(view, "receipts", { key, before: standing, untilMs, value });
        return null;
      });
    },
    async get(text, nowMs) {
      const standing = read(environment, "receipts", keyOf(text));
      return standing !== null && standing.untilMs > nowMs ? standing.value : null;
    },
    async remove(text) {
      const key = keyOf(text);
      await environment.join({ kind: "removal", bytes: recordOverhead }, (view) => {
        const standing = read(view, "receipts", key);
        if (standing === null) return;
        view.remove("receipts", key);
        view.remove("receipts-due", dueKey(standing.untilMs, key));
      });
    },
    expire: (nowMs, limit) => expire(environment, "receipts", { nowMs, limit }),
  };
}

const nothing = new Uint8Array(0);

function keyOf(text: string): Buffer {
  return Buffer.from(text, "utf16le");
}

function dueKey(untilMs: number, key: Buffer): Buffer {
  return Buffer.concat([orderedKey(untilMs), key]);
}

function read(view: Pick<Change, "get">, kind: Kind, key: Buffer): Standing | null {
  const record = view.get(kind, key);
  if (record === null) return null;
  const reader = new Reader(unsealedUnder(key, record, `${kind} record`), `${kind} record`);
  const untilMs = reader.u53();
  // Copied, because the caller may keep it.
  return { untilMs, value: reader.bytes(reader.u32()).slice() };
}

type Written = { readonly key: Buffer; readonly before: Standing | null } & Standing;

function write(view: Change, kind: Kind, { key, before, untilMs, value }: Written): void {
  if (before !== null && before.untilMs !== untilMs) view.remove(`${kind}-due`, dueKey(before.untilMs, key));
  const writer = new Writer(12 + value.length);
  writer.u53(untilMs);
  writer.u32(value.length);
  writer.bytes(value);
  view.put(kind, key, sealedUnder(key, writer.finish()));
  view.put(`${kind}-due`, dueKey(untilMs, key), Buffer.of(1));
}

/** Looks first without a commit: mostly nothing is due. */
async function expire(
  environment: Environment,
  kind: Kind,
  due: { readonly nowMs: number; readonly limit: number },
): Promise<number> {
  const range = { start: orderedKey(0), end: orderedKey(due.nowMs + 1), limit: due.limit };
  if (due.limit <= 0 || environment.range(`${kind}-due`, { ...range, limit: 1 }).length === 0) return 0;
  return environment.commit({ kind: "removal", bytes: recordOverhead }, (view) => {
    const found = view.range(`${kind}-due`, range);
    for (const [place] of found) {
      const key = Buffer.from(place.subarray(endBytes));
      view.remove(`${kind}-due`, place);
      if (read(view, kind, key)?.untilMs === orderedNumber(place)) view.remove(kind, key);
    }
    return found.length;
  });
}
