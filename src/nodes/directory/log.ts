/**
 * The log of a Directory's ledger: signs its heads, has witnesses cosign them, and serves head and
 * tiles (`log-entry.ts`: the proof of one key). A node signs nothing that contradicts what it has
 * signed before: at its start it compares the store with the last head next to its key and with
 * what its witnesses know. After a restore it takes lost entries from a witness, or waits.
 * Source: c2sp.org/tlog-tiles, c2sp.org/tlog-witness, docs/trust.md "Log".
 */
import { encodeBase64, encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import { sha256, verifyEd25519 } from "../../core/codec/crypto.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { errorText } from "../../core/fault.ts";
import { Waiters } from "../../core/std/bounded.ts";
import { decodeOldHead, firstName, type LogHead } from "../../core/trust/log.ts";
import {
  type Checkpoint,
  type NoteKey,
  parseCheckpoint,
  parseNote,
  parseSignatures,
  renderCheckpoint,
  renderNote,
  type SignedNote,
  signNote,
} from "../../core/trust/note.ts";
import {
  decodeBundle,
  tilePath,
  tileWidth,
  verifyConsistency,
  widthOfTile,
} from "../../core/trust/tree.ts";
import type { Logs } from "../../storage/logs.ts";
import type { Log } from "../http/log.ts";
import type { Route } from "../http/route.ts";
import type { Homes } from "../parties/homes.ts";
import {
  fetchBounded,
  isSigned,
  type NamedAddress,
  noteType,
  readBundles,
  tileRoutes,
} from "../witness/exchange.ts";
import { entryRoute, firstEntry, proveEntry, shortly, unsigned } from "./log-entry.ts";
import { directoryRoute } from "./parts.ts";

/** The key of the log, and the file next to it: the last note that was signed, empty for none. */
export type LogKey = {
  readonly key: NoteKey;
  readonly sign: (message: Uint8Array) => Uint8Array;
  readonly readSigned: () => Promise<string>;
  /** Resolves when the note is durable. */
  readonly writeSigned: (note: string) => Promise<void>;
};

type LogParts = {
  readonly homes?: Homes;
  readonly logs: Logs;
  readonly logKey: LogKey;
  readonly witnesses: readonly NamedAddress[];
  readonly now: () => number;
  readonly log: Log;
  readonly times?: Times;
};

type Times = {
  /** Between two looks at the store. */
  readonly lookMs: number;
  /** An idle log has its head cosigned again after this: readers accept ten minutes. */
  readonly renewMs: number;
  /** A head with fewer cosignatures replaces one that is older. */
  readonly patienceMs: number;
};
const timesDefault: Times = { lookMs: secondMs, renewMs: 2 * minuteMs, patienceMs: 5 * minuteMs };

type Published = { readonly note: SignedNote; readonly head: LogHead; readonly atMs: number };

type LogState = {
  published: Published | null;
  /** The last head that this node has signed. */
  signed: Checkpoint | null;
  /** Whether store, last head and witnesses were compared. */
  isCompared: boolean;
  /** The last reason for which nothing is signed. */
  reason: string;
};

type Publisher = { readonly routes: readonly Route[]; readonly close: () => void };

export function createLog(parts: LogParts): Publisher {
  const state: LogState = { published: null, signed: null, isCompared: false, reason: "" };
  const stopping = new Waiters();
  let running = true;
  const { lookMs } = parts.times ?? timesDefault;
  const publishWhileDue = async (): Promise<void> => {
    while (running) {
      await publish(parts, state).catch((error: unknown) => report(parts, state, errorText(error)));
      if (running) await stopping.wait(lookMs);
    }
  };
  void publishWhileDue();
  const ownLog = { logs: parts.logs, key: parts.logKey.key };
  return {
    routes: [
      checkpointRoute(state),
      entryRoute(parts.homes, async (wanted) =>
        state.published === null ? null : proveEntry(ownLog, state.published, wanted),
      ),
      ...tileRoutes("/log", {
        tag: "Directory",
        unavailable: "chain_unavailable",
        logs: parts.logs,
        logOf: () => "",
      }),
    ],
    close: () => {
      running = false;
      stopping.release();
    },
  };
}

/** Once for each reason. */
function report({ log }: LogParts, state: LogState, reason: string): void {
  if (reason !== "" && reason !== state.reason) log("error", "the log is not signed", { reason });
  state.reason = reason;
}

// ----------------------------------------------------------------------------------------- signing

async function publish(parts: LogParts, state: LogState): Promise<void> {
  const { logs, logKey, witnesses, now } = parts;
  const { renewMs, patienceMs } = parts.times ?? timesDefault;
  if (!state.isCompared) {
    const reason = await compare(parts);
    report(parts, state, reason ?? "");
    if (reason !== null) return;
    state.isCompared = true;
  }
  const head = await logs.head("");
  const before = state.published;
  const atMs = now();
  if (state.signed !== null && !(await continues(logs, state.signed))) {
    state.isCompared = false;
    return;
  }
  if (head === null || (before?.head.size === head.size && atMs < before.atMs + renewMs)) return;
  const text = renderCheckpoint({ origin: logKey.key.name, ...head });
  const note = { text, signatures: [signNote(text, logKey.key, logKey.sign)] };
  // Durable before anybody sees it.
  if (state.signed?.size !== head.size) await logKey.writeSigned(renderNote(note));
  state.signed = { origin: logKey.key.name, ...head };
  const asked = await Promise.all(
    witnesses.map((witness) => cosigned(parts, state, { witness, head, note })),
  );
  const cosignatures = asked.filter((one) => one !== null);
  const wasMore = before !== null && before.note.signatures.length > 1 + cosignatures.length;
  if (wasMore && atMs < before.atMs + patienceMs) return;
  state.published = {
    note: { text, signatures: [...note.signatures, ...cosignatures] },
    head,
    atMs,
  };
}

/** `null` without a cosignature: a witness that is away costs its cosignature only. */
async function cosigned(
  { logs, log }: LogParts,
  state: LogState,
  {
    witness,
    head,
    note,
  }: { readonly witness: NamedAddress; readonly head: LogHead; readonly note: SignedNote },
): Promise<SignedNote["signatures"][number] | null> {
  try {
    // It says which size it knows when it is another than that of the head before.
    for (let [old, tries] = [state.published?.head.size ?? 0, 0]; tries < 3; tries++) {
      if (old > head.size) {
        state.isCompared = false;
        return null;
      }
      const proof = (await logs.consistency("", old, head.size)) ?? [];
      const lines = [`old ${old}`, ...proof.map(encodeBase64), ""]
        .map((line) => `${line}\n`)
        .join("");
      const reply = await fetchBounded(
        `${witness.url}/add-checkpoint`,
        utf8(lines + renderNote(note)),
      );
      if (reply.status === 200) return ownSignature(note, reply.text, witness.key);
      if (reply.status !== 409 || !/^\d{1,15}\n$/.test(reply.text))
        throw new Error(`it answers ${reply.status}: ${reply.text.slice(0, 200)}`);
      old = Number(reply.text);
    }
    throw new Error("it answers another size each time");
  } catch (error) {
    log("warn", "a witness did not cosign", {
      witness: witness.key.name,
      reason: errorText(error),
    });
    return null;
  }
}

function ownSignature(
  { text }: SignedNote,
  lines: string,
  key: NoteKey,
): SignedNote["signatures"][number] {
  const signatures = (parseSignatures(lines) ?? []).filter(
    ({ name, id }) => name === key.name && id === key.id,
  );
  const [found] = signatures;
  if (found === undefined || !isSigned({ text, signatures }, key))
    throw new Error("its cosignature doesn't hold");
  return found;
}

// --------------------------------------------------------------------------------------- comparing

/** Why nothing may be signed yet; `null` when the store continues everything that was signed. */
async function compare(parts: LogParts): Promise<string | null> {
  const { logKey, witnesses, logs } = parts;
  const last = checkpointIn(await logKey.readSigned(), logKey.key);
  if (last === "unreadable")
    return "the file next to the log's key is not a note of this key: restore it, or remove it if there was no log";
  if (last !== null && last.origin !== logKey.key.name) await restart(parts, last);
  const answers = await Promise.all(witnesses.map((witness) => latestAt(witness, logKey.key)));
  if (answers.length > 0 && answers.every((one) => one === "unknown"))
    return "no witness says which head it knows";
  const heads = [last, ...answers].filter(
    (one) => one !== null && one !== "unknown" && one.origin === logKey.key.name,
  );
  for (const head of (heads as Checkpoint[]).toSorted((a, b) => b.size - a.size)) {
    if (await continues(logs, head)) continue;
    if (!(await recover(parts, head)))
      return `the store lacks entries that were signed, and no witness has them: docs/run.md, "Restore", says how to go on`;
    parts.log("warn", "entries of the log that the store had lost came back from a witness", {
      size: head.size,
    });
  }
  return null;
}

/** Whether the store's log continues a head. */
async function continues(logs: Logs, head: Checkpoint): Promise<boolean> {
  const present = await logs.head("");
  const proof = present === null ? null : await logs.consistency("", head.size, present.size);
  return present !== null && proof !== null && verifyConsistency(head, present, proof);
}

/** Of a note that this log has signed, under this or an earlier name. */
export function checkpointIn(text: string, key: NoteKey): Checkpoint | null | "unreadable" {
  if (text === "") return null;
  const note = parseNote(text);
  const checkpoint = note === null ? null : parseCheckpoint(note.text);
  if (note === null || checkpoint === null || firstName(checkpoint.origin) !== firstName(key.name))
    return "unreadable";
  const signature = note.signatures.find(({ name }) => name === checkpoint.origin);
  const isOwn =
    signature !== undefined && verifyEd25519(signature.bytes, utf8(note.text), key.publicKey);
  return isOwn ? checkpoint : "unreadable";
}

/** What a witness has cosigned last: `null` for nothing. */
async function latestAt(
  { url, key }: NamedAddress,
  own: NoteKey,
): Promise<Checkpoint | null | "unknown"> {
  const reply = await fetchBounded(`${url}/${encodeHex(sha256(utf8(own.name)))}/checkpoint`).catch(
    () => null,
  );
  if (reply?.status === 404) return null;
  const note = reply?.status === 200 ? parseNote(reply.text) : null;
  if (note === null || !isSigned(note, own) || !isSigned(note, key)) return "unknown";
  return parseCheckpoint(note.text) ?? "unknown";
}

/** The key has a new name: its log begins anew, unless it has before. */
async function restart({ logs, log, logKey }: LogParts, lost: Checkpoint): Promise<void> {
  const first = await firstEntry(logs);
  const named = first === undefined ? null : decodeOldHead(first);
  if (named !== null && named.size >= lost.size) return;
  log("warn", "the log begins anew, and names the head that is lost", {
    log: logKey.key.name,
    size: lost.size,
  });
  await logs.restart(lost);
}

const bundlesBackMax = 64;

/** Takes entries that the store lost from a witness: `false` when none has them. */
async function recover(parts: LogParts, head: Checkpoint): Promise<boolean> {
  const { logs, witnesses, logKey, log } = parts;
  for (const { url, key } of witnesses) {
    try {
      const at = `${url}/${encodeHex(sha256(utf8(logKey.key.name)))}`;
      const from = await commonSize(logs, at, head.size);
      const entries: Uint8Array[] = [];
      for await (const some of readBundles(at, from, head.size)) entries.push(...some);
      await logs.adopt(from, entries, head);
      return true;
    } catch (error) {
      log("warn", "a witness did not give the entries that are lost", {
        witness: key.name,
        reason: errorText(error),
      });
    }
  }
  return false;
}

/** The end of the last batch that the store and a witness have in common. */
async function commonSize(logs: Logs, at: string, size: number): Promise<number> {
  const own = (await logs.head(""))?.size ?? 0;
  const last = Math.floor(Math.min(own, size) / tileWidth);
  for (let index = last; index >= Math.max(0, last - bundlesBackMax); index--) {
    const place = (of: number) =>
      ({ level: "entries", index, width: widthOfTile(0, index, of) }) as const;
    if (place(Math.min(own, size)).width === 0) continue;

    const mine = decodeBundle((await logs.tile("", place(own))) ?? new Uint8Array(0)) ?? [];
    const reply = await fetchBounded(`${at}/tile/${tilePath("entries", index, place(size).width)}`);
    const theirs = decodeBundle(reply.status === 200 ? reply.bytes : new Uint8Array(0)) ?? [];

    const differs = mine.findIndex(
      (entry, i) => !equalBytes(entry, theirs[i] ?? new Uint8Array(0)),
    );
    const common = differs < 0 ? mine : mine.slice(0, differs);
    const end = common.findLastIndex(({ length }) => length === 32);
    if (end >= 0) return index * tileWidth + end + 1;
  }
  throw new Error("its entries have nothing in common with the store's");
}

// ------------------------------------------------------------------------------------------ routes

function checkpointRoute(state: LogState): Route {
  return directoryRoute({
    method: "GET",
    path: "/log/checkpoint",
    id: "logCheckpoint",
    summary: "The last signed head of the log, with the cosignatures of witnesses",
    answer: [200, "A checkpoint (c2sp.org/tlog-checkpoint).", noteType],
    codes: ["service_unavailable"],
    handle: () => {
      if (state.published === null) return unsigned();
      const body = {
        contentType: noteType,
        content: renderNote(state.published.note),
      };
      return { status: 200, headers: shortly, body };
    },
  });
}
