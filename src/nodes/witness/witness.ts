/**
 * A witness: cosigns the heads of logs that it knows, one for each size, and only what
 * continues the head before. Of a log it keeps a copy: it replays every entry, and the map
 * must follow; beyond `logBytesMax` it copies no further. What it has cosigned is durable
 * before the signature leaves, so a witness that dies in between signs nothing else for
 * that size. A repeat of the same head renews its time.
 * Source: c2sp.org/tlog-witness, c2sp.org/tlog-cosignature, docs/trust.md "Witnesses".
 */
import { decodeBase64, decodeUtf8, encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { errorText, type Fault, fault, isFault } from "../../core/fault.ts";
import { batchEntriesMax, type LogHead } from "../../core/trust/log.ts";
import {
  type Checkpoint,
  cosign,
  type NoteKey,
  noteBytesMax,
  parseCheckpoint,
  parseNote,
  renderNote,
  renderSignature,
  type SignedNote,
} from "../../core/trust/note.ts";
import {
  hashBytes,
  nodesOfTiles,
  proveConsistency,
  tilePath,
  treeProofMax,
  treeRoot,
  verifyConsistency,
  widthOfTile,
} from "../../core/trust/tree.ts";
import type { Logs } from "../../storage/logs.ts";
import { type Log, onceAMinute } from "../http/log.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import {
  fetchBounded,
  isSigned,
  type NamedAddress,
  noteType,
  readBundles,
  tileRoutes,
} from "./exchange.ts";

export type WitnessParts = {
  readonly logs: Logs;
  readonly key: NoteKey;
  readonly sign: (message: Uint8Array) => Uint8Array;
  /** The logs that it cosigns. */
  readonly watched: readonly NamedAddress[];
  /** Of the copy of one log. A batch that it has begun is kept whole. */
  readonly logBytesMax: number;
  readonly log: Log;
  readonly now: () => number;
};

export function createWitness(parts: WitnessParts): readonly Route[] {
  const ofHash = new Map(
    parts.watched.map(({ key }) => {
      const hash = sha256(utf8(key.name));
      return [encodeHex(hash), key.name];
    }),
  );
  const logOf = (call: Call) => ofHash.get(call.params["origin"] ?? "") ?? null;
  return [
    addRoute(parts),
    latestRoute(parts, logOf),
    ...tileRoutes("/witness/:origin", {
      tag: "Node",
      unavailable: "service_unavailable",
      logs: parts.logs,
      logOf,
    }),
  ];
}

const requestBytesMax = noteBytesMax + 64 * treeProofMax;

function addRoute(parts: WitnessParts): Route {
  const busy = new Set<string>();
  const isDue = onceAMinute(parts.now);
  return {
    method: "POST",
    path: "/witness/add-checkpoint",
    id: "addCheckpoint",
    summary: "Cosigns the head of a log that continues the one before (c2sp.org/tlog-witness)",
    tag: "Node",
    capacity: "normal",
    takesAnyType: true,
    bodyBytesMax: requestBytesMax,
    answer: [200, "The line of the cosignature.", noteType],
    also: [409, "The size that is known.", sizeType],
    codes: [
      "invalid_request",
      "invalid_signature",
      "not_found",
      "log_inconsistent",
      "service_unavailable",
      "storage_full",
    ],
    handle: async ({ body, nowMs }) => {
      const added = parseRequest(body);
      if (added === null)
        return fault(
          "invalid_request",
          "the body must be that of add-checkpoint, with a checkpoint",
        );
      const watched = parts.watched.find(({ key }) => key.name === added.checkpoint.origin);
      if (watched === undefined) return fault("not_found", "this witness does not know the log");
      if (!isSigned(added.note, watched.key))
        return fault(
          "invalid_signature",
          "the checkpoint is not signed by the key that is known of the log",
        );
      if (added.old > added.checkpoint.size)
        return fault("invalid_request", "the old size is above that of the checkpoint");
      // Of one log one after the other: a second one must come again.
      if (busy.has(watched.key.name))
        return fault("service_unavailable", "another head of this log is being looked at");
      busy.add(watched.key.name);
      try {
        return await addCheckpoint({ ...parts, isDue }, watched, { ...added, nowMs });
      } finally {
        busy.delete(watched.key.name);
      }
    },
  };
}

