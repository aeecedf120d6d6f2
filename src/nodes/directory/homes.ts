/**
 * Self-certifying DIDs of other Directories: their key proofs, fetched from the home that a client or a header names, or
 * that the DID's own document named before. What arrives is verified and served as it came, so that a reader believes the
 * signatures in it and neither Directory. A silent home leaves what is remembered of it in force; a hostile one can't change
 * it. Another Directory gets answers from the own ledger only, so that no question goes in circles.
 * Source: docs/trust.md "Between providers".
 */
import type { Config } from "../../config/schema.ts";
import { decodeUtf8, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { sha256, verifyEd25519InPool } from "../../core/codec/crypto.ts";
import { type Did, isDid, normalizeAlias } from "../../core/codec/did.ts";
import { jsonObjectOf, parseJson } from "../../core/codec/json.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { resolutionAnswer } from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { findContradiction, type Remembered, rememberedOf } from "../../core/trust/follow.ts";
import { homeOfUrl, homesOf, parseHome, urlOfHome } from "../../core/trust/home.ts";
import { decodeLogEntry } from "../../core/trust/log.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import { decodeKeyProof, type KeyState, replayKeyProof } from "../../core/trust/proof.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import type { Answer, Call } from "../http/route.ts";
import { createMemo, type Memo } from "../memo.ts";
import { bytesOfDay, createRateLimiter, limitOf } from "../rates.ts";
import type { Egress } from "../relay/egress.ts";

/** The home that a client or a header names, and the client network that causes the question there. */
export type AskedFor = { readonly home: string | null; readonly network: string };
/** `unknown`: the home says that there is none, or no home is known. `silent`: it says nothing that can be believed now. */
type Absence = "unknown" | "silent";

export type Foreign = {
  readonly did: Did;
  readonly home: string;
  /** The proof as it came. */
  readonly bytes: Uint8Array;
  readonly document: DidDocument;
  readonly rootKey: Uint8Array;
  readonly deactivated: boolean;
  /** When its home last said that this is the present state. */
  readonly checkedAtMs: number;
  readonly isFresh: boolean;
};

export type Homes = {
  readonly find: (did: Did, asked: AskedFor) => Promise<Foreign | Absence>;
  /** The holder of an alias at a home, whose document names that home. */
  readonly findAlias: (alias: string, asked: AskedFor) => Promise<Did | Absence>;
  /** What a home's log says of a key, as it came. Its freshness is that of the home's witnesses. */
  readonly entry: (key: string, from: number, asked: AskedFor) => Promise<Uint8Array | Absence>;
  /**
   * The largest payload that the recipient's policies allow, as the home says; `null` when they set none, or it says nothing
   * now. No proof has it, so it only shows senders what the recipient's own nodes will apply.
   */
  readonly bytesMax: (of: Foreign, tag: string | null, network: string) => Promise<number | "denied" | null>;
  /** Whether a text names this Directory itself. */
  readonly isOwn: (home: string) => boolean;
  readonly close: () => void;
};

type HomesParts = {
  readonly egress: Egress;
  readonly receipts: Receipts;
  readonly settings: Config["directory"];
  readonly now: () => number;
  readonly log: Log;
};

type Held = Foreign & {
  /** With what later states are compared. */
  readonly remembered: Remembered;
  /** Until when it counts here, and until when the store has it. */
  readonly heldUntilMs: number;
  readonly savedUntilMs: number;
};

/** What the policies of a recipient allow. */
type Limit = { readonly bytesMax: number | "denied" | null };

type State = HomesParts & {
  readonly held: BoundedMap<Did, Held>;
  /** One question at a time for each thing at a home. An absence stands for some seconds, in all of them. */
  readonly proofs: Memo<Held | Absence>;
  /** What the store has of a DID. */
  readonly stored: Memo<Held | Absence>;
  readonly aliases: Memo<{ readonly did: Did } | Absence>;
  readonly limits: Memo<Limit | Absence>;
  readonly entries: Memo<Uint8Array | Absence>;
  /** Questions that a client network may cause, and what it may make this Directory store in a day. */
  readonly rate: ReturnType<typeof createRateLimiter>;
  readonly dayBytes: ReturnType<typeof createRateLimiter>;
};

const askMs = 5 * secondMs;
/** Another process may save it meanwhile. An unknown DID is remembered for as long (rules section 7). */
const storedMs = 2 * secondMs;
/** What is remembered of a home that has vanished counts for so long. */
const keptMs = 30 * dayMs;
const heldMax = 10_000;
const bytesMax = 32 * 1024 ** 2;

export function createHomes(parts: HomesParts): Homes {
  const { settings, now } = parts;
  const memo = <T>(keptMs: number, absentMs = settings.home_failure) =>
    createMemo<T | Absence>({
      valueMs: (value) => (value === "silent" || value === "unknown" ? absentMs : keptMs),
      failureMs: absentMs,
      entriesMax: heldMax,
      loadsMax: heldMax,
      now,
    });
  const state: State = {
    ...parts,
    held: new BoundedMap<Did, Held>(heldMax, { max: bytesMax, of: ({ bytes }) => 512 + 8 * bytes.length }),
    proofs: memo(0),
    stored: memo(0, storedMs),
    aliases: memo(settings.home_fresh),
    limits: memo(settings.home_fresh),
    // A head changes with each block, and its witnesses' time is what counts.
    entries: memo(0),
    rate: createRateLimiter(limitOf(settings, "home_rate", "home_burst")),
    // Unlike the own ledger's records these end, and another provider's Relay counts as one network.
    dayBytes: createRateLimiter(bytesOfDay(() => settings.network_day_bytes / 8)),
  };
  return {
    find: (did, asked) => find(state, did, asked),
    findAlias: (alias, asked) => findAlias(state, alias, asked),
    entry: (key, from, asked) => readEntry(state, key, { ...asked, from }),
    bytesMax: (of, tag, network) => readLimit(state, of, { tag, network }),
    isOwn: (home) => parseHome(home) === ownHome(settings),
    close: () => parts.egress.close(),
  };
}

/** The host that others know this Directory by. */
const ownHome = ({ public_endpoint: url }: State["settings"]): string | null => (url === null ? null : homeOfUrl(url));

/** `null` for a home that is not asked: of a wrong form, the own one, or one that the operator refuses. */
function allowedHome({ settings }: State, text: string | null): string | null {
  const home = parseHome(text ?? "");
  if (home === null || home === ownHome(settings) || settings.homes.includes(`!${home}`)) return null;
  return settings.homes.includes("*") || settings.homes.includes(home) ? home : null;
}

// --------------------------------------------------------------------------------------------------------------- DIDs

async function find(state: State, did: Did, { home: named, network }: AskedFor): Promise<Foreign | Absence> {
  if (!isSelfCertifying(did)) return "unknown";
  const before = await recall(state, did);
  if (before !== null && isRecent(state, before.checkedAtMs)) return before;
  const homes = new Set([before?.home ?? null, named].map((home) => allowedHome(state, home)));
  let absence: Absence = "unknown";
  for (const home of homes) {
    if (home === null) continue;
    const found = await state.proofs.get(`${did} ${home}`, () => fetchProof(state, did, { home, before, network }));
    if (typeof found !== "string") return found;
    // What another host says of a DID takes nothing away.
    if (before === null || home === before.home) absence = found;
  }
  if (before === null) return absence;
  return absence === "silent" ? { ...before, isFresh: false } : absence;
}

/** What is remembered of a DID; of one whose home the operator refuses, nothing. */
async function recall(state: State, did: Did): Promise<Held | null> {
  const inMemory = state.held.get(did);
  const isHeld = inMemory !== undefined && state.now() < inMemory.heldUntilMs;
  const held = isHeld ? inMemory : await state.stored.get(did, async () => (await load(state, did)) ?? "unknown");
  return typeof held !== "string" && allowedHome(state, held.home) === held.home ? held : null;
}

const isRecent = ({ now, settings }: State, atMs: number): boolean => now() < atMs + settings.home_fresh;

type Fetching = { readonly home: string; readonly before: Held | null; readonly network: string };

async function fetchProof(state: State, did: Did, fetching: Fetching): Promise<Held | Absence> {
  const { home, before } = fetching;
  const known = before === null ? "" : encodeHex(sha256(before.bytes));
  const reply = await ask(state, `/dids/${did}/proof?known=${known}`, fetching);
  if (reply === "silent" || reply === "unknown") return reply;
  const checkedAtMs = state.now();
  const isSame = reply.bytes.length === 0;
  const deactivated = reply.refusal === "did_deactivated";
  if (isSame || deactivated) {
    if (before === null || !homesOf(before.document).includes(home)) return "silent";
    return keep(state, { ...before, deactivated, checkedAtMs }, fetching);
  }
  const proven = await prove(did, reply.bytes);
  if (proven === null) return refuse(state, fetching, "what it serves is no valid proof of this DID");
  const contradiction = before === null ? null : findContradiction(before.remembered, proven);
  if (contradiction !== null) return refuse(state, fetching, `${contradiction.code}: ${contradiction.what}`);
  const { document } = proven;
  const named = homesOf(document);
  if (!named.includes(home)) {
    const next = before?.home === home ? allowedHome(state, named[0] ?? null) : null;
    if (next === null) return refuse(state, fetching, "the proof does not name this home");
    // It has moved: its new home has the last word.
    return fetchProof(state, did, { ...fetching, home: next });
  }
  const rootKey = proven.rootKeys.at(-1) as Uint8Array;
  const remembered = rememberedOf(proven);
  const { bytes } = reply;
  const now = { did, home, bytes, document, rootKey, remembered, checkedAtMs, heldUntilMs: 0, savedUntilMs: 0 };
  return keep(state, { ...now, deactivated: false, isFresh: true }, fetching);
}

function refuse({ log }: State, { home }: Fetching, reason: string): "silent" {
  log("warn", "what another Directory serves is not believed", { home, reason });
  return "silent";
}

/** The state behind a proof whose signatures hold; `null` for other bytes, and for the proof of another DID. */
async function prove(did: Did, bytes: Uint8Array): Promise<KeyState | null> {
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  if (state?.did !== did) return null;
  for (const { signature, message, publicKey } of state.signatures)
    if (!(await verifyEd25519InPool(signature, message, publicKey))) return null;
  return state;
}

const proofKey = (did: Did) => `home/did/${did}`;

/** Renewed once a day. What goes beyond a network's share is remembered in memory only. */
async function keep(state: State, held: Held, { before, network }: Fetching): Promise<Held> {
  const isNew = before === null || before.bytes !== held.bytes;
  const nowMs = state.now();
  let kept = { ...held, isFresh: true, heldUntilMs: nowMs + keptMs };
  const isDue = isNew || held.savedUntilMs < nowMs + keptMs - dayMs;
  if (isDue && state.dayBytes.claim(storingNetwork(network), nowMs, isNew ? held.bytes.length : 0) === 0) {
    kept = { ...kept, savedUntilMs: nowMs + keptMs };
    await save(state, proofKey(held.did), held.bytes);
  }
  state.held.set(held.did, kept);
  return kept;
}

/** A store that is full or away costs memory after a restart, and no answer. */
async function save({ receipts, now }: State, key: string, value: Uint8Array): Promise<void> {
  await receipts.put(key, value, now() + keptMs).catch(() => undefined);
}

/** What an earlier run has verified. */
async function load(state: State, did: Did): Promise<Held | null> {
  const bytes = await state.receipts.get(proofKey(did), state.now());
  const proof = bytes === null ? null : decodeKeyProof(bytes);
  const proven = proof === null ? null : replayKeyProof(proof);
  const [home] = homesOf(proven?.document ?? null);
  if (bytes === null || proven === null || home === undefined) return null;
  const { document, rootKeys } = proven;
  const rootKey = rootKeys.at(-1) as Uint8Array;
  const fetched = { did, home, bytes, document, rootKey, deactivated: false, isFresh: false };
  // Read again each day, because the store knows when it ends.
  const heldUntilMs = state.now() + dayMs;
  const held = { ...fetched, checkedAtMs: 0, remembered: rememberedOf(proven), heldUntilMs, savedUntilMs: 0 };
  state.held.set(did, held);
  return held;
}

// ------------------------------------------------------------------------------------------------ aliases and the log

async function findAlias(state: State, alias: string, { home: named, network }: AskedFor): Promise<Did | Absence> {
  const home = allowedHome(state, named);
  if (home === null) return "unknown";
  const key = `${alias}@${home}`;
  const found = await state.aliases.get(key, async () => {
    const reply = await ask(state, `/aliases/${encodeURIComponent(alias)}`, { home, network });
    if (reply === "silent" || reply === "unknown") return reply;
    const did = jsonObjectOf(reply.bytes)?.["did"];
    if (typeof did !== "string" || !isDid(did)) return "silent";
    const holder = await find(state, did, { home, network });
    if (typeof holder === "string") return holder;
    // Otherwise a host could give any alias to a person of another.
    if (!homesOf(holder.document).includes(home)) return "silent";
    await save(state, `home/alias/${key}`, utf8(did));
    return { did };
  });
  if (typeof found !== "string") return found.did;
  if (found === "unknown") return found;
  const saved = decodeUtf8((await state.receipts.get(`home/alias/${key}`, state.now())) ?? utf8(""));
  return saved !== null && isDid(saved) ? saved : found;
}

type FromEntry = AskedFor & { readonly from: number };

async function readEntry(state: State, key: string, { home: named, network, from }: FromEntry) {
  const home = allowedHome(state, named);
  if (home === null) return "unknown";
  return state.entries.get(`${key} ${from} ${home}`, async () => {
    const reply = await ask(state, `/log/entry/${key}?from=${from}`, { home, network });
    if (reply === "silent" || reply === "unknown") return reply;
    return decodeLogEntry(reply.bytes) === null ? "silent" : reply.bytes;
  });
}

const checkResolution = compileShape(resolutionAnswer);

type Limiting = { readonly tag: string | null; readonly network: string };

async function readLimit(state: State, { did, home, isFresh }: Foreign, { tag, network }: Limiting) {
  const path = `/delivery-resolution/${did}${tag === null ? "" : `?tag=${encodeURIComponent(tag)}`}`;
  // A silent home is not waited for twice.
  if (!isFresh) return null;
  const found = await state.limits.get(path, async (): Promise<Limit | Absence> => {
    const reply = await ask(state, path, { home, network });
    if (typeof reply === "string") return reply;
    const answer = reply.refusal === null ? checkResolution(parseJson(reply.bytes)) : null;
    if (isFault(answer)) return "silent";
    return { bytesMax: answer === null ? "denied" : (answer.policy.effective_constraints.max_message_bytes ?? null) };
  });
  return typeof found === "string" ? null : found.bytesMax;
}

// -------------------------------------------------------------------------------------------------------------- asking

type Reply = { readonly bytes: Uint8Array; readonly refusal: "did_deactivated" | "policy_denied" | null };

/** The guard of outbound requests allows names only by HTTPS, follows no redirect and reads at most 64 KiB. */
async function ask(
  { egress, rate, now }: State,
  path: string,
  { home, network }: Pick<Fetching, "home" | "network">,
): Promise<Reply | Absence> {
  if (rate.claim(network, now()) > 0) return "silent";
  const { httpStatus, body } = await egress.send({
    endpoint: urlOfHome(home),
    suffix: path,
    body: null,
    // A Directory that is asked so answers of its own ledger alone.
    headers: { [hopsHeader]: "1" },
    wantsBody: true,
    client: network,
    timeoutMs: askMs,
  });
  if (body === null) return "silent";
  if (httpStatus === 200) return { bytes: body, refusal: null };
  const code = jsonObjectOf(body)?.["code"];
  // Not of a proxy before it.
  const isAbsent = code === "did_not_found" || code === "alias_not_found" || code === "not_found";
  if (httpStatus === 404 && isAbsent) return "unknown";
  if (httpStatus === 422 && code === "did_deactivated") return { bytes: body, refusal: code };
  return httpStatus === 403 && code === "policy_denied" ? { bytes: body, refusal: code } : "silent";
}

const hopsHeader = "svc-hops";

// ------------------------------------------------------------------------------------------------------------- serving

/** What serves other providers' DIDs beside the own ledger's; without homes there are none. */
export type HomesOf = { readonly homes?: Homes };

/** What a client's request asks of another home; `null` where it must not go on: another Directory asks. */
function askedBy({ query, headers, network }: Call): AskedFor | null {
  return headers.has(hopsHeader) ? null : { home: query.get("home"), network };
}

/** A DID that the own ledger does not have. */
export async function foreignDid({ homes }: HomesOf, did: Did, call: Call): Promise<Foreign | Fault> {
  const asked = askedBy(call);
  const found = asked === null ? "unknown" : ((await homes?.find(did, asked)) ?? "unknown");
  if (found === "silent") return fault("service_unavailable", "the home of this DID can't be asked at the moment");
  if (found === "unknown") return fault("did_not_found", "the DID is not registered");
  return found;
}

/** The holder of an alias at the home that the request names; `null` when it names none. */
export async function foreignAlias({ homes }: HomesOf, call: Call): Promise<Did | null | Fault> {
  const asked = askedBy(call);
  if (homes === undefined || asked === null || asked.home === null || homes.isOwn(asked.home)) return null;
  const alias = normalizeAlias(call.params["alias"] ?? "");
  const found = alias === null ? "unknown" : await homes.findAlias(alias, asked);
  if (found === "silent") return fault("service_unavailable", "the home of this alias can't be asked at the moment");
  return found === "unknown" ? fault("alias_not_found", "no DID has this alias there") : found;
}

/** What the log of another home says of a key; `null` for a key of the own log. */
export async function foreignEntry(homes: Homes | undefined, call: Call, from: number): Promise<Answer | Fault | null> {
  const asked = askedBy(call);
  if (homes === undefined || asked === null || asked.home === null || homes.isOwn(asked.home)) return null;
  const found = await homes.entry(call.params["key"] ?? "", from, asked);
  if (found === "unknown") return fault("not_found", "that home shows no log");
  if (found === "silent") return fault("service_unavailable", "that home can't be asked at the moment");
  return { status: 200, body: { contentType: "application/octet-stream", content: found } };
}
