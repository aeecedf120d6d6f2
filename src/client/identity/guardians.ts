/**
 * Guardians: the seed of the root key, split so that any two of three people can restore it and
 * none of them alone knows anything. Each gets a share as a sealed message and gives it back on
 * another way, when asked in person. The DID stays and the ledger learns nothing. Two guardians
 * together could take the identity.
 * Source: docs/client.md "Lost and found", D397; Shamir 1979.
 */
import { combine, split } from "shamir-secret-sharing";
import { encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseMethodKey, sealingKeyOf } from "../../core/ledger/account.ts";
import { attempt, localError } from "../base/failure.ts";
import {
  array,
  keptBytes,
  keptBytes32,
  keptDid,
  nullable,
  type Of,
  object,
  parseKept,
  renderKept,
  text,
  truth,
} from "../base/shapes.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import { type KeyStore, memoryOf, reliable } from "../keys/key-stores.ts";
import { freshSeed, type Identity, newIdentity, renderIdentity } from "../keys/keys.ts";
import { changeIdentity, type EditIdentity } from "../keys/stored.ts";
import { shareType } from "../mail/content.ts";
import type { MessageOptions } from "../mail/send.ts";
import { provingAt, waitingDefault } from "../net/directory.ts";
import { timeAt } from "../net/http.ts";
import type { LocalStore } from "../store/store.ts";
import { activeDocument, type Client, connect, findName, rootKeyOf } from "../trust/client.ts";
import type { Fingerprint } from "../trust/fingerprint.ts";
import { rememberHosts } from "../trust/hosts.ts";
import { distrust, recall } from "../trust/trust.ts";
import { inForce, nextIdentity, publishKeys, rememberChoice } from "./new-keys.ts";
import type { Choosing } from "./replacement.ts";

/**
 * Guardians: the message with the share of each, and whether it was acknowledged; the root key of
 * the shares, `null` until all are sent; and the one that is to be replaced before.
 */
const guardiansShape = object({
  to: array(object({ did: keptDid, id: nullable(text), hasShare: truth })),
  before: nullable(keptBytes32),
  rootKey: nullable(keptBytes32),
});
const shareShape = object({ did: keptDid, rootKey: keptBytes32, share: keptBytes });

const [sharesCount, sharesNeeded] = [3, 2];
const memoryKey = "guardians";

/**
 * Who is to be a guardian: a DID, or an alias that was this person's before, and the fingerprint
 * that the user was shown.
 */
export type GuardianChoice = { readonly to: string; readonly fingerprint: string };

export type Guardian = {
  readonly did: Did;
  /**
   * The person's program has acknowledged the share of the root key in force. Two such
   * can restore the identity.
   */
  readonly hasShare: boolean;
};

/** What guardians are appointed with: an identity that has a store. */
type AppointingOwner = {
  readonly client: Client;
  readonly did: Did;
  readonly identity: Identity;
  readonly store: Pick<LocalStore, "person" | "message">;
  readonly devices: { readonly replaceKeys: () => Promise<void> };
  readonly fingerprint: (to: string) => Promise<Fingerprint>;
  readonly send: (
    to: string,
    content: { readonly [member: string]: string | number },
    options: MessageOptions,
  ) => Promise<{ readonly id: string }>;
};

type Appointed = Of<typeof guardiansShape>;
type Share = { readonly did: Did; readonly rootKey: Uint8Array; readonly share: Uint8Array };

/**
 * Begins with new keys of the identity, so that shares of former guardians are worth nothing.
 * Remembered before: what is interrupted goes on at the next start. Throws `guardian_unknown` for a
 * person who isn't known, or whose alias is the Directory's word alone, `proof_missing` for a
 * random DID, and `identity_changed` when the fingerprint is another one.
 */
export async function appointGuardians(
  owner: AppointingOwner,
  choices: readonly GuardianChoice[],
): Promise<void> {
  const dids = await Promise.all(choices.map((choice) => guardianOf(owner, choice)));
  if (dids.length !== sharesCount || new Set(dids).size !== sharesCount || dids.includes(owner.did))
    throw localError("invalid_argument", `guardians are ${sharesCount} different people`);
  const before = await ed25519PublicKey(owner.identity.rootSeed);
  const to = dids.map((did) => ({ did, id: null, hasShare: false }));
  await rememberAppointed(owner, { to, before, rootKey: null });
  await renewGuardians(owner);
}

