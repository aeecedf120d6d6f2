/**
 * How an identity is opened: the options, the nodes, and the keys, which are
 * made when there are none.
 * Source: docs/client.md "Opening".
 */

import { encodeHex } from "../../core/codec/bytes.ts";
import { deriveDid, isSelfCertifying } from "../../core/ledger/names.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { checkGiven, localError } from "../base/failure.ts";
import {
  abortSignal,
  anything,
  callable,
  custom,
  fromZero,
  isRecord,
  oneOf,
  type Shape,
  text,
  truth,
} from "../base/shapes.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import type { KeyStore } from "../keys/key-stores.ts";
import {
  createIdentity,
  freshSeed,
  type Identity,
  newIdentity,
  renderIdentity,
} from "../keys/keys.ts";
import { loadIdentity } from "../keys/stored.ts";
import type { Listener } from "../mail/message.ts";
import { provingAt, settleRegistration, type Waiting } from "../net/directory.ts";
import type { StoreDriver } from "../store/driver.ts";
import type { Client } from "../trust/client.ts";
import { distrust, type TrustDemand } from "../trust/trust.ts";

export type WaypostOptions = {
  /** Address of all three nodes, or of each. */
  readonly url?: string;
  readonly directoryUrl?: string;
  readonly relayUrl?: string;
  readonly cacheUrl?: string;
  readonly keys: KeyStore;
  /**
   * Keeps messages, people and what is to be sent: `memoryStore()`,
   * `indexedDbStore()` or `fileStore()`.
   */
  readonly store?: StoreDriver;
  /**
   * With a store, messages are acknowledged when they are saved; `by-hand`: when
   * the program calls `ack`.
   */
  readonly acknowledge?: "saved" | "by-hand";
  /** Name of the identity in the key store; `default` by default. */
  readonly name?: string;
  /** A public name to register with a new identity. */
  readonly alias?: string;
  /** The link or code of an invitation, where the Directory registers who is invited. */
  readonly invitation?: string;
  /** Names this device's live session; random by default. */
  readonly device?: string;
  /**
   * Asks recipients for receipts, and sends them to known senders who ask; needs
   * a store. Off by default.
   */
  readonly receipts?: boolean;
  /**
   * Accepts everyone whose signed message is saved, as if the user had: for bots and shops. Needs a
   * store; without one, whom the program acknowledges it has accepted. Off by default. Where it is
   * given, even as `false`, the mailbox knows people by acknowledgements, and gives no passes.
   */
  readonly acceptRequests?: boolean;
  /**
   * Makes a random DID, whose keys nothing proves, where the Directory names no ledger that could.
   */
  readonly allowRandom?: boolean;
  /**
   * Sends only to recipients whose keys are `proven`, which a random DID's never are, or `logged`,
   * and makes no random DID.
   */
  readonly trust?: TrustDemand;
  /**
   * Witnesses that must have seen the log, as text of c2sp.org/tlog-policy:
   * then keys can be `logged`.
   */
  readonly policy?: string;
  /**
   * Publishes key bundles, by which others seal in the second version. By default where the
   * document names no key agreement that the SDK has not made, since another program on the same
   * DID could not open what comes; `false`: only goes on with it.
   */
  readonly announce?: boolean;
  /**
   * When to replace the key that others seal to, by its age: a week by default, `false` for never.
   */
  readonly rotateMs?: number | false;
  /** How long an answer may take, and how long `open` goes on trying; 20 s by default. */
  readonly timeoutMs?: number;
  /**
   * How often the Caches are asked while no live session says that they have
   * something; 30 s by default.
   */
  readonly pollMs?: number;
  /** How often `open` tries again after a temporary failure; 3 by default. */
  readonly retries?: number;
  readonly waiting?: Waiting;
  /** Receives every event from the beginning, also those of `open`; `on` adds further listeners. */
  readonly onEvent?: Listener;
  /** Ends the opening: `aborted` is thrown. */
  readonly signal?: AbortSignal;
  /** The clock of key rotation, for tests. */
  readonly nowMs?: () => number;
};

type Urls = { readonly directoryUrl: string; readonly relayUrl: string; readonly cacheUrl: string };

export function nodeUrls({
  url,
  directoryUrl = url,
  relayUrl = url,
  cacheUrl = url,
}: WaypostOptions): Urls {
  if (directoryUrl === undefined || relayUrl === undefined || cacheUrl === undefined)
    throw localError("invalid_url", "give url, or directoryUrl, relayUrl and cacheUrl");
  return {
    directoryUrl,
    relayUrl: withoutTrailingSlashes(relayUrl),
    cacheUrl: withoutTrailingSlashes(cacheUrl),
  };
}

