/**
 * The key bundles of this identity: each names an X-Wing key of five days' use, is signed by the identity, and lies at each of
 * its Caches before the document announces bundles. The seed is fresh, and other own devices have it before anybody seals to
 * it (`keys/agreements.ts`). It ends when nothing that was sealed to it can be waiting. Loaded with the first own bundle.
 * Source: docs/trust.md ("Key bundles"), docs/interface.md ("Key bundles").
 */
import { sha256 } from "#sha256";
import { encodeHex, parseAgreementKey, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { dayMs, weekMs } from "../../core/codec/time.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { announcesBundle } from "../../core/ledger/account.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import {
  bundleKeyId,
  encodeBundleText,
  type KeyBundle,
  readBundle,
  renderBundle,
  verifyBundle,
} from "../../core/message/bundle.ts";
import { attempt, backoffMs, ClientError, isTemporary, orNull, pause } from "../base/failure.ts";
import { lackingShape, putBundleShape } from "../base/kept.ts";
import { renderKept } from "../base/shapes.ts";
import { decideLacking, decideSealing, newestUnder } from "../keys/agreements.ts";
import { signEd25519, verifySignature } from "../keys/crypto.ts";
import { isSealingDue, nextMadeMs } from "../keys/due.ts";
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

/** A bundle lasts a week; its key is replaced before, so that none has ended while a device is there. */
const useMs = 5 * dayMs;
/** How often the Caches are asked whether they still have it. */
const lookMs = dayMs;
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
};

/**
 * `waits`: other devices are to have the key first, or are asked for one. `lacks`: a Cache gives no answer now, and the
 * others have the bundle.
 */
type BundlesOutcome = "none" | "kept" | "waits" | "lacks" | "renewed";

/**
 * Does it, and goes on in the background until every Cache has the bundle, or it is not the last call any more: until
 * then others can't write to this identity. The first failure is thrown; what waits for other devices is tried again within the hour.
 */
