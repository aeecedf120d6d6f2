/**
 * Self-certifying DIDs of other Directories: their key proofs, fetched from the home that a client
 * or a header names, or that the DID's own document named before. What arrives is verified and
 * served as it came, so that a reader believes the signatures in it and neither Directory. A silent
 * home leaves what is remembered of it in force; a hostile one can't change it. Another Directory
 * gets answers from the own ledger only, so that no question goes in circles.
 * Source: docs/trust.md "Between providers".
 */
import type { Config } from "../../config/schema.ts";
import {
  concatBytes,
  decodeUtf8,
  encodeHex,
  equalBytes,
  utf8,
  type VerifySignature,
} from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { jsonObjectOf, parseJson } from "../../core/codec/json.ts";
import { dayMs, hourMs, secondMs } from "../../core/codec/time.ts";
import { isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { findContradiction, type Remembered, rememberedOf } from "../../core/ledger/follow.ts";
import { homeOfUrl, homesOf, parseHome } from "../../core/ledger/home.ts";
import { decodeKeyProof, type KeyState, replayKeyProof } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { resolutionAnswer } from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { decodeLogEntry } from "../../core/trust/log.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Egress } from "../egress/egress.ts";
import type { Log } from "../http/log.ts";
import {
  type Absence,
  claimQuestion,
  fetchFromHome,
  ifRefused,
  silentIfRefused,
} from "./home-questions.ts";
import { createMemo, type Memo } from "./memo.ts";
import { bytesOfDay, createRateLimiter, limitOf, type RateLimiter } from "./rates.ts";

/**
 * The home that a client or a header names, and the client network that causes the question there.
 */
export type AskedFor = { readonly home: string | null; readonly network: string };
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
   * The largest payload that the recipient's policies allow, as the home says; `null` when they
   * set none, or it says nothing now. No proof has it, so it only shows senders what the
   * recipient's own nodes will apply.
   */
  readonly bytesMax: (
    of: Foreign,
    tag: string | null,
    network: string,
  ) => Promise<number | "denied" | null>;
  /** Whether a text names this Directory itself. */
  readonly isOwn: (home: string) => boolean;
  readonly close: () => void;
};

type HomesParts = {
  readonly egress: Egress;
  readonly verify: VerifySignature;
  readonly receipts: Receipts;
  readonly settings: Config["directory"];
  readonly now: () => number;
  readonly log: Log;
};

type HeldProof = Foreign & {
  /** With what later states are compared. */
  readonly remembered: Remembered;
};

/** What the policies of a recipient allow. */
type Limit = { readonly bytesMax: number | "denied" | null };

type Replayed = { readonly bytes: Uint8Array; readonly proven: KeyState };

type HomesState = HomesParts & {
  /** One look-up at a time for each thing at a home; an absence stands for some seconds. */
  readonly found: Memo<Foreign | Absence>;
  readonly aliases: Memo<{ readonly did: Did } | Absence>;
  readonly limits: Memo<Limit | Absence>;
  readonly entries: Memo<Uint8Array | Absence>;
  /** States behind the saved proofs, by DID. */
  readonly replayed: BoundedMap<Did, Replayed>;
  /**
   * Questions that a client network may cause, and what it may make this Directory store in a day.
   */
  readonly rate: RateLimiter;
  readonly dayBytes: RateLimiter;
};

/**
 * Another process may save it meanwhile. An unknown DID is remembered for
 * as long (rules section 7).
 */
const unnamedMs = 2 * secondMs;
/** What is remembered of a home that has vanished counts for so long. */
const keptMs = 30 * dayMs;
const heldMax = 10_000;
const bytesMax = 32 * 1024 ** 2;
/** About what a state takes of memory, with its proof. */
const heldBytes = ({ bytes }: { readonly bytes: Uint8Array }): number => 512 + 8 * bytes.length;

