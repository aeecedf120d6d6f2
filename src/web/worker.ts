/**
 * The service worker: one cache for each version, filled whole or not at all, and nothing from
 * elsewhere. The server puts the SHA-256 of every file in front of it (`files`).
 */
import { clicked, pushed } from "../client/pushed.ts";

type LastingEvent = Event & { readonly waitUntil: (work: Promise<unknown>) => void };
type FetchRequest = Event & {
  readonly request: Request;
  readonly respondWith: (answer: Promise<Response>) => void;
};

/** The TypeScript of pages has no names for these. */
declare const files: Readonly<Record<string, string>>;
declare const clients: { readonly claim: () => Promise<void> };
declare const skipWaiting: () => Promise<void>;

const version = assetDigest(new TextEncoder().encode(JSON.stringify(files)).buffer);

async function assetDigest(bytes: ArrayBuffer): Promise<string> {
  return btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))));
}

async function install(): Promise<void> {
  const name = await version;
  const cache = await caches.open(name);
  try {
    await Promise.all(
      Object.entries(files).map(async ([path, expected]) => {
        const response = await fetch(path, { cache: "no-cache" });
        const bytes = await response.clone().arrayBuffer();
        if (!response.ok || (await assetDigest(bytes)) !== expected)
          throw new Error(`${path} is of another version`);
        await cache.put(path, response);
      }),
    );
  } catch (error) {
    await caches.delete(name);
    throw error;
  }
}

async function activate(): Promise<void> {
  const own = await version;
  for (const name of await caches.keys()) if (name !== own) await caches.delete(name);
  await clients.claim();
}

async function answerFromCache(path: string, { destination }: Request): Promise<Response> {
  const kept = await (await caches.open(await version)).match(path);
  if (kept !== undefined) return kept;
  // A page of the former version, which was on its way when this one took over, loads anew: all
  // of it is of this one then.
  return destination === "script"
    ? new Response("location.reload()", { headers: { "content-type": "text/javascript" } })
    : new Response("not found", { status: 404 });
}

addEventListener("install", (event) => (event as LastingEvent).waitUntil(install()));
addEventListener("activate", (event) => (event as LastingEvent).waitUntil(activate()));
addEventListener("fetch", (event) => {
  const { request, respondWith } = event as FetchRequest;
  const { origin, pathname } = new URL(request.url);
  // Requests to the nodes go their own way.
  if (origin === location.origin && request.method === "GET")
    respondWith.call(event, answerFromCache(pathname, request));
});
addEventListener("message", (event) => {
  const { data, waitUntil } = event as MessageEvent<unknown> & LastingEvent;
  // A worker that ends before it took over would wait again.
  if (data === "take over") waitUntil.call(event, skipWaiting());
});
addEventListener("push", (event) => pushed(event as Event & Parameters<typeof pushed>[0]));
addEventListener("notificationclick", (event) =>
  clicked(event as Event & Parameters<typeof clicked>[0]),
);
