/**
 * What the log of a Directory says about a DID or an alias, as the witnesses of a policy have seen
 * it: the key must be in the map that a fresh head covers, and each head must continue the one
 * before. Loaded only where a policy is.
 * Source: docs/trust.md "Log", c2sp.org/tlog-policy.
 */
import { decodeHex, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { homesOf } from "../../core/ledger/home.ts";
import { inOrder } from "../../core/std/order.ts";
import {
  decodeLogEntry,
  decodeOldHead,
  firstName,
  genesisOfLog,
  keyOfAlias,
  keyOfDid,
  type LogEntry,
  valueOfAlias,
  valueOfProof,
} from "../../core/trust/log.ts";
import { readMapProof } from "../../core/trust/map.ts";
import {
  type Checkpoint,
  type NoteKey,
  noteKey,
  parseCheckpoint,
  parseNote,
  parseVerifierKey,
  renderVerifierKey,
  type SignedNote,
  signedBy,
} from "../../core/trust/note.ts";
import { hashLeaf, verifyConsistency, verifyInclusion } from "../../core/trust/tree.ts";
import { attempt, ClientError, localError, orNull } from "../base/failure.ts";
import { array, object, renderKept, text } from "../base/shapes.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { askBytes } from "../net/http.ts";
import type { Client, Evidence } from "./client.ts";
import { distrust, recall } from "./trust.ts";

/** Keys of the heads of logs that have begun anew. */
const logHeadsShape = object({ heads: array(text) });
const headShape = object({ logKey: text, note: text });

// ------------------------------------------------------------------------------------------ policy

type LogPolicy = {
  /** Empty: the log that the ledger names. */
  readonly logs: readonly NoteKey[];
  readonly witnesses: ReadonlyMap<string, NoteKey>;
  readonly isQuorum: (names: ReadonlySet<string>) => boolean;
};

/** Throws `policy_invalid`. A policy without witnesses is none: no one would see another log. */
export function parseLogPolicy(text: string): LogPolicy {
  const invalid = (line: string) =>
    localError("policy_invalid", `not a policy of logs and witnesses: ${line}`);
  const logs: NoteKey[] = [];
  const witnesses = new Map<string, NoteKey>();
  const rules = new Map<string, (names: ReadonlySet<string>) => boolean>();
  let quorum: string | null = null;
  for (const line of text.split("\n").map((one) => one.trim())) {
    const [kind, name = "", third = "", ...more] = line.split(/[ \t]+/);
    const key = parseVerifierKey(kind === "log" ? name : third);
    if (line === "" || line.startsWith("#")) continue;
    if (rules.has(name) && kind !== "quorum") throw invalid(line);
    if (kind === "log" && key?.type === "log") logs.push(key);
    else if (kind === "witness" && key?.type === "witness" && name !== "none") {
      // One that signs under two names would count twice.
      if ([...witnesses.values()].some((one) => equalBytes(one.publicKey, key.publicKey)))
        throw invalid(line);
      witnesses.set(name, key);
      rules.set(name, (names) => names.has(name));
    } else if (kind === "group" && more.length > 0 && more.every((one) => rules.has(one))) {
      const count = third === "all" ? more.length : Number(third);
      const least = third === "any" ? 1 : count;
      const isFit = Number.isInteger(least) && least >= 1 && least <= more.length;
      if (!isFit || new Set(more).size < more.length) throw invalid(line);
      rules.set(name, (names) => more.filter((one) => rules.get(one)?.(names)).length >= least);
    } else if (kind === "quorum" && quorum === null && rules.has(name)) quorum = name;
    else throw invalid(line);
  }
  const rule = quorum === null ? undefined : rules.get(quorum);
  if (rule === undefined) throw invalid("a quorum of witnesses is missing");
  return { logs, witnesses, isQuorum: rule };
}

// ----------------------------------------------------------------------------------------- reading

/** A DID as its proof shows it, or an alias and the DID that the Directory names for it. */
type LogSubject = { readonly did: Did; readonly alias: string | null };

const triesMax = 4;
/** Between a block and its head that witnesses have cosigned. */
const behindMs = secondMs;
/** A Directory whose log is behind its records, or not shown, for longer is reported. */
const patienceMs = minuteMs;
const entryBytesMax = 64 * 1024;

/**
 * Whether the log agrees. Where `isDemanded`, or when the log has forked, throws why it does not;
 * otherwise what is wrong with the log goes to `known.doubt`.
 */
export async function isLogged(
  client: Client,
  subject: LogSubject,
  isDemanded: boolean,
): Promise<boolean> {
  const { home = "" } = logSourceOf(client, subject.did) ?? {};
  const { doubts } = client.known;
  const error = await attempt(() => checkLogged(client, subject, isDemanded ? triesMax : 1));
  if (!(error instanceof ClientError)) {
    for (const name of [home, nameOf(subject)]) doubts.delete(name);
    return true;
  }
  if (isDemanded || error.code === "log_forked") throw error;
  const name = error.code === "not_logged" ? nameOf(subject) : home;
  const before = doubts.get(name);
  const doubt =
    before?.code === error.code
      ? before
      : { code: error.code, sinceMs: Date.now(), isReported: false };
  const isDue = !isPassing(error) || Date.now() - doubt.sinceMs >= patienceMs;
  if (isDue && !doubt.isReported) client.known.doubt(error);
  doubts.set(name, { ...doubt, isReported: doubt.isReported || isDue });
  return false;
}

const nameOf = ({ did, alias }: LogSubject): string => alias ?? did;

/**
 * A block is in the log a moment later, and a node that has just started has no head
 * until a witness answers.
 */
const isPassing = ({ code }: ClientError): boolean =>
  code === "not_logged" || code === "log_missing";

/**
 * The other home and ledger of a proven DID, whose log counts for it; `null` for
 * those of the own Directory.
 */
function logSourceOf({ trust, known }: Client, did: Did): LogSource | null {
  const state = trust.provenOf(did)?.state;
  const [home] = homesOf(state?.document ?? null);
  const ledger = state === undefined ? null : encodeHex(state.genesisHash);
  return home === undefined || ledger === null || ledger === known.ledger ? null : { home, ledger };
}

type LogSource = { readonly home: string; readonly ledger: string };

/** Throws why the log doesn't agree: what may pass by itself after further tries. */
async function checkLogged(client: Client, subject: LogSubject, tries: number): Promise<void> {
  const logged = await attempt(() => readValue(client, subject));
  const shown = shownValue(client, subject);
  if (logged instanceof Uint8Array && shown !== null && equalBytes(logged, shown)) return;
  const why = `the log says something else about ${nameOf(subject)} than the Directory`;
  const error = logged instanceof ClientError ? logged : distrust("not_logged", why);
  if (tries <= 1 || !isPassing(error)) throw error;
  await new Promise((resolve) => setTimeout(resolve, behindMs));
  // The Directory's answer may have been the older one.
  if (subject.alias === null) await client.trust.examine(subject.did, null);
  return checkLogged(client, subject, tries - 1);
}

function shownValue(client: Client, { did, alias }: LogSubject): Uint8Array | null {
  if (alias !== null) return valueOfAlias(did);
  const proof = client.trust.provenOf(did);
  return proof === null ? null : valueOfProof(proof.bytes);
}

/** So that each head is compared with the one before. */
const readings = inOrder<Client>();

function readValue(client: Client, { did, alias }: LogSubject): Promise<Uint8Array | null> {
  const key = alias === null ? keyOfDid(did) : keyOfAlias(alias);
  const place = logSourceOf(client, did);
  return readings(client, () => readEntry(client, key, place));
}

async function readEntry(
  client: Client,
  key: Uint8Array,
  place: LogSource | null,
): Promise<Uint8Array | null> {
  const { memory } = client.known;
  const policy = parseLogPolicy(client.known.policy ?? "");
  const headAt = place === null ? headKey : `${headKey}/${place.ledger}`;
  const before = await loadHead(memory, headAt);
  const elsewhere = place === null ? "" : `&home=${encodeURIComponent(place.home)}`;
  const from = before?.checkpoint.size ?? 0;
  const { entry, note, head } = await askEntry(client, key, from, elsewhere);
  const { checkpoint, logKey } = head;
  const ledger = place?.ledger ?? client.known.ledger;
  checkExpectedLog(policy, {
    entry,
    logKey,
    before,
    ledger: ledger === null ? null : decodeHex(ledger),
  });
  await checkSignatures(policy, note, head);
  const follows = before === null ? null : whyNotFollowing(before, head, entry);
  if (follows === "forked" && before !== null) throw await keepFork(memory, before, head);
  const shown = readMapProof(entry, key);
  const isInTree = verifyInclusion(
    hashLeaf(entry.mapRoot),
    checkpoint.size - 1,
    checkpoint,
    entry.inclusion,
  );
  if (!isInTree || shown === null || !equalBytes(shown.root, entry.mapRoot))
    throw distrust("log_invalid", "the map of the log is not the one that its head covers");
  if (follows === "restarted") throw await keepRestart(memory, headAt, checkpoint);
  if (before === null || checkpoint.size > before.checkpoint.size)
    await saveHead(memory, headAt, head);
  await checkHeard(client, { at: headAt, key, elsewhere }, head);
  const { note: text } = head;
  client.known.keep({ is: "head", at: headAt, logKey: renderVerifierKey(logKey), note: text });
  return shown.value;
}

type LogAnswer = {
  readonly entry: LogEntry;
  readonly note: SignedNote;
  readonly head: BelievedHead;
};

/**
 * What the Directory shows of its log, with what leads from a tree of `from` entries to its head.
 */
async function askEntry(
  client: Client,
  key: Uint8Array,
  from: number,
  elsewhere: string,
): Promise<LogAnswer> {
  const path = `/log/entry/${encodeHex(key)}?from=${from}${elsewhere}`;
  const { endpoint } = client.directory;
  const bytes = await orNull(
    askBytes(endpoint, { method: "GET", path }, entryBytesMax),
    "not_found",
    "service_unavailable",
  );
  if (bytes === null)
    throw distrust("log_missing", "the Directory shows no log of what it answers");
  const entry = decodeLogEntry(bytes);
  const note = entry === null ? null : parseNote(entry.note);
  const checkpoint = note === null ? null : parseCheckpoint(note.text);
  const logKey = entry === null ? null : parseVerifierKey(entry.logKey);
  if (entry === null || note === null || checkpoint === null || logKey === null)
    throw distrust("log_invalid", "what the Directory shows of its log can't be read");
  return { entry, note, head: { note: entry.note, checkpoint, logKey } };
}

// -------------------------------------------------------------------------- heads of other devices

/** Where a head that another own device has believed waits until it is compared. */
const heardAt = (at: string): string => `heard/${at}`;

/**
 * A head that another own device has believed counts as one that a Directory has shown: the
 * first is remembered, a further one is compared with what the Directory shows next. Without a
 * policy here it says nothing.
 */
export function hearHead(
  client: Client,
  { at, logKey: name, note: text }: Extract<Evidence, { is: "head" }>,
): Promise<void> {
  const { memory, policy } = client.known;
  return readings(client, async () => {
    const note = parseNote(text);
    const checkpoint = parseCheckpoint(note?.text ?? "");
    const logKey = parseVerifierKey(name);
    const isPlace = at === headKey || at.startsWith(`${headKey}/`);
    if (policy === null || note === null || checkpoint === null || logKey === null || !isPlace)
      return;
    const head = { note: text, checkpoint, logKey };
    const cosigned = attempt(() => cosignedAt(parseLogPolicy(policy), note, head));
    if (checkpoint.size === 0 || (await cosigned) instanceof ClientError) return;
    const before = await loadHead(memory, at);
    if (before === null) return saveHead(memory, at, head);
    // Which log counts, and whether one began anew, this device decides by itself.
    if (!sameLog(before.logKey, logKey) || before.logKey.name !== logKey.name) return;
    if ((await memory.load(heardAt(at))) === null) await saveHead(memory, heardAt(at), head);
  });
}

type HeardPlace = { readonly at: string; readonly key: Uint8Array; readonly elsewhere: string };

/**
 * Throws `log_forked` when a head that another own device has believed is not of
 * the log that is shown here.
 */
async function checkHeard(
  client: Client,
  { at, key, elsewhere }: HeardPlace,
  shown: BelievedHead,
): Promise<void> {
  const { memory } = client.known;
  const heard = await loadHead(memory, heardAt(at));
  // One that is ahead is compared when the log has come so far.
  if (heard === null || heard.checkpoint.size > shown.checkpoint.size) return;
  const { size, root } = shown.checkpoint;
  const { entry, head } = await askEntry(client, key, heard.checkpoint.size, elsewhere);
  const isSame = head.checkpoint.size === size && equalBytes(head.checkpoint.root, root);
  // It has grown in between: the next look compares.
  if (!isSame) return;
  if (!verifyConsistency(heard.checkpoint, shown.checkpoint, entry.consistency))
    throw await keepFork(memory, heard, shown);
  await memory.save(heardAt(at), null);
}

/** Until the user forgets the log, nothing is logged by the one that began anew. */
async function keepRestart(
  memory: TextStore,
  headAt: string,
  { origin }: Checkpoint,
): Promise<ClientError> {
  const known = (await recall(memory, restartsKey, logHeadsShape))?.heads ?? [];
  await memory.save(restartsKey, renderKept({ heads: [...new Set([...known, headAt])] }));
  return distrust(
    "log_restarted",
    `the log began anew as ${origin}, after a loss: records may have gone back`,
  );
}

/**
 * What was seen of logs that have begun anew, and of the own Directory's: the
 * next heads are believed.
 */
export async function forgetLogs({ known: { memory } }: Client): Promise<void> {
  const restarted = (await recall(memory, restartsKey, logHeadsShape))?.heads ?? [];
  for (const key of [headKey, ...restarted]) {
    await memory.save(key, null);
    await memory.save(heardAt(key), null);
  }
  await memory.save(restartsKey, null);
}

// ------------------------------------------------------------------------------------------ checks

/** A head that was believed. */
type BelievedHead = {
  readonly note: string;
  readonly checkpoint: Checkpoint;
  readonly logKey: NoteKey;
};

const firstKey = (key: NoteKey): NoteKey | null =>
  noteKey(firstName(key.name), "log", key.publicKey);
const sameLog = (a: NoteKey, b: NoteKey) =>
  firstKey(a)?.id === firstKey(b)?.id && equalBytes(a.publicKey, b.publicKey);

type Keys = {
  readonly entry: LogEntry;
  readonly logKey: NoteKey;
  readonly before: BelievedHead | null;
  readonly ledger: Uint8Array | null;
};

/** The log is the one that the policy, the ledger of the identity, or the first head names. */
function checkExpectedLog(
  policy: LogPolicy,
  { entry: { genesisSeed }, logKey, before, ledger }: Keys,
): void {
  const first = firstKey(logKey);
  const isNamed =
    ledger !== null &&
    genesisSeed !== null &&
    first !== null &&
    equalBytes(genesisOfLog(first, genesisSeed), ledger);
  const isListed = policy.logs.some((one) => sameLog(one, logKey));
  const isContradicted = genesisSeed !== null && ledger !== null && !isNamed;
  // Left out, the seed would let a Directory show another of its logs that the same witnesses sign.
  const isKnown = policy.logs.length === 0 ? isNamed || before !== null : isListed;
  if (!isKnown || isContradicted || (before !== null && !sameLog(before.logKey, logKey)))
    throw distrust("log_invalid", `${logKey.name} is not the log of this ledger`);
}

const freshMs = 10 * minuteMs;
const clocksMs = 5 * minuteMs;

async function checkSignatures(
  policy: LogPolicy,
  note: SignedNote,
  head: BelievedHead,
): Promise<void> {
  const times = await cosignedAt(policy, note, head);
  const nowMs = Date.now();
  const isFresh = (timeMs: number) =>
    timeMs >= nowMs - freshMs - clocksMs && timeMs <= nowMs + clocksMs;
  const fresh = [...times].filter(([, timeMs]) => isFresh(timeMs)).map(([name]) => name);
  if (!policy.isQuorum(new Set(fresh)))
    throw distrust("log_stale", "witnesses signed the head of the log more than ten minutes ago");
}

/**
 * When the log's witnesses have signed a head, at whatever time. Throws when the
 * log or a quorum has not.
 */
async function cosignedAt(
  policy: LogPolicy,
  note: SignedNote,
  { checkpoint, logKey }: BelievedHead,
): Promise<ReadonlyMap<string, number>> {
  if (checkpoint.origin !== logKey.name || (await timeSigned(note, logKey)) === null)
    throw distrust("log_invalid", "the head of the log is not signed by the log");
  const times = new Map<string, number>();
  for (const [name, key] of policy.witnesses) {
    const timeMs = await timeSigned(note, key);
    if (timeMs !== null) times.set(name, timeMs);
  }
  if (policy.isQuorum(new Set(times.keys()))) return times;
  throw distrust(
    "log_unwitnessed",
    "too few of the policy's witnesses have signed the head of the log",
  );
}

/**
 * When a key says that it signed; `null` when it did not. Throws for a signature in
 * its name that doesn't hold.
 */
async function timeSigned(note: SignedNote, key: NoteKey): Promise<number | null> {
  const signed = signedBy(note, key);
  if (signed === null) return null;
  if (await verifySignature(signed.signature, signed.message, signed.publicKey))
    return signed.timeMs;
  throw distrust("log_invalid", `a signature in the name of ${key.name} doesn't hold`);
}

function whyNotFollowing(
  before: BelievedHead,
  { checkpoint, logKey }: BelievedHead,
  entry: LogEntry,
): "forked" | "restarted" | null {
  if (before.logKey.name !== logKey.name)
    return continuesLost(before.checkpoint, checkpoint, entry) ? "restarted" : "forked";
  const [older, later] = [before.checkpoint, checkpoint].toSorted((a, b) => a.size - b.size) as [
    Checkpoint,
    Checkpoint,
  ];
  return verifyConsistency(older, later, entry.consistency) ? null : "forked";
}

/** Whether a log begins with the head of the one before, or a later one. */
function continuesLost(before: Checkpoint, now: Checkpoint, { restart }: LogEntry): boolean {
  const lost = restart === null ? null : decodeOldHead(restart.oldHead);
  if (restart === null || lost === null || lost.size < before.size) return false;
  const isSame = lost.size > before.size || equalBytes(lost.root, before.root);
  return isSame && verifyInclusion(hashLeaf(restart.oldHead), 0, now, restart.inclusion);
}

// ------------------------------------------------------------------------------------------ memory

const headKey = "log/head";
const forkKey = "log/fork";
const restartsKey = "log/restarts";

async function loadHead(memory: TextStore, key: string): Promise<BelievedHead | null> {
  const { note, logKey: name } = (await recall(memory, key, headShape)) ?? { note: "", logKey: "" };
  const checkpoint = parseCheckpoint(parseNote(note)?.text ?? "");
  const logKey = parseVerifierKey(name);
  return checkpoint === null || logKey === null ? null : { note, checkpoint, logKey };
}

async function saveHead(
  memory: TextStore,
  key: string,
  { note, logKey }: BelievedHead,
): Promise<void> {
  await memory.save(key, renderKept({ logKey: renderVerifierKey(logKey), note }));
}

/** Both notes stay with the identity: together they show that the log, or who asked it, lied. */
async function keepFork(
  memory: TextStore,
  before: BelievedHead,
  now: BelievedHead,
): Promise<ClientError> {
  await memory.save(forkKey, JSON.stringify({ before: before.note, after: now.note }));
  return distrust(
    "log_forked",
    "the log shows a head that does not continue the one before; both are kept",
  );
}