export function createHomes(parts: HomesParts): Homes {
  const { settings, now } = parts;
  const { home_fresh: freshMs, home_failure: failureMs } = settings;
  const bounds = { entriesMax: heldMax, loadsMax: heldMax, failureMs: 0, now };
  const isFailure = (value: unknown) => value === "silent" || value === "unknown";
  const memo = <T>(keptMs: number) =>
    createMemo<T | Absence>({
      ...bounds,
      valueMs: (value) => (isFailure(value) ? failureMs : keptMs),
    });
  const state: HomesState = {
    ...parts,
    found: createMemo<Foreign | Absence>({
      ...bounds,
      valueMs: (value, key) => {
        if (value === "unknown" && key.endsWith("@")) return unnamedMs;
        return typeof value !== "string" && value.isFresh ? freshMs : failureMs;
      },
      bytes: {
        max: bytesMax,
        of: (value) => (typeof value === "string" ? 0 : heldBytes(value)),
      },
    }),
    replayed: new BoundedMap<Did, Replayed>(heldMax, { max: bytesMax, of: heldBytes }),
    aliases: memo(freshMs),
    limits: memo(freshMs),
    // A head changes with each block, and its witnesses' time is what counts.
    entries: memo(0),
    rate: createRateLimiter(limitOf(settings, "home_rate", "home_burst")),
    // Unlike the own ledger's records these end, and another provider's
    // Relay counts as one network.
    dayBytes: createRateLimiter(bytesOfDay(settings.network_day_bytes / 8)),
  };
  return {
    find: (did, asked) => findForeign(state, did, asked),
    findAlias: (alias, asked) => findAlias(state, alias, asked),
    entry: (key, from, asked) => readEntry(state, key, { ...asked, from }),
    bytesMax: (of, tag, network) => readLimit(state, of, { tag, network }),
    isOwn: (home) => parseHome(home) === ownHome(settings),
    close: () => parts.egress.close(),
  };
}

/** The host that others know this Directory by. */
const ownHome = ({ public_endpoint: url }: HomesState["settings"]): string | null =>
  url === null ? null : homeOfUrl(url);

/**
 * `null` for a home that is not asked: of a wrong form, the own one, or one
 * that the operator refuses.
 */
function allowedHome({ settings }: HomesState, text: string | null): string | null {
  const home = parseHome(text ?? "");
  if (home === null || home === ownHome(settings) || settings.homes.includes(`!${home}`))
    return null;
  return settings.homes.includes("*") || settings.homes.includes(home) ? home : null;
}

// -------------------------------------------------------------------------------------------- DIDs

/**
 * What the remembered home says, and what the named one says where the remembered one is silent or
 * has none. One answer of the remembered home counts whichever home is named.
 */
async function findForeign(
  state: HomesState,
  did: Did,
  { home, network }: AskedFor,
): Promise<Foreign | Absence> {
  if (!isSelfCertifying(did)) return "unknown";
  const named = allowedHome(state, home);
  const remembered = state.found.get(`${did}@`, () => askRemembered(state, did, network));
  const own = await remembered.catch(
    ifRefused(async () => (await loadProof(state, did)) ?? "silent"),
  );
  const isSettled = typeof own !== "string" && (own.isFresh || own.home === named);
  if (named === null || isSettled) return own;
  const asking = state.found.get(`${did}@${named}`, () =>
    askNamed(state, did, { home: named, network }),
  );
  const found = await asking.catch(silentIfRefused);
  return typeof found === "string" && typeof own !== "string" ? own : found;
}

async function askRemembered(
  state: HomesState,
  did: Did,
  network: string,
): Promise<Foreign | Absence> {
  const before = await loadProof(state, did);
  if (before === null) return "unknown";
  claimQuestion(state, network);
  const found = await fetchProof(state, did, { home: before.home, before, network });
  return found === "silent" ? before : found;
}

async function askNamed(
  state: HomesState,
  did: Did,
  { home, network }: { readonly home: string; readonly network: string },
): Promise<Foreign | Absence> {
  // Before the store is read: strangers invent as many homes as they like.
  claimQuestion(state, network);
  const before = await loadProof(state, did);
  const found = await fetchProof(state, did, { home, before, network });
  // What another host says of a DID takes nothing away.
  if (typeof found === "string") return before === null ? found : "unknown";
  // From now on it is known without a home too.
  if (before === null) state.found.forget(`${did}@`);
  return found;
}