/**
 * What a log asks to be cosigned: its head, and the proof that it continues one of `old`
 * entries.
 */
type CosignRequest = {
  readonly old: number;
  readonly proof: readonly Uint8Array[];
  readonly note: SignedNote;
  readonly checkpoint: Checkpoint;
};

function parseRequest(body: Uint8Array): CosignRequest | null {
  const [, old = "", lines = "", rest = ""] =
    /^old (0|[1-9]\d{0,15})\n((?:[A-Za-z0-9+/]{43}=\n){0,63})\n([\s\S]*)$/.exec(
      decodeUtf8(body) ?? "",
    ) ?? [];
  const note = parseNote(rest);
  const checkpoint = note === null ? null : parseCheckpoint(note.text);
  const proof = lines.split("\n").slice(0, -1).map(decodeBase64);
  if (note === null || checkpoint === null || proof.some((hash) => hash?.length !== hashBytes))
    return null;
  return { old: Number(old), proof: proof as Uint8Array[], note, checkpoint };
}

async function addCheckpoint(
  {
    isDue,
    ...parts
  }: WitnessParts & {
    /** Whether a refusal of one kind is to be logged again. */
    readonly isDue: (what: string) => boolean;
  },
  watched: NamedAddress,
  { old, proof, note, checkpoint, nowMs }: CosignRequest & { readonly nowMs: number },
): Promise<Answer | Fault> {
  const { logs, key, sign, log } = parts;
  const { origin } = checkpoint;
  const before = await logs.note(origin);
  const last =
    before === "" ? emptyHead : (parseCheckpoint(parseNote(before)?.text ?? "") ?? emptyHead);
  if (old !== last.size) return conflict(last.size);
  if (!verifyConsistency(last, checkpoint, proof) || !isRootOfNothing(checkpoint)) {
    // Both are signed by the log: proof that it forked, or a wrong proof.
    log("error", "a log shows a head that does not continue the one before", {
      log: origin,
      before,
      after: renderNote(note),
    });
    // A proof of nothing can't be wrong: two roots of one size are a conflict
    // (c2sp.org/tlog-witness).
    if (checkpoint.size === last.size) return conflict(last.size);
    return fault(
      "log_inconsistent",
      "the checkpoint does not follow from the one before by this proof",
    );
  }
  const copied = await copyUpTo(parts, watched, checkpoint);
  if (isFault(copied)) {
    if (isDue(`${copied.code} ${origin}`))
      log("warn", "a head is not cosigned", {
        log: origin,
        size: checkpoint.size,
        reason: copied.detail,
      });
    return copied;
  }
  const signature = cosign(note.text, key, { sign, nowMs });
  const own = note.signatures.filter(
    ({ name, id }) => name === watched.key.name && id === watched.key.id,
  );
  const kept = renderNote({ text: note.text, signatures: [...own, signature] });
  if (!(await logs.keepNote(origin, before, kept))) return conflict(last.size);
  return {
    status: 200,
    body: { contentType: noteType, content: renderSignature(signature) },
  };
}

const emptyHead: LogHead = { size: 0, root: treeRoot(() => new Uint8Array(0), 0) };

const isRootOfNothing = ({ size, root }: LogHead) => size > 0 || equalBytes(root, emptyHead.root);

/** Of the answer with the size that is known (c2sp.org/tlog-witness). */
const sizeType = "text/x.tlog.size";

function conflict(size: number): Answer {
  return { status: 409, body: { contentType: sizeType, content: `${size}\n` } };
}

