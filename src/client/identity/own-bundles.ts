/**
 * The key bundles of this identity: each names an X-Wing key of five days' use, is signed by the
 * identity, and lies at each of its Caches before the document announces bundles. The seed is
 * fresh, and other own devices have it before anybody seals to it (`keys/agreements.ts`). It ends
 * when nothing that was sealed to it can be waiting. Loaded with the first own bundle.
 * Source: docs/trust.md ("Key bundles"), docs/interface.md ("Key bundles").
 */
import { sha256 } from "#sha256";
import { encodeHex, parseAgreementKey, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { dayMs, hourMs, minuteMs, secondMs, weekMs } from "../../core/codec/time.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { announcesBundle } from "../../core/ledger/account.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import {
  bundleKeyId,
  bundleTimeProblem,
  encodeBundleText,
  type KeyBundle,
  readBundle,
  renderBundle,
  verifyBundle,
} from "../../core/message/bundle.ts";
import { attempt, backoffMs, ClientError, isTemporary, orNull, pause } from "../base/failure.ts";
import { array, integer, object, optional, renderKept, text } from "../base/shapes.ts";
import { decideLacking, lackingShape, newestUnder } from "../keys/agreements.ts";
import { signEd25519, verifySignature } from "../keys/crypto.ts";
import { nextMadeMs } from "../keys/due.ts";
import {
  freshSeed,
  type HeldAgreement,
  heldSeed,
  type Identity,
  nameOfSeed,
} from "../keys/keys.ts";
import type { EditIdentity } from "../keys/stored.ts";
import { about } from "../net/about.ts";
import { shownBundleShape } from "../net/answers.ts";
import type { Waiting } from "../net/directory.ts";
import { fetchChecked, jsonBody, path } from "../net/http.ts";
import { proofHeaders, type Reader } from "../net/reader.ts";
import { activeDocument, type Client, rootKeyOf, senderOf } from "../trust/client.ts";
import { readersOf } from "../trust/readers.ts";
import { recall } from "../trust/trust.ts";
import { noticeOf } from "./registration.ts";
import { alone, longestLifeMs, type OtherDevices } from "./sharing.ts";

/** The bundle that the own Caches have, where, under which methods, and when that was last seen. */
const putBundleShape = object({
  keyId: text,
  methods: optional(text),
  urls: array(text),
  atMs: integer,
});

/**
 * A bundle lasts a week; its key is replaced before, so that none has ended
 * while a device is there.
 */
const useMs = 5 * dayMs;
/**
 * Each device gives those with a lower DID so much more. The last of eight still has the day that
 * the others may take for the seed, and three hours, before the bundle ends.
 */
const turnMs = 3 * hourMs;
/**
 * How long other devices may take for the seed while no bundle counts, so that
 * everybody's messages wait.
 */
const urgentMs = 4 * secondMs;
/**
 * How often the Caches are asked whether they still have it, and no other: less than
 * the hour between two looks.
 */
const lookMs = hourMs / 2;
/** How much longer than the first one a Cache may take before it counts as one that is away. */
const lateMs = 2 * secondMs;
/** Of the clocks of two nodes. */
const skewMs = 5 * minuteMs;
const [putKey, lackingKey] = ["bundles/put", "bundles/lacking"];

type Keeping = {
  /** By the nodes' clock: senders compare with it. */
  readonly nowMs: number;
  /** `alone` by default. */
  readonly devices?: OtherDevices;
  readonly waiting: Waiting;
  readonly change: (edit: EditIdentity) => Promise<Identity>;
  /** Whether to announce bundles; `null`: where the document names no key agreements of others. */
  readonly announces: boolean | null;
  /**
   * A Cache shows a bundle whose seed no own device has, since that time:
   * somebody else has signed it.
   */
  readonly onStranger?: (sinceMs: number) => void;
};

/**
 * `waits`: other devices are to have the key first, or are asked for one. `missing`: the
 * same, and no bundle counts meanwhile. `lacks`: a Cache gives no answer now, or takes no
 * bundle, and the others have it.
 */
type BundlesOutcome = "none" | "kept" | "waits" | "missing" | "lacks" | "renewed";

/**
 * Others can't write to this identity, or not where a Cache is away. A refusal may end, too: a
 * Cache knows new keys later.
 */
const isUnfinished = (last: BundlesOutcome | ClientError): boolean =>
  last instanceof ClientError ? last.kind !== "local" : last === "missing" || last === "lacks";

/**
 * Does it, and goes on in the background until every Cache has the bundle, or it is not the last
 * call any more: until then others can't write to this identity. The first failure is thrown; what
 * waits for other devices while a bundle counts is tried again within the hour.
 */
export async function keepTrying(
  keep: () => Promise<BundlesOutcome>,
  isLast: () => boolean,
  signal: AbortSignal,
): Promise<void> {
  const first = await attempt(keep);
  const goOn = async () => {
    let last = first;
    for (let n = 1; isUnfinished(last); n++) {
      // At first half a second to one, at last two and a half minutes to five; while others are
      // offered a seed, each second.
      await pause(last === "missing" ? secondMs : backoffMs(n) * Math.min(n, 10), signal);
      if (signal.aborted || !isLast()) return;
      last = await attempt(keep);
    }
  };
  void goOn();
  if (first instanceof ClientError) throw first;
}

/** Makes, signs and puts the bundle of now when it is due, and has the document announce it. */
export async function keepBundles(
  client: Client,
  did: Did,
  keeping: Keeping,
): Promise<BundlesOutcome> {
  const document = await activeDocument(client, did);
  const identity = await withoutEnded(keeping);
  const isAnnounced = announcesBundle(document);
  if (!isAnnounced && !(await mayAnnounce(document, identity, keeping.announces))) return "none";
  const [caches, isWhole] = await cachesWithBundles(client, identity);
  if (caches.length === 0) return isWhole ? "none" : "lacks";
  const keeper = new Keeper(client, keeping, { document, identity, caches });
  const kept = await keeper.keep();
  if (kept === "waits" || kept === "missing") return kept;
  if (!isAnnounced) await keeper.announce();
  return isWhole ? kept : "lacks";
}

/**
 * A family client on the same DID could not open what is sealed to a bundle: then
 * it is the user's choice.
 */
async function mayAnnounce(
  document: DidDocument,
  identity: Identity,
  announces: boolean | null,
): Promise<boolean> {
  if (announces !== null || !isSelfCertifying(identity.did)) return announces === true;
  // Once in the life of an identity that was made without, and loaded then; `announce` likewise.
  const { findOpening } = await import("../trust/own.ts");
  for (const { id, publicKeyMultibase } of document.keyAgreement) {
    const publicKey = parseAgreementKey(publicKeyMultibase);
    const isOwn =
      publicKey !== null && (await findOpening(identity.agreements, { id, publicKey })) !== null;
    if (!isOwn) return false;
  }
  return document.keyAgreement.length > 0;
}

/** Of those that answer now: another one gets the bundle at a later look. */
async function cachesWithBundles(
  client: Client,
  identity: Identity,
): Promise<[caches: readonly Reader[], isWhole: boolean]> {
  const readers = await readersOf(client, identity, "Cache");
  const said = await answersOf(readers.map(({ at }) => about(at)));
  const kept = said.map((one) => !(one instanceof ClientError) && one.key_bundles === true);
  const isWhole = !said.some((one) => one instanceof ClientError && isTemporary(one));
  return [readers.filter((_, i) => kept[i]), isWhole];
}

/** Seeds whose end has come are gone. */
function withoutEnded({ nowMs, change }: Keeping): Promise<Identity> {
  const isOver = ({ destroyAtMs }: HeldAgreement) => destroyAtMs !== null && destroyAtMs <= nowMs;
  return change((stored) =>
    stored.bundleKeys.some(isOver)
      ? { ...stored, bundleKeys: stored.bundleKeys.filter((one) => !isOver(one)) }
      : stored,
  );
}

type Here = {
  readonly document: DidDocument;
  readonly identity: Identity;
  readonly caches: readonly Reader[];
};

type ShownBundle = {
  readonly keyId: string;
  readonly issuedAtMs: number;
  /**
   * A method of the document of now has signed it, and its time is now:
   * otherwise no sender believes it.
   */
  readonly counts: boolean;
};

class Keeper {
  readonly #client: Client;
  readonly #keeping: Keeping;
  readonly #here: Here;

  constructor(client: Client, keeping: Keeping, here: Here) {
    this.#client = client;
    this.#keeping = keeping;
    this.#here = here;
  }

  async keep(): Promise<BundlesOutcome> {
    const { nowMs, devices = alone } = this.#keeping;
    const { document, identity, caches } = this.#here;
    const under = nameOfSeed(await this.#rootSeed());
    const held = newestUnder(untilNow(identity.bundleKeys, nowMs), under);
    const usedMs = held === null ? Number.POSITIVE_INFINITY : nowMs - held.madeMs;
    const isTurn = usedMs >= useMs + devices.rank * turnMs;
    if (held !== null && !isTurn && (await this.#wasSeen(held))) return "kept";

    const looks = await answersOf(caches.map((cache) => shownAt(cache, document, nowMs)));
    const shown = looks.filter((one): one is ShownBundle | null => !(one instanceof ClientError));
    if (shown.length === 0) throw looks[0];
    const newest = newestOf(shown.filter((one) => one?.counts === true));
    const isStrange = newest !== null && isUnknown(newest, identity, held);
    if (isStrange && !(await this.#isLost(newest))) return "waits";

    const isUpAt = (one: ShownBundle | null | ClientError | undefined, { id }: HeldAgreement) =>
      one != null && "counts" in one && one.counts && one.keyId === id;
    const isUp = held !== null && shown.every((one) => isUpAt(one, held));
    const isDue = isStrange || (isUp ? isTurn : usedMs >= useMs);
    const key = held === null || isDue ? await this.#make(under, newestOf(shown)) : held;
    const isNew = key !== held;
    if ((isNew || !isUp) && !(await this.#isShared(key, newest !== null)))
      return newest === null ? "missing" : "waits";

    const lacking = caches.filter((_, i) => !isUpAt(looks[i], key));
    const bundle = await this.#sign(key, shown);
    const puts = await answersOf(lacking.map((cache) => putAt(cache, bundle)));
    const refusals = puts.filter((put) => put instanceof ClientError);
    if (refusals.length === caches.length) throw refusals[0];
    if (refusals.length > 0) return "lacks";
    await this.#saw(key);
    return isNew ? "renewed" : "kept";
  }

  /**
   * Whether all Caches had it when they were last asked, not long ago and under the same methods.
   */
  async #wasSeen({ id }: HeldAgreement): Promise<boolean> {
    const { document, caches } = this.#here;
    const put = await recall(this.#client.known.memory, putKey, putBundleShape);
    if (put === null || Math.abs(this.#keeping.nowMs - put.atMs) >= lookMs) return false;
    if (put.keyId !== id || put.methods !== signersOf(document)) return false;
    return caches.every(({ at }) => put.urls.includes(at.url));
  }

  #saw({ id: keyId }: HeldAgreement): Promise<void> {
    const { document, caches } = this.#here;
    const urls = caches.map(({ at }) => at.url);
    const put = { keyId, methods: signersOf(document), urls, atMs: this.#keeping.nowMs };
    return this.#client.known.memory.save(putKey, renderKept(put));
  }

  /**
   * Other devices are asked for the seed of a bundle that is not here, for an hour. Then somebody
   * else has it, who has a key of this identity: by the bundle they read what is sealed to it.
   */
  async #isLost({ keyId: key }: ShownBundle): Promise<boolean> {
    const { nowMs, devices = alone, onStranger } = this.#keeping;
    const { memory } = this.#client.known;
    const saved = await recall(memory, lackingKey, lackingShape);
    const met = saved?.key === key ? saved : { key, sinceMs: nowMs, replacedMs: 0 };
    if (met !== saved) await memory.save(lackingKey, renderKept(met));
    const step = decideLacking({ ...met, nowMs, others: devices.others });
    if (step === "ask") await devices.ask(key);
    if (step === "replace") onStranger?.(met.sinceMs);
    return step === "replace";
  }

  /**
   * Whether the other devices' Caches have the seed, or have had a day for it. Where no bundle
   * counts they have some seconds: one that was away as long has none either, and could not be
   * given the seed. It asks when it is back.
   */
  async #isShared({ madeMs }: HeldAgreement, isReachable: boolean): Promise<boolean> {
    const { nowMs, devices = alone } = this.#keeping;
    if (devices.others === 0) return true;
    const atMostMs = madeMs - nowMs + (isReachable ? dayMs : urgentMs);
    const fromMs = performance.now();
    return atMostMs <= 0 || (await devices.share()) || performance.now() - fromMs >= atMostMs;
  }

  /**
   * Stored before it is shown to anybody. It counts from now, and later than what the Caches have.
   */
  async #make(under: string, newest: ShownBundle | null): Promise<HeldAgreement> {
    const { change, nowMs } = this.#keeping;
    const afterMs = newest?.issuedAtMs ?? 0;
    const secret = freshSeed();
    const id = bundleKeyId(await publicKeyOf(secret));
    const keptMs = await longestLifeMs(this.#here.document, this.#client.timeoutMs);
    const stored = await change((before) => {
      const known = untilNow(before.bundleKeys, nowMs);
      const madeMs = nextMadeMs(known, Math.max(nowMs, afterMs + 1));
      const made = { id, secret, under, madeMs, destroyAtMs: madeMs + weekMs + keptMs };
      return { ...before, bundleKeys: [...before.bundleKeys, made] };
    });
    return stored.bundleKeys.find((one) => one.id === id) as HeldAgreement;
  }

  /**
   * However late it is signed, it ends a week after its key was made. One that counts no more is
   * signed with another text, so that no node takes it for the one that it has.
   */
  async #sign(
    { id: keyId, secret, madeMs }: HeldAgreement,
    shown: readonly (ShownBundle | null)[],
  ): Promise<KeyBundle> {
    const isRefused = shown.some((one) => one?.keyId === keyId && !one.counts);
    const laterMs = Math.max(this.#keeping.nowMs, (newestOf(shown)?.issuedAtMs ?? 0) + 1);
    const issuedAtMs = isRefused ? laterMs : madeMs;
    const { did, keyId: signer, seed } = await senderOf(this.#client, this.#here.identity);
    const publicKey = await publicKeyOf(secret);
    const times = { issuedAtMs, notAfterMs: madeMs + weekMs };
    const unsigned = { did, keyId, publicKey, ...times };
    return { ...unsigned, signer, signature: await signEd25519(encodeBundleText(unsigned), seed) };
  }

  /** The replacement of the root key may have been interrupted. */
  async #rootSeed(): Promise<Uint8Array> {
    const { identity } = this.#here;
    const key = await rootKeyOf(this.#client, identity.did);
    return (await heldSeed({ ...identity, methods: [] }, key)) ?? identity.rootSeed;
  }

  /** When a bundle is there. The X25519 key stays in front: who knows no bundles seals to it. */
  async announce(): Promise<void> {
    const { did } = this.#here.identity;
    const notice = noticeOf(did);
    const edited = (document: DidDocument): DidDocument => ({
      ...document,
      keyAgreement: [...document.keyAgreement.filter(({ id }) => id !== notice.id), notice],
    });
    const { waiting } = this.#keeping;
    const rootSeed = await this.#rootSeed();
    const { publishEdited } = await import("./change.ts");
    await publishEdited(this.#client, did, { rootSeed, edited, waiting });
  }
}

const publicKeyOf = async (seed: Uint8Array): Promise<Uint8Array> =>
  (await (await import("../keys/xwing.ts")).expandSeed(seed)).publicKey;

/**
 * Without those that were made while the nodes' clock was ahead: no bundle of
 * theirs counts before its time.
 */
const untilNow = (held: readonly HeldAgreement[], nowMs: number): readonly HeldAgreement[] =>
  held.filter(({ madeMs }) => madeMs <= nowMs + skewMs);

/** By whose keys a bundle counts: when they change, it may have to be signed anew. */
const signersOf = ({ verificationMethod, authentication }: DidDocument): string =>
  encodeHex(sha256(utf8(JSON.stringify([authentication, verificationMethod]))));

const newestOf = (shown: readonly (ShownBundle | null)[]): ShownBundle | null =>
  shown
    .filter((one) => one !== null)
    .reduce<ShownBundle | null>(
      (last, one) => (last === null || one.issuedAtMs > last.issuedAtMs ? one : last),
      null,
    );

/** Another device has put it, or this one before its keys were lost: unless a later one is here. */
const isUnknown = (
  { keyId, issuedAtMs }: ShownBundle,
  { bundleKeys }: Identity,
  held: HeldAgreement | null,
): boolean => issuedAtMs >= (held?.madeMs ?? 0) && bundleKeys.every(({ id }) => id !== keyId);

/**
 * Each answer or failure. Who takes some seconds longer than the first that answers has
 * failed: it delays no other.
 */
async function answersOf<T>(asked: readonly Promise<T>[]): Promise<readonly (T | ClientError)[]> {
  const all = asked.map((one) => attempt(() => one));
  const late = Promise.any(asked)
    .then(() => pause(lateMs, new AbortController().signal))
    .then(() => new ClientError("timed_out", "timed_out", "this Cache is slower than another"));
  // Where none answers, none is waited for.
  late.catch(() => undefined);
  return Promise.all(all.map((one) => Promise.race([one, late.catch(() => one)])));
}

/** `null` when the Cache has none, or shows something else, such as one of the future. */
async function shownAt(
  { at, did }: Reader,
  document: DidDocument,
  nowMs: number,
): Promise<ShownBundle | null> {
  const request = { method: "GET", path: path`/cache/keys/${did}` } as const;
  const shown = await orNull(fetchChecked(at, request, shownBundleShape), "not_found");
  const bundle = shown === null ? "" : readBundle(shown as JsonObject);
  if (typeof bundle === "string") return null;
  const problem = bundleTimeProblem(bundle, nowMs, skewMs);
  if (problem === "future") return null;
  const counts = problem === null && (await verifyBundle(bundle, document, verifySignature));
  return { keyId: bundle.keyId, issuedAtMs: bundle.issuedAtMs, counts };
}

/** A Cache that has a later one by now has that of another own device. */
async function putAt(reader: Reader, bundle: KeyBundle): Promise<void> {
  const body = jsonBody(renderBundle(bundle));
  const headers = await proofHeaders(reader, "keys", encodeHex(sha256(body)));
  const request = { method: "PUT", path: path`/cache/keys/${reader.did}`, headers, body } as const;
  const put = await attempt(() => fetchChecked(reader.at, request, shownBundleShape));
  if (put instanceof ClientError && put.code !== "bundle_stale") throw put;
}