type Fetching = {
  readonly home: string;
  readonly before: HeldProof | null;
  readonly network: string;
};

async function fetchProof(
  state: HomesState,
  did: Did,
  fetching: Fetching,
): Promise<Foreign | Absence> {
  const { home, before } = fetching;
  const known = before === null ? "" : encodeHex(sha256(before.bytes));
  const reply = await fetchFromHome(state, `/dids/${did}/proof?known=${known}`, fetching);
  if (reply === "unknown") return reply;
  if (reply === "silent" || reply === "policy_denied") return "silent";
  if (reply === "did_deactivated" || reply.length === 0) {
    if (before === null || !homesOf(before.document).includes(home)) return "silent";
    return keepNewer(state, { ...before, deactivated: reply === "did_deactivated" }, fetching);
  }
  const proven = await provenState(state, did, reply);
  if (proven === null)
    return logInvalid(state, fetching, "what it serves is not a valid proof of this DID");
  const contradiction = before === null ? null : findContradiction(before.remembered, proven);
  if (contradiction !== null)
    return logInvalid(state, fetching, `${contradiction.code}: ${contradiction.what}`);
  const named = homesOf(proven.document);
  if (named.includes(home))
    return keepNewer(
      state,
      foreignOf(proven, { home, bytes: reply, deactivated: false, checkedAtMs: 0 }),
      fetching,
    );
  const next = before?.home === home ? allowedHome(state, named[0] ?? null) : null;
  if (next === null) return logInvalid(state, fetching, "the proof does not name this home");
  // It has moved: its new home has the last word.
  return fetchProof(state, did, { ...fetching, home: next });
}

function logInvalid({ log }: HomesState, { home }: Fetching, reason: string): "silent" {
  log("warn", "what another Directory serves is not believed", { home, reason });
  return "silent";
}

/**
 * The state behind a proof whose signatures hold; `null` for other bytes, and for
 * the proof of another DID.
 */
async function provenState(
  { verify }: HomesState,
  did: Did,
  bytes: Uint8Array,
): Promise<KeyState | null> {
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  if (state?.did !== did) return null;
  for (const { signature, message, publicKey } of state.signatures)
    if (!(await verify(signature, message, publicKey))) return null;
  return state;
}

type ShownHome = Pick<Foreign, "home" | "bytes" | "deactivated" | "checkedAtMs">;

function foreignOf({ did, document, rootKeys }: KeyState, shown: ShownHome) {
  return { ...shown, did, document, rootKey: rootKeys.at(-1) as Uint8Array, isFresh: false };
}

/**
 * Of what is saved: whether the DID is deactivated, and when the home last said so, as two float64.
 */
const headBytes = 16;
const proofKey = (did: Did) => `home/did/${did}`;

/**
 * What the home says now. It is remembered, anew once an hour, but new bytes beyond a
 * network's share are not.
 */
async function keepNewer(
  state: HomesState,
  found: Foreign,
  { before, network }: Fetching,
): Promise<Foreign> {
  const { did, bytes, deactivated } = found;
  const nowMs = state.now();
  const isKnown = before?.bytes === bytes;
  const isSaved =
    isKnown && before.deactivated === deactivated && nowMs < before.checkedAtMs + hourMs;
  if (
    !isSaved &&
    state.dayBytes.claim(storingNetwork(network), nowMs, isKnown ? 0 : bytes.length) === 0
  ) {
    const head = new Float64Array([deactivated ? 1 : 0, nowMs]);
    await saveFound(state, proofKey(did), concatBytes(new Uint8Array(head.buffer), bytes));
  }
  return { ...found, isFresh: true, checkedAtMs: nowMs };
}

/** A store that is full or away costs memory, and no answer. */
async function saveFound(
  { receipts, now }: HomesState,
  key: string,
  value: Uint8Array,
): Promise<void> {
  await receipts.put(key, value, now() + keptMs).catch(() => undefined);
}