// ----------------------------------------------------------------------------------------- copying

/**
 * Replays the entries up to a head. What is copied is part of it by proof, so a copy never
 * holds another branch.
 */
async function copyUpTo(
  { logs, logBytesMax }: WitnessParts,
  watched: NamedAddress,
  head: Checkpoint,
): Promise<Fault | null> {
  const { origin } = head;
  const isFull = async () => (await logs.copiedBytes(origin)) >= logBytesMax;
  try {
    let at = (await logs.head(origin))?.size ?? 0;
    let open: Uint8Array[] = [];
    if (at < head.size && (await isFull())) return full(logBytesMax);
    for await (const entries of readBundles(watched.url, at, head.size)) {
      open.push(...entries);
      const end = open.findLastIndex(({ length }) => length === hashBytes) + 1;
      if (end === 0 && open.length < batchEntriesMax) continue;
      const isCopied =
        end > 0 && (await copySome(logs, watched, { head, at, entries: open.slice(0, end) }));
      if (!isCopied) return notFollowing();
      at += end;
      open = open.slice(end);
      if (at < head.size && (await isFull())) return full(logBytesMax);
    }
    // The copy may be ahead, after a head that was not cosigned in the end.
    const copied = (await logs.head(origin)) ?? emptyHead;
    const proof = (await logs.consistency(origin, head.size, copied.size)) ?? [];
    return verifyConsistency(head, copied, proof) ? null : notFollowing();
  } catch (error) {
    return fault("service_unavailable", `the log does not give its entries: ${errorText(error)}`);
  }
}

const full = (bytesMax: number) =>
  fault("storage_full", `this witness keeps at most ${bytesMax} bytes of one log`);

const notFollowing = () =>
  fault("log_inconsistent", "the map of the log does not follow from its entries");

type Some = {
  readonly head: Checkpoint;
  readonly at: number;
  readonly entries: readonly Uint8Array[];
};

async function copySome(
  logs: Logs,
  watched: NamedAddress,
  { head, at, entries }: Some,
): Promise<boolean> {
  const size = at + entries.length;
  const proof = size === head.size ? [] : await consistencyFrom(watched, size, head.size);
  return (
    (await logs.copy(head.origin, { after: at, entries, within: { ...head, proof } })) !== null
  );
}

/** Computed from the tiles of the log. */
async function consistencyFrom(
  { url }: NamedAddress,
  from: number,
  to: number,
): Promise<Uint8Array[]> {
  const tiles = new Map<string, Uint8Array>();
  for (;;) {
    let missing = "";
    const read = nodesOfTiles((level, index) => {
      const path = tilePath(level, index, widthOfTile(level, index, to));
      const tile = tiles.get(path);
      if (tile === undefined) missing = path;
      return tile ?? new Uint8Array(0);
    });
    try {
      return proveConsistency(read, from, to);
    } catch (error) {
      if (!(error instanceof RangeError) || missing === "") throw error;
      const reply = await fetchBounded(`${url}/tile/${missing}`);
      if (reply.status !== 200)
        throw new Error(`it answers ${reply.status} without the tile ${missing}`);
      tiles.set(missing, reply.bytes);
    }
  }
}

// ------------------------------------------------------------------------------------------ latest

function latestRoute({ logs }: WitnessParts, logOf: (call: Call) => string | null): Route {
  return {
    method: "GET",
    path: "/witness/:origin/checkpoint",
    id: "witnessedCheckpoint",
    summary: "The last head that this witness has cosigned of a log",
    tag: "Node",
    capacity: "normal",
    answer: [200, "A checkpoint with the signatures of the log and of this witness.", noteType],
    codes: ["not_found"],
    handle: async (call) => {
      const log = logOf(call);
      const content = log === null ? "" : await logs.note(log);
      if (content === "")
        return fault("not_found", "this witness has cosigned no head of such a log");
      return { status: 200, body: { contentType: noteType, content } };
    },
  };
}