async function guardianOf(
  owner: AppointingOwner,
  { to, fingerprint }: GuardianChoice,
): Promise<Did> {
  const { did, name } = await findName(owner.client, to);
  const unknown = (why: string) => localError("guardian_unknown", `${to} ${why}`);
  if (name === "told") throw unknown("is known from the Directory's word only: name the DID");
  const person = await owner.store.person(did);
  if (person?.isKnown !== true || person.isBlocked) throw unknown("is not a known person");
  const { is, distrusted } = await owner.fingerprint(did);
  if (distrusted !== null || is !== fingerprint)
    throw distrust("identity_changed", `the fingerprint of ${to} is not the one that was shown`);
  return did;
}

/** Gives shares to guardians who have none of the root key in force. */
export async function renewGuardians(owner: AppointingOwner): Promise<void> {
  const appointed = await recallAppointed(owner);
  if (appointed === null) return;
  const before = await ed25519PublicKey(owner.identity.rootSeed);
  if (isSameSecret(appointed.rootKey, before)) return;
  if (isSameSecret(appointed.before, before)) await owner.devices.replaceKeys();
  const { rootSeed } = owner.identity;
  const rootKey = await ed25519PublicKey(rootSeed);
  const shares = await split(rootSeed, sharesCount, sharesNeeded);
  const to: Appointed["to"] = [];
  for (const [i, { did }] of appointed.to.entries()) {
    const share = encodeHex(shares[i] as Uint8Array);
    const content = { v: 1, did: owner.did, rootKey: encodeHex(rootKey), share };
    const options = { mediaType: shareType, receipt: true };
    to.push({ did, id: (await owner.send(did, content, options)).id, hasShare: false });
  }
  await rememberAppointed(owner, { to, before: null, rootKey });
}

/** Those who were appointed here; empty when there are none. */
export async function listGuardians(owner: AppointingOwner): Promise<Guardian[]> {
  const appointed = await recallAppointed(owner);
  if (appointed === null) return [];
  const to = await Promise.all(appointed.to.map((one) => withReceipt(owner, one)));
  if (to.some(({ hasShare }, i) => hasShare !== appointed.to[i]?.hasShare))
    await rememberAppointed(owner, { ...appointed, to });
  const rootKey = await ed25519PublicKey(owner.identity.rootSeed);
  const isOf = isSameSecret(appointed.rootKey, rootKey);
  return to.map(({ did, hasShare }) => ({ did, hasShare: hasShare && isOf }));
}

/** Noted once: the message may be removed later. */
async function withReceipt({ store }: AppointingOwner, one: Appointed["to"][number]) {
  const sent = one.hasShare || one.id === null ? null : await store.message(one.id);
  const state = sent?.delivery?.state ?? "waiting";
  return { ...one, hasShare: one.hasShare || state === "received" || state === "read" };
}

const isSameSecret = (a: Uint8Array | null, b: Uint8Array): boolean =>
  a !== null && equalBytes(a, b);

const recallAppointed = ({ client }: AppointingOwner): Promise<Appointed | null> =>
  recall(client.known.memory, memoryKey, guardiansShape);

const rememberAppointed = ({ client }: AppointingOwner, appointed: Appointed): Promise<void> =>
  client.known.memory.save(memoryKey, renderKept(appointed));

export type Restoration = {
  /** Texts of the messages that the guardians got: two, or all three. */
  readonly shares: readonly string[];
  readonly directoryUrl: string;
  /**
   * Where the identity's Relay and Cache are, if the Directory's node is not all
   * three: services there stay.
   */
  readonly relayUrl?: string;
  readonly cacheUrl?: string;
  readonly keys: KeyStore;
  readonly name?: string;
  /** Ids of services in the document that stay although they are at other nodes. */
  readonly services?: readonly string[];
  /** Instead: shown before anything changes what the new keys take out, it says what stays. */
  readonly choose?: Choosing;
};

