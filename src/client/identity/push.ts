/**
 * Waking this device while no program of it runs: its browser's or distributor's subscription is
 * given to the Caches of the identity and to those of the device's own DID, where what another
 * device took and passed on arrives; and it is confirmed with the token that the first push
 * brings. Loaded on demand.
 * Source: docs/client.md "Push", interface "Push".
 */

import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { deferred } from "../../core/std/deferred.ts";
import { ClientError, localError, orNull } from "../base/failure.ts";
import { object } from "../base/shapes.ts";
import type { Identity } from "../keys/keys.ts";
import { pushKeyAt } from "../net/about.ts";
import { pushShape } from "../net/answers.ts";
import { fetchChecked, jsonBody, path } from "../net/http.ts";
import { proofHeaders, type Reader } from "../net/reader.ts";
import { cachesOf } from "../trust/caches.ts";
import type { Client } from "../trust/client.ts";
import { keepingKey } from "./sharing.ts";

/** A `PushSubscription` of a browser, or the same members from a UnifiedPush distributor. */
export type PushSubscriptionLike = {
  readonly endpoint: string;
  readonly keys?: { readonly p256dh: string; readonly auth: string };
  readonly toJSON?: () => unknown;
};

export type PushOptions = {
  /** Of the notification; "New message" by default. */
  readonly title?: string;
  /** What a click opens; the page's origin by default. */
  readonly navigate?: string;
  /** Instead of a notification: what every push brings, at most 1 KiB. */
  readonly data?: string;
};

/** How long to wait for the first push. */
const firstMs = minuteMs;

/** Where `pushed` leaves the token that came, for pages. */
const pushChannel = "waypost.push";

/** A mailbox: of the identity, or of the DID of a device. */
type Pushing = { readonly client: Client; readonly identity: Identity };
/** `device`: the own DID of this device; `null` without other devices. */
type Device = Pushing & { readonly device: Identity | null };

/** The key with which the first Cache that pushes is known to push services. Throws `no_push`. */
export async function pushKeyOf({ client, identity }: Pushing): Promise<string> {
  for (const { reader } of await cachesOf(client, identity)) {
    const key = await pushKeyAt(reader.at);
    if (key !== null) return key;
  }
  throw localError("no_push", "no Cache of this identity pushes");
}

/**
 * Resolves when the Caches with the key of the first will push there, or with `null` when none
 * does. Throws `timed_out` when no token came.
 */
export async function subscribeDevice(
  { device, ...own }: Device,
  subscription: PushSubscriptionLike,
  options: PushOptions | null,
): Promise<void> {
  const { endpoint, keys } = memberOf(subscription);
  const { memory } = own.client.known;
  const former = subscriptionId(endpoint);
  const id = device === null ? former : pushIdOf(device.did);
  const mailboxes = [
    { ...own, id },
    ...(device === null ? [] : [{ client: own.client, identity: device, id: former }]),
  ];
  if (options === null) {
    for (const one of mailboxes) await unsubscribe(one, one.id);
    return memory.save(ownPushKey, null);
  }
  const key = await pushKeyOf(own);
  const body = { endpoint, keys, data: options.data ?? notificationOf(options) };
  await memory.save(ownPushKey, id);
  for (const one of mailboxes) await subscribeAt(one, key, body);
  // From before there were other devices.
  if (id !== former) await unsubscribe(own, former);
}

async function subscribeAt(
  { client, identity, id }: Pushing & { readonly id: string },
  key: string,
  body: Readonly<Record<string, unknown>>,
): Promise<void> {
  for (const { reader } of await cachesOf(client, identity)) {
    if ((await pushKeyAt(reader.at)) !== key) continue;
    const arrived = deferred<string>();
    const close = listenForTokens(id, arrived.resolve);
    try {
      const { state } = await request(reader, "PUT", id, body);
      if (state !== "unconfirmed") continue;
      const token = await withDeadline(arrived.promise, firstMs);
      if (token === late)
        throw new ClientError("timed_out", "timed_out", "the first push did not come");
      await request(reader, "PUT", id, { ...body, token });
    } finally {
      close();
    }
  }
}

