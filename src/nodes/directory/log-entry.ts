/**
 * What the signed log of a Directory says about one key, with its proof; of
 * another home, as that says it.
 * Source: docs/trust.md "Log".
 */
import { decodeHex } from "../../core/codec/bytes.ts";
import { fault } from "../../core/fault.ts";
import {
  decodeOldHead,
  encodeLogEntry,
  firstName,
  type LogEntry,
  type LogHead,
} from "../../core/trust/log.ts";
import {
  type NoteKey,
  renderNote,
  renderVerifierKey,
  type SignedNote,
} from "../../core/trust/note.ts";
import { decodeBundle, tileWidth } from "../../core/trust/tree.ts";
import type { Logs } from "../../storage/logs.ts";
import type { Call } from "../http/route.ts";
import { foreignEntry, readsHome } from "../parties/foreign.ts";
import type { Homes } from "../parties/homes.ts";
import { directoryRoute, pathValue } from "./parts.ts";

export const unsigned = () =>
  fault("service_unavailable", "the log of this Directory is not signed at the moment");

/** A head changes with each block. */
export const shortly = { "cache-control": "public, max-age=2" };

/** A Directory without a log shows those of other homes. */
export function entryRoute(
  homes: Homes | undefined,
  proveOwn: ((wanted: Wanted) => Promise<LogEntry | null>) | null,
) {
  return readsHome(
    directoryRoute({
      method: "GET",
      path: "/log/entry/:key",
      id: "logEntry",
      summary: "What the signed log says about one DID or alias, with its proof",
      query: ["from"],
      answer: [
        200,
        "The proof (docs/trust.md), with that of consistency with a tree of `from` entries.",
        "application/octet-stream",
      ],
      codes: ["invalid_request", "not_found", "chain_unavailable", "service_unavailable"],
      handle: async (call) => {
        const key = /^[0-9a-f]{64}$/.test(pathValue(call, "key"))
          ? decodeHex(pathValue(call, "key"))
          : null;
        const from = sizeParameter(call);
        if (key === null || from === null)
          return fault("invalid_request", "key: 64 hex digits; from: a size, or nothing");
        const foreign = await foreignEntry(homes, call, from);
        if (foreign !== null) return foreign;
        if (proveOwn === null) return fault("not_found", "this Directory has no log");
        const entry = await proveOwn({ key, from });
        if (entry === null) return unsigned();
        const body = { contentType: "application/octet-stream", content: encodeLogEntry(entry) };
        return { status: 200, headers: shortly, body };
      },
    }),
  );
}

function sizeParameter({ query }: Call): number | null {
  const text = query.get("from") ?? "0";
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}

type Wanted = { readonly key: Uint8Array; readonly from: number };

/** `null` when the published head is too long ago. */
export async function proveEntry(
  { logs, key: logKey }: { readonly logs: Logs; readonly key: NoteKey },
  { note, head }: { readonly note: SignedNote; readonly head: LogHead },
  { key, from }: Wanted,
): Promise<LogEntry | null> {
  const { size } = head;
  const index = Math.floor((size - 1) / tileWidth);
  const [proof, bundle, inclusion, consistency, genesisSeed] = await Promise.all([
    logs.inMap(key, size),
    logs.tile("", { level: "entries", index, width: size - index * tileWidth }),
    logs.inclusion("", size - 1, size),
    logs.consistency("", Math.min(from, size), Math.max(from, size)),
    logs.genesisSeed(),
  ]);
  const mapRoot = decodeBundle(bundle ?? new Uint8Array(0))?.at(-1);
  if (proof === null || mapRoot === undefined || inclusion === null) return null;
  return {
    logKey: renderVerifierKey(logKey),
    genesisSeed,
    note: renderNote(note),
    mapRoot,
    inclusion,
    ...proof,
    consistency: from === 0 ? [] : (consistency ?? []),
    restart: firstName(logKey.name) === logKey.name ? null : await proveRestart(logs, size),
  };
}

async function proveRestart(logs: Logs, size: number): Promise<LogEntry["restart"]> {
  const first = await firstEntry(logs);
  const inclusion = await logs.inclusion("", 0, size);
  return first === undefined || inclusion === null || decodeOldHead(first) === null
    ? null
    : { oldHead: first, inclusion };
}

export async function firstEntry(logs: Logs): Promise<Uint8Array | undefined> {
  return decodeBundle(
    (await logs.tile("", { level: "entries", index: 0, width: 1 })) ?? new Uint8Array(0),
  )?.[0];
}