/** What was verified before; of a DID whose home the operator refuses, nothing. */
async function loadProof(state: HomesState, did: Did): Promise<HeldProof | null> {
  const saved = await state.receipts.get(proofKey(did), state.now());
  if (saved === null) return null;
  const replayed = replay(state, did, saved.subarray(headBytes));
  const home = allowedHome(state, homesOf(replayed?.proven.document ?? null)[0] ?? null);
  if (replayed === null || home === null) return null;
  const { bytes, proven } = replayed;
  const [isDeactivated, checkedAtMs = 0] = new Float64Array(saved.slice(0, headBytes).buffer);
  const shown = { home, bytes, deactivated: isDeactivated === 1, checkedAtMs };
  return { ...foreignOf(proven, shown), remembered: rememberedOf(proven) };
}

/**
 * The state behind verified bytes. A proof of 200 rotations takes 3 ms to
 * replay, and 10 µs to compare.
 */
function replay({ replayed }: HomesState, did: Did, bytes: Uint8Array): Replayed | null {
  const known = replayed.get(did);
  if (known !== undefined && equalBytes(known.bytes, bytes)) return known;
  const proof = decodeKeyProof(bytes);
  const proven = proof === null ? null : replayKeyProof(proof);
  if (proven === null) return null;
  const found = { bytes, proven };
  replayed.set(did, found);
  return found;
}

// ----------------------------------------------------------------------------- aliases and the log

async function findAlias(
  state: HomesState,
  alias: string,
  { home: named, network }: AskedFor,
): Promise<Did | Absence> {
  const home = allowedHome(state, named);
  if (home === null) return "unknown";
  const key = `${alias}@${home}`;
  const asking = state.aliases.get(key, async () => {
    claimQuestion(state, network);
    const reply = await fetchFromHome(state, `/aliases/${encodeURIComponent(alias)}`, {
      home,
      network,
    });
    if (reply === "unknown") return reply;
    const did = typeof reply === "string" ? null : jsonObjectOf(reply)?.["did"];
    if (typeof did !== "string" || !isDid(did)) return "silent";
    const holder = await findForeign(state, did, { home, network });
    if (typeof holder === "string") return holder;
    // Otherwise a host could give any alias to a person of another.
    if (!homesOf(holder.document).includes(home)) return "silent";
    await saveFound(state, `home/alias/${key}`, utf8(did));
    return { did };
  });
  const found = await asking.catch(silentIfRefused);
  if (typeof found !== "string") return found.did;
  if (found === "unknown") return found;
  const saved = decodeUtf8(
    (await state.receipts.get(`home/alias/${key}`, state.now())) ?? utf8(""),
  );
  return saved !== null && isDid(saved) ? saved : found;
}

type FromEntry = AskedFor & { readonly from: number };

async function readEntry(
  state: HomesState,
  key: string,
  { home: named, network, from }: FromEntry,
) {
  const home = allowedHome(state, named);
  if (home === null) return "unknown";
  const asking = state.entries.get(`${key} ${from} ${home}`, async () => {
    claimQuestion(state, network);
    const reply = await fetchFromHome(state, `/log/entry/${key}?from=${from}`, { home, network });
    const isEntry = typeof reply !== "string" && decodeLogEntry(reply) !== null;
    return isEntry || reply === "unknown" ? reply : "silent";
  });
  return asking.catch(silentIfRefused);
}

const checkResolution = compileShape(resolutionAnswer);

type Limiting = { readonly tag: string | null; readonly network: string };

async function readLimit(
  state: HomesState,
  { did, home, isFresh }: Foreign,
  { tag, network }: Limiting,
) {
  // A silent home is not waited for twice.
  if (!isFresh) return null;
  const path = `/delivery-resolution/${did}${tag === null ? "" : `?tag=${encodeURIComponent(tag)}`}`;
  const asking = state.limits.get(path, async (): Promise<Limit | Absence> => {
    claimQuestion(state, network);
    const reply = await fetchFromHome(state, path, { home, network });
    if (reply === "policy_denied") return { bytesMax: "denied" };
    const answer = typeof reply === "string" ? null : checkResolution(parseJson(reply));
    if (answer === null || isFault(answer)) return "silent";
    return { bytesMax: answer.policy.effective_constraints.max_message_bytes ?? null };
  });
  const found = await asking.catch(silentIfRefused);
  return typeof found === "string" ? null : found.bytesMax;
}