export async function keepTrying(
  keep: () => Promise<BundlesOutcome>,
  isLast: () => boolean,
  signal: AbortSignal,
): Promise<void> {
  const first = await attempt(keep);
  const goOn = async () => {
    let last = first;
    // A refusal may end, too: a Cache knows new keys a moment later.
    for (let n = 1; last instanceof ClientError ? last.kind !== "local" : last === "lacks"; n++) {
      // At first half a second to one, at last two and a half minutes to five.
      await pause(backoffMs(n) * Math.min(n, 10), signal);
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
  if (kept === "waits") return kept;
  if (!isAnnounced) await keeper.announce();
  return isWhole ? kept : "lacks";
}

/** A family client on the same DID could not open what is sealed to a bundle: then it is the user's choice. */
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
  const said = await Promise.all(readers.map(({ at }) => attempt(() => about(at))));
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
  /** A method of the document of now has signed it: otherwise no sender believes it. */
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
    const { bundleKeys } = identity;
    const under = nameOfSeed(await this.#rootSeed());
    const held = newestUnder(bundleKeys, under);
    const turn = { nowMs, sinceMs: held?.madeMs ?? 0, everyMs: useMs, rank: devices.rank };
    if (held !== null && !isSealingDue(turn) && (await this.#wasSeen(held))) return "kept";
    const shown = await Promise.all(caches.map((cache) => shownAt(cache, document)));
    const newest = newestOf(shown.filter((one) => one?.counts === true));
    const isMissing = newest !== null && isUnknown(newest, identity, held);
    if (isMissing && !(await this.#isLost(newest))) return "waits";
    const isUpAt = (one: ShownBundle | null | undefined, { id }: HeldAgreement) =>
      one?.counts === true && one.keyId === id;
    const isUp = held !== null && shown.every((one) => isUpAt(one, held));
    const isUsedUp = held !== null && nowMs - held.madeMs >= useMs;
    const isDue = held === null || isMissing || (isUp ? isSealingDue(turn) : isUsedUp);
    const key = isDue ? await this.#make(under, newestOf(shown)?.issuedAtMs ?? 0) : held;
    if ((isDue || !isUp) && !(await this.#isShared(key))) return "waits";
    // A bundle that counts no more is signed with another text, so that no node takes it for the one that it has.
    const issuedAtMs = shown.some((one) => one?.keyId === key.id && !one.counts)
      ? Math.max(nowMs, (newestOf(shown)?.issuedAtMs ?? 0) + 1)
      : key.madeMs;
    const bundle = await this.#sign(key, issuedAtMs);
    const lacking = caches.filter((_, i) => !isUpAt(shown[i], key));
    for (const put of await Promise.allSettled(lacking.map((cache) => putAt(cache, bundle))))
      if (put.status === "rejected") throw put.reason;
    await this.#saw(key);
    return isDue ? "renewed" : "kept";
  }

  /** Whether all Caches had it when they were last asked, not long ago and under the same methods. */
  async #wasSeen({ id }: HeldAgreement): Promise<boolean> {
    const { document, caches } = this.#here;
    const put = await recall(this.#client.known.memory, putKey, putBundleShape);
    if (put === null || this.#keeping.nowMs - put.atMs >= lookMs) return false;
    if (put.keyId !== id || put.methods !== signersOf(document)) return false;
    return caches.every(({ at }) => put.urls.includes(at.url));
  }

  #saw({ id: keyId }: HeldAgreement): Promise<void> {
    const { document, caches } = this.#here;
    const urls = caches.map(({ at }) => at.url);
    const put = { keyId, methods: signersOf(document), urls, atMs: this.#keeping.nowMs };
    return this.#client.known.memory.save(putKey, renderKept(put));
  }

  /** Other devices are asked for the seed of a bundle that is not here, for an hour. */
  async #isLost({ keyId: key }: ShownBundle): Promise<boolean> {
    const { nowMs, devices = alone } = this.#keeping;
    const { memory } = this.#client.known;
    const saved = await recall(memory, lackingKey, lackingShape);
    const met = saved?.key === key ? saved : { key, sinceMs: nowMs, replacedMs: 0 };
    if (met !== saved) await memory.save(lackingKey, renderKept(met));
    const step = decideLacking({ ...met, nowMs, others: devices.others });
    if (step === "ask") await devices.ask(key);
    return step === "replace";
  }

  /** Whether the other devices' Caches have the seed, or have had a day for it. */
  async #isShared(pending: HeldAgreement): Promise<boolean> {
    const { nowMs, devices = alone } = this.#keeping;
    const { others } = devices;
    const isShared = others === 0 || (await devices.share());
    const now = { nowMs, sinceMs: 0, everyMs: 0, rank: 0 };
    return decideSealing({ ...now, pending, others, isShared }) === "publish";
  }

  /** Stored before it is shown to anybody. It counts from now, and later than what the Caches have. */
  async #make(under: string, afterMs: number): Promise<HeldAgreement> {
    const { change, nowMs } = this.#keeping;
    const secret = freshSeed();
    const id = bundleKeyId(await publicKeyOf(secret));
    const keptMs = await longestLifeMs(this.#here.document, this.#client.timeoutMs);
    const stored = await change((before) => {
      const madeMs = nextMadeMs(before.bundleKeys, Math.max(nowMs, afterMs + 1));
      const made = { id, secret, under, madeMs, destroyAtMs: madeMs + weekMs + keptMs };
      return { ...before, bundleKeys: [...before.bundleKeys, made] };
    });
    return newestUnder(stored.bundleKeys, under) as HeldAgreement;
  }

  /** However late it is signed, it ends a week after its key was made. */
  async #sign(
    { id: keyId, secret, madeMs }: HeldAgreement,
    issuedAtMs: number,
  ): Promise<KeyBundle> {
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

/** `null` when the Cache has none, or shows something else. */
async function shownAt({ at, did }: Reader, document: DidDocument): Promise<ShownBundle | null> {
  const request = { method: "GET", path: path`/cache/keys/${did}` } as const;
  const shown = await orNull(fetchChecked(at, request, shownBundleShape), "not_found");
  const bundle = shown === null ? "" : readBundle(shown as JsonObject);
  if (typeof bundle === "string") return null;
  const counts = await verifyBundle(bundle, document, verifySignature);
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
