/**
 * What logs and witnesses ask of each other: bounded requests to addresses that an operator
 * configured, bundles of entries, and the routes that serve tiles.
 * Source: c2sp.org/tlog-tiles, c2sp.org/tlog-witness.
 */

import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { verifyEd25519 } from "../../core/codec/crypto.ts";
import { readCapped } from "../../core/codec/stream.ts";
import { fault } from "../../core/fault.ts";
import { type NoteKey, type SignedNote, signedBy } from "../../core/trust/note.ts";
import {
  decodeBundle,
  parseTilePath,
  tilePath,
  tileWidth,
  widthOfTile,
} from "../../core/trust/tree.ts";
import type { Logs } from "../../storage/logs.ts";
import type { Call, Route } from "../http/route.ts";

/** A witness as a log knows it, or a log as a witness knows it. */
export type NamedAddress = { readonly key: NoteKey; readonly url: string };

/** Of checkpoints and cosignatures. */
export const noteType = "text/plain; charset=utf-8";

type Reply = { readonly status: number; readonly text: string; readonly bytes: Uint8Array };

const askMsMax = 10_000;
/** More than a full bundle of our entries, and than a tile. */
const replyBytesMax = 64 * 1024;

/** GET, or POST of a body. Throws when nothing answers in time, or with too much. */
export async function fetchBounded(url: string, body: Uint8Array | null = null): Promise<Reply> {
  const response = await fetch(url, {
    ...(body === null ? {} : { method: "POST", body: body as Uint8Array<ArrayBuffer> }),
    redirect: "error",
    proxy: false,
    signal: AbortSignal.timeout(askMsMax),
  });
  const bytes = await readCapped(response.body, { bytesMax: replyBytesMax });
  if (bytes === "over") throw new Error("it answers too much");
  return { status: response.status, text: decodeUtf8(bytes) ?? "", bytes };
}

/** Whether a key has signed a note. */
export function isSigned(note: SignedNote, key: NoteKey): boolean {
  const signed = signedBy(note, key);
  return signed !== null && verifyEd25519(signed.signature, signed.message, signed.publicKey);
}

/** The entries of a log from one size to another, bundle by bundle. Throws when one is missing. */
export async function* readBundles(
  prefix: string,
  from: number,
  to: number,
): AsyncGenerator<Uint8Array[]> {
  for (let at = from; at < to; ) {
    const index = Math.floor(at / tileWidth);
    const width = widthOfTile(0, index, to);
    const reply = await fetchBounded(`${prefix}/tile/${tilePath("entries", index, width)}`);
    const entries = reply.status === 200 ? decodeBundle(reply.bytes) : null;
    if (entries?.length !== width)
      throw new Error(`it answers ${reply.status} without the entries from ${at} on`);
    yield entries.slice(at - index * tileWidth).map((entry) => entry.slice());
    at = index * tileWidth + width;
  }
}

// ------------------------------------------------------------------------------------------- tiles

type Serving = {
  readonly tag: Route["tag"];
  /** When the store of the log can't be read. */
  readonly unavailable: "chain_unavailable" | "service_unavailable";
  readonly logs: Logs;
  /** The log of a request; `null` for an unknown one. */
  readonly logOf: (call: Call) => string | null;
};

/** Indices of more digits have more segments, and a partial tile has one more. */
const places = ["a", "a/:b", "a/:b/:c", "a/:b/:c/:d"];

/** What a tile holds never changes. */
const always = { "cache-control": "public, max-age=31536000, immutable" };

export function tileRoutes(prefix: string, { tag, unavailable, logs, logOf }: Serving): Route[] {
  return places.map((place, i) => ({
    method: "GET",
    path: `${prefix}/tile/:level/:${place}`,
    id: `${prefix.split("/")[1]}Tile${i + 1}`,
    summary: "Hashes of the log's tree, or entries (c2sp.org/tlog-tiles)",
    tag,
    capacity: "normal",
    answer: [200, "The tile.", "application/octet-stream"],
    codes: ["not_found", unavailable],
    handle: async (call) => {
      const { level = "", a = "", b, c, d } = call.params;
      const tile = parseTilePath(
        [level, a, b, c, d].filter((segment) => segment !== undefined).join("/"),
      );
      const log = logOf(call);
      const content = tile === null || log === null ? null : await logs.tile(log, tile);
      if (content === null) return fault("not_found", "the log has no such tile");
      return {
        status: 200,
        headers: always,
        body: { contentType: "application/octet-stream", content },
      };
    },
  }));
}
