/**
 * Waking this device while no program of it runs: its browser's or distributor's subscription is given to the Caches of
 * the identity, and confirmed with the token that the first push brings. Loaded on demand.
 * Source: docs/client.md "Push", interface "Push".
 */

import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { deferred } from "../../core/std/deferred.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import type { Identity } from "../keys/keys.ts";
import { aboutShape, pushShape } from "../net/answers.ts";
import { proofHeaders, type Reader } from "../net/caches.ts";
import { ask, jsonBody, path } from "../net/http.ts";
import type { Client } from "../trust/client.ts";
import { cachesOf } from "../trust/readers.ts";

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

type Pushing = { readonly client: Client; readonly identity: Identity };

/** The key with which the first Cache that pushes is known to push services. Throws `no_push`. */
export async function pushKeyOf({ client, identity }: Pushing): Promise<string> {
  for (const { reader } of await cachesOf(client, identity)) {
    const key = await keyAt(reader);
    if (key !== null) return key;
  }
  throw localError("no_push", "no Cache of this identity pushes");
}

async function keyAt({ at }: Reader): Promise<string | null> {
  return (await ask(at, { method: "GET", path: "/node" }, aboutShape)).push_key ?? null;
}

/**
 * Resolves when the Caches with the key of the first will push there, or with `null` when none does. Throws `timed_out`
 * when no token came.
 */
export async function subscribe(
  pushing: Pushing,
  subscription: PushSubscriptionLike,
  options: PushOptions | null,
): Promise<void> {
  const { endpoint, keys } = memberOf(subscription);
  if (options === null) return unsubscribe(pushing, endpoint);
  const key = await pushKeyOf(pushing);
  const body = { endpoint, keys, data: options.data ?? notificationOf(options) };
  for (const { reader } of await cachesOf(pushing.client, pushing.identity)) {
    if ((await keyAt(reader)) !== key) continue;
    const id = idOf(endpoint);
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
async function unsubscribe({ client, identity }: Pushing, endpoint: string): Promise<void> {
  for (const { reader } of await cachesOf(client, identity)) {
    const ended = await attempt(() => request(reader, "DELETE", idOf(endpoint), null));
    // A Cache that pushes nothing has no such route.
    if (ended instanceof ClientError && ended.code !== "not_found") throw ended;
  }
}

/** The same for the same endpoint, so that a repeat replaces nothing. */
function idOf(endpoint: string): string {
  return encodeHex(sha256(utf8(endpoint))).slice(0, 32);
}

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
  return ask(
    reader.at,
    { method, path: where, headers, ...(body === null ? {} : { body }) },
    pushShape,
  );
}

/**
 * Calls back for each token that the service worker passes on; returns what ends that. It listens from the beginning: the
 * first push may be quick.
 */
function listenForTokens(id: string, onToken: (token: string) => void): () => void {
  const channel = new BroadcastChannel(pushChannel);
  channel.onmessage = ({ data }: { data: { id?: unknown; token?: unknown } }) => {
    if (data?.id === id && typeof data.token === "string") onToken(data.token);
  };
  return () => channel.close();
}