/**
 * Restores the root key, checks it against the public key, and replaces all keys.
 * Throws `share_unreadable`, `share_false`, `name_taken`, and `root_replaced` when the
 * root key was replaced since.
 */
export async function restoreFromGuardians({
  shares,
  directoryUrl,
  name = "default",
  services: ticked = [],
  choose = async () => ({ services: ticked }),
  ...rest
}: Restoration): Promise<Identity> {
  const keys = reliable(rest.keys);
  const { did, rootKey, seed } = await rootOf(shares.map(parseShare));
  const client = connect({ directoryUrl, relayUrl: directoryUrl });
  if (!equalBytes(await rootKeyOf(client, did), rootKey))
    throw localError("root_replaced", "the root key was replaced after these shares were made");

  const document = await activeDocument(client, did);
  await provingAt(client);
  const made = newIdentity({ name, did, rootSeed: seed, ledger: client.known.ledger });
  const own = document.verificationMethod.filter((one) =>
    equalBytes(parseMethodKey(one) ?? new Uint8Array(0), rootKey),
  );
  const methods = [...own.map(({ id }) => ({ id, secret: seed })), ...made.methods];

  const sealing = sealingKeyOf(document)?.id;
  const agreements = made.agreements.map((one) => ({ ...one, id: sealing ?? one.id }));

  const { chooseRestored } = await import("./replacement.ts");
  // Own methods are those of the root key: what else signs goes.
  const urls = [rest.relayUrl, rest.cacheUrl];
  const lost = { ...made, methods, agreements: [] };
  const { own: services, ...kept } = await chooseRestored(client, lost, { choose, urls });

  // Who has lost the keys, or had them stolen, keeps none of them.
  const root = freshSeed();
  const identity = nextIdentity({ ...made, methods, agreements }, Date.now(), root);
  const taken = () => localError("name_taken", `an identity called ${name} already exists`);
  if ((await keys.load(name)) !== null) throw taken();

  // Remembered first: interrupted from here on, it ends as the user has chosen
  // when the identity is opened.
  client.known.memory = memoryOf(keys, name);
  await rememberHosts(client, did, services);
  await rememberChoice(client.known.memory, root, kept);
  if (!(await keys.replace(name, null, renderIdentity(identity)))) throw taken();

  const renewed = await publishKeys(client, identity, { waiting: waitingDefault });
  const restored = await changeIdentity(keys, identity, (stored) => inForce(stored, renewed));

  // What can't be reached now is asked when the identity is opened.
  await attempt(async () => {
    const { keepPushes } = await import("./push.ts");
    await keepPushes({ client, identity: restored }, []);
  });
  return withBundles(client, restored, keys);
}

/**
 * No bundle counts that a former method has signed, and others' messages would wait for a new one
 * until the identity is opened. What fails here is done then.
 */
async function withBundles(client: Client, restored: Identity, keys: KeyStore): Promise<Identity> {
  let identity = restored;
  const change = async (edit: EditIdentity) => {
    identity = await changeIdentity(keys, identity, edit);
    return identity;
  };
  await attempt(async () => {
    const { keepBundles } = await import("./own-bundles.ts");
    const keeping = {
      nowMs: await timeAt(client.relay),
      waiting: waitingDefault,
      announces: false,
    };
    await keepBundles(client, restored.did, { ...keeping, change });
  });
  return identity;
}

function parseShare(text: string): Share {
  const kept = parseKept(text, shareShape);
  if (kept?.share.length === 33) return kept;
  throw localError("share_unreadable", "this is not a share of a guardian");
}

/** Of three shares, one may be false: the two others show it. */
async function rootOf(shares: readonly Share[]): Promise<Share & { readonly seed: Uint8Array }> {
  for (const [i, a] of shares.entries())
    for (const b of shares.slice(i + 1)) {
      // The last byte numbers the shares of one splitting. One guardian
      // alone must not name the DID.
      if (a.did !== b.did || a.share.at(-1) === b.share.at(-1)) continue;
      const seed = await combine([a.share, b.share]);
      if (equalBytes(await ed25519PublicKey(seed), a.rootKey)) return { ...a, seed };
    }
  throw localError(
    "share_false",
    "these shares lead to no root key: one is false, or they don't belong together",
  );
}
