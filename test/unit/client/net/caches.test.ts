/**
 * Copies as a Cache lists them: what was read of one is not believed of another that comes later
 * under its id.
 */
import { expect, spyOn, test } from "bun:test";
import { createIdentity } from "../../../../src/client/keys/keys.ts";
import { removeUnread } from "../../../../src/client/mail/retrieve.ts";
import {
  type CacheClient,
  cacheClient,
  type EnvelopeCopy,
  listPending,
} from "../../../../src/client/net/caches.ts";
import { endpoint } from "../../../../src/client/net/http.ts";

const message_id = "3f7c1f0e-8d5b-4a35-9d51-0a7f6a1c2b3d";

/** A Cache with one entry, which an acknowledgement removes. */
function cacheOf(first: string) {
  const held = { text: first as string | null };
  const expires_at = new Date(Date.now() + 60_000).toISOString();
  const cache = {
    reader: { at: endpoint("http://cache.example") },
    summary: async () => ({
      count: 1,
      messages: held.text === null ? [] : [{ message_id, expires_at }],
    }),
    message: async () => ({
      state: "active",
      message: { message_id, envelope: { message_id, text: held.text } },
    }),
    ack: async () => {
      held.text = null;
      return { acked: 1, message_ids: [message_id] };
    },
  };
  return { held, cache: cache as object as CacheClient };
}

test("an envelope that comes under the id of one that was removed is another one, though it expires at the same time", async () => {
  const { held, cache } = cacheOf("first");
  const digests = new Map<string, string>();
  const listed = async (): Promise<EnvelopeCopy> => {
    const copy = (await listPending([cache], digests)).pending[0]?.parts[0]?.[0];
    if (copy === undefined) throw new Error("nothing is listed");
    return copy;
  };
  const first = await listed();
  const digest = await first.digest();
  expect(await (await listed()).digest()).toBe(digest);
  expect(await removeUnread([first], { isAccepted: true })).toEqual([]);
  held.text = "second";
  expect(await (await listed()).digest()).not.toBe(digest);
});

test("what a Cache lists under another name than a UUID, such as a digest, is passed over", async () => {
  const { cache } = cacheOf("first");
  const expires_at = new Date(Date.now() + 60_000).toISOString();
  const forged = ["ab".repeat(32), "", "3f7c1f0e"].map((id) => ({ message_id: id, expires_at }));
  const lying = {
    ...cache,
    summary: async () => ({ count: 4, messages: [...forged, { message_id, expires_at }] }),
  };
  const { pending } = await listPending([lying]);
  expect(pending.map(({ parts }) => parts[0]?.[0]?.messageId)).toEqual([message_id]);
});

test("an acknowledgement says when the user has accepted none of the senders", async () => {
  const headers: Headers[] = [];
  const answer = (_url: unknown, { headers: sent }: RequestInit = {}) => {
    headers.push(new Headers(sent as HeadersInit));
    return Promise.resolve(Response.json({ acked: 1, message_ids: [message_id] }));
  };
  using _ = spyOn(globalThis, "fetch").mockImplementation(answer as typeof fetch);
  const { did, rootSeed: seed } = createIdentity("passphrase");
  const at = endpoint("http://cache.example", 1_000);
  const signer = { keyId: `${did}#root`, seed };
  const cache = cacheClient({ did, serviceId: `${did}#cache`, at, signer });
  for (const isAccepted of [true, false]) await cache.ack([message_id], { isAccepted });
  expect(headers.map((each) => each.get("svc-accepted"))).toEqual([null, "none"]);
});

test("a Cache whose clock went wrong and is right again is read at its time, both ways", async () => {
  const clock = { aheadMs: 0 };
  const skewMs = 5 * 60_000;
  const answer = (_url: unknown, { headers }: RequestInit = {}) => {
    const nowMs = Date.now() + clock.aheadMs;
    const sent = new Headers(headers as HeadersInit).get("X-Timestamp") ?? "";
    const isNear = Math.abs(Date.parse(sent) - nowMs) < skewMs;
    const body = isNear ? { count: 0, messages: [] } : { code: "proof_expired" };
    const date = new Date(nowMs).toUTCString();
    return Promise.resolve(Response.json(body, { status: isNear ? 200 : 401, headers: { date } }));
  };
  using _ = spyOn(globalThis, "fetch").mockImplementation(answer as typeof fetch);
  const signer = { keyId: "root", seed: new Uint8Array(32) };
  const at = endpoint("http://cache.example", 1_000);
  const did = "did:svc:1111111111111111111111" as never;
  const cache = cacheClient({ did, serviceId: `${did}#cache`, at, signer });
  for (const hours of [0, 20, 0, -20, 0]) {
    clock.aheadMs = hours * 3_600_000;
    expect((await cache.messages(undefined, 10)).messages).toEqual([]);
  }
});