/** A new identity, of the form that the Directory's ledger has rules for. */
async function identityFor(
  client: Client,
  name: string,
  nowMs: number = Date.now(),
): Promise<Identity> {
  const { genesisHash, selfCertifying } = await provingAt(client);
  if (genesisHash === null) return createIdentity(name, nowMs);
  const ledger = encodeHex(genesisHash);
  if (!selfCertifying) return { ...createIdentity(name, nowMs), ledger };
  const rootSeed = freshSeed();
  return newIdentity(
    { name, did: deriveDid(genesisHash, await ed25519PublicKey(rootSeed)), rootSeed, ledger },
    nowMs,
  );
}

/** Saved before it is registered: keys of an existing DID must not be lost. */
export async function makeIdentity(
  client: Client,
  { keys, trust, allowRandom = false, nowMs = Date.now }: WaypostOptions,
  name: string,
): Promise<Identity> {
  const identity = await identityFor(client, name, nowMs());
  if (!isSelfCertifying(identity.did) && (trust !== undefined || !allowRandom))
    throw distrust(
      "proof_missing",
      "the Directory names no ledger on which the keys of a new identity could be proven: nothing would show what it says of them; `allowRandom` makes one without proof",
    );
  if (await keys.replace(name, null, renderIdentity(identity))) return identity;
  // Another tab or process was first.
  return (await loadIdentity(keys, name)) ?? identity;
}

/** Timers of the runtimes go as far. */
const periodMsMax = 2 ** 31 - 1;
const period = custom(
  (value) => typeof value === "number" && value >= 1 && value <= periodMsMax,
  `a number of milliseconds, from 1 to ${periodMsMax}`,
);
const rotationPeriod = custom(
  (value) => value === false || (typeof value === "number" && value >= 0),
  "a number of milliseconds, or false",
);
/** In the address of a live session, and a line of its proof. */
const deviceName = custom(
  (value) => typeof value === "string" && /^[^\p{Cc}]{1,128}$/u.test(value),
  "1 to 128 characters without control characters",
);
const storeDriver = custom(
  (value) => isRecord(value) && typeof value["apply"] === "function",
  "a store, such as memoryStore()",
);

export const optionShapes: Readonly<Record<keyof WaypostOptions, Shape<unknown>>> = {
  url: text,
  directoryUrl: text,
  relayUrl: text,
  cacheUrl: text,
  keys: anything,
  store: storeDriver,
  acknowledge: oneOf("saved", "by-hand"),
  name: text,
  alias: text,
  invitation: text,
  device: deviceName,
  receipts: truth,
  acceptRequests: truth,
  allowRandom: truth,
  trust: oneOf("proven", "logged"),
  policy: text,
  announce: truth,
  rotateMs: rotationPeriod,
  timeoutMs: period,
  pollMs: period,
  retries: fromZero,
  waiting: anything,
  onEvent: callable,
  signal: abortSignal,
  nowMs: callable,
};

/** Throws `invalid_argument` for an unknown option or value, `no_store` where one needs a store. */
export function checkOptions(options: WaypostOptions): void {
  checkGiven(options, optionShapes);
  const { store, receipts, acknowledge, acceptRequests } = options;
  if (receipts === true && store === undefined)
    throw localError("no_store", "receipts need a local store: give memoryStore(), for example");
  if (acceptRequests === true && store === undefined)
    throw localError("no_store", "who is accepted stands in a local store: give memoryStore()");
  if (acknowledge === "saved" && store === undefined)
    throw localError("no_store", "messages are saved in a local store: give memoryStore()");
}

type Settling = Pick<WaypostOptions, "alias" | "announce" | "invitation" | "waiting"> & {
  readonly urls: Urls;
};

/**
 * Registers what the Directory does not know, and waits for what is pending. Returns
 * whether it is new there.
 */
export async function settleIdentity(
  client: Client,
  identity: Identity,
  options: Settling,
): Promise<boolean> {
  const { alias = null, announce = true, invitation = null, waiting, urls } = options;
  const readStatus = () => client.directory.registrationStatus(identity.did);
  const status = await readStatus();
  if (status.registration_status === "confirmed") return false;

  let registered = { did: identity.did as string, tx_id: status.tx_id ?? "" };
  // Once in the life of an identity, and loaded then.
  const { announcesAt, checkHomes, firstDocument, homeAt, register } = await import(
    "./registration.ts"
  );
  if (status.registration_status === "missing") {
    await checkHomes(client, urls);
    const announces = announce && (await announcesAt(client, identity.did, urls.cacheUrl));
    const homes = { ...urls, home: await homeAt(client), announces };
    const document = await firstDocument(identity, homes);
    try {
      registered = await register(client, identity, { document, alias, invitation });
    } catch (error) {
      // Another tab or process may have registered the same identity a moment before.
      if ((await readStatus()).registration_status === "missing") throw error;
    }
  }

  await settleRegistration(client, registered, waiting);
  return true;
}