/** Ends the pushes at every Cache. */
async function unsubscribe({ client, identity }: Pushing, id: string): Promise<void> {
  for (const { reader } of await cachesOf(client, identity))
    await orNull(request(reader, "DELETE", id, null), ...noPushCodes);
}

/**
 * After keys were replaced: no Cache pushes for a subscription of this identity that has neither
 * the id of one of the other devices nor that of this one's own. A Cache that could not be reached
 * is asked when the identity is opened again.
 */
export async function keepPushes(own: Pushing, others: readonly Did[]): Promise<void> {
  await own.client.known.memory.save(keepingKey, "due");
  await finishKeeping(own, others);
}

/** Where this device has subscribed nothing, another one has done so under its id. */
export async function endUnasked(own: Pushing, device: Did): Promise<void> {
  if ((await own.client.known.memory.load(ownPushKey)) === null)
    await unsubscribe(own, pushIdOf(device));
}

/** What `keepPushes` could not do, as long as that is remembered. */
export async function finishKeeping(own: Pushing, others: readonly Did[]): Promise<void> {
  const { memory } = own.client.known;
  const mine = await memory.load(ownPushKey);
  const ids = [...others.map(pushIdOf), ...(mine === null ? [] : [mine])];
  const body = jsonBody({ ids: [...new Set(ids)] });
  for (const { reader } of await cachesOf(own.client, own.identity)) {
    const headers = await proofHeaders(reader, "push", `,${encodeHex(sha256(body))}`);
    const listed = { method: "PUT", path: path`/cache/push/${reader.did}`, headers, body } as const;
    await orNull(fetchChecked(reader.at, listed, object({})), ...noPushCodes);
  }
  await memory.save(keepingKey, null);
}

/** In what is remembered: the id of this device's subscription. */
const ownPushKey = "push/own";

/** Of a Cache that pushes nothing, and has no such route. */
const noPushCodes = ["not_found", "no_cache"];

/** The same for the same endpoint, so that a repeat replaces nothing. */
function subscriptionId(endpoint: string): string {
  return encodeHex(sha256(utf8(endpoint))).slice(0, 32);
}

/** Of a device among others, which know it so. */
const pushIdOf = (device: Did): string => subscriptionId(`waypost:push|${device}`);

function memberOf(
  subscription: PushSubscriptionLike,
): Required<Pick<PushSubscriptionLike, "endpoint" | "keys">> {
  const { endpoint, keys } = (subscription.toJSON?.() ?? subscription) as PushSubscriptionLike;
  if (typeof endpoint === "string" && keys !== undefined) return { endpoint, keys };
  throw localError("invalid_argument", "a subscription has an endpoint and keys");
}

/** A Declarative Web Push, which some browsers show without a service worker. */
function notificationOf({ title = "New message", navigate }: PushOptions): string {
  const page = navigate ?? (typeof location === "undefined" ? "" : `${location.origin}/`);
  return JSON.stringify({ web_push: 8030, notification: { title, navigate: page } });
}

async function request(
  reader: Reader,
  method: "PUT" | "DELETE",
  id: string,
  content: object | null,
) {
  const body = content === null ? null : jsonBody(content);
  const subject = `${id},${encodeHex(sha256(body ?? new Uint8Array(0)))}`;
  const headers = await proofHeaders(reader, "push", subject);
  const where = path`/cache/push/${reader.did}/${id}`;
  return fetchChecked(
    reader.at,
    { method, path: where, headers, ...(body === null ? {} : { body }) },
    pushShape,
  );
}

/**
 * Calls back for each token that the service worker passes on; returns what ends that. It listens
 * from the beginning: the first push may be quick.
 */
function listenForTokens(id: string, onToken: (token: string) => void): () => void {
  const channel = new BroadcastChannel(pushChannel);
  channel.onmessage = ({ data }: { data: { id?: unknown; token?: unknown } }) => {
    if (data?.id === id && typeof data.token === "string") onToken(data.token);
  };
  return () => channel.close();
}
