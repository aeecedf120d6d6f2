/**
 * Sends the pushes that are due: at once when something was stored, and again at the start and every 30 s, so that no crash
 * and no outage loses one. Of the nodes that share a store, one pushes to a subscription in 30 s. Nothing is pushed while a
 * live session of the recipient is open, or when its mailbox is empty: it has fetched all.
 * A push holds what the device asked for, and nothing about senders and messages. Bounded: pushes at once, of strangers
 * six an hour, pauses after failures.
 * Source: D392; RFC 8030 sections 5 and 7.
 */

import { utf8 } from "../../core/codec/bytes.ts";
import type { MailboxKey } from "../../core/codec/did.ts";
import { dayMs, hourMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { isFault } from "../../core/fault.ts";
import type { Mailbox, Receipts, Replay } from "../../storage/contract.ts";
import type { Egress } from "../egress/egress.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";
import { decodeRecord, encodeRecord, scanRecords } from "../parties/records.ts";
import {
  encryptPush,
  type PushKey,
  type PushTarget,
  parseBase64url,
  pushAuthorization,
} from "./push-message.ts";

/** As it is stored, in JSON. `token`: what the device must return, `null` once it has. */
export type Subscription = {
  readonly endpoint: string;
  readonly p256dh: string;
  readonly auth: string;
  /** What the device wants to get. */
  readonly data: string;
  readonly token: string | null;
};

/** While it is there, nothing is pushed: what the push service answered, `null` when it did not. */
export type Pause = { readonly status: number | null };

/** A device subscribes again each time that its app starts. */
export const subscriptionLifeMs = 90 * dayMs;

export const subscriptionKey = (mailbox: MailboxKey, id: string): string =>
  `/push/${mailbox}/${id}`;
export const pauseKey = (mailbox: MailboxKey, id: string): string => `/push-pause/${mailbox}/${id}`;
/** One record for what known senders sent, and one for strangers, who may ring less often. */
export const dueKey = (mailbox: MailboxKey, id: string, who: "known" | "stranger"): string =>
  `${duePrefix}${mailbox}/${id}/${who}`;
const duePrefix = "/push-due/";

export function targetOf({
  endpoint,
  ...keys
}: Pick<Subscription, "endpoint" | "p256dh" | "auth">): PushTarget | null {
  const [p256dh, auth] = [parseBase64url(keys.p256dh), parseBase64url(keys.auth)];
  return p256dh?.length === 65 && auth?.length === 16 ? { endpoint, p256dh, auth } : null;
}

export type SenderParts = {
  readonly receipts: Receipts;
  readonly replay: Pick<Replay, "claim">;
  readonly mailbox: Pick<Mailbox, "summary">;
  readonly egress: Pick<Egress, "send" | "refuses" | "close">;
  readonly key: PushKey;
  /** Whom a push service may write to: `mailto:` or `https:`. */
  readonly settings: { readonly contact: () => string | null; readonly interval: number };
  /** Whether a live session of the recipient is open. */
  readonly isConnected: (mailbox: MailboxKey) => boolean;
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type Sender = {
  /** Something is due: tries at once, without waiting. */
  readonly ring: (mailbox: MailboxKey, id: string) => void;
  /** Pushes the token that the device returns. */
  readonly confirm: (
    subscription: Subscription,
    confirmation: { readonly id: string; readonly token: string },
  ) => void;
  readonly close: () => void;
};

const attemptsMax = 64;
const strangersPerHour = 6;
const timeoutMs = 10 * secondMs;
const [pauseMsMin, pauseMsMax] = [5 * minuteMs, 6 * hourMs];
/** How long a push service keeps a push for a device that is away. */
const ttlSeconds = 86_400;

type SenderNode = SenderParts & ReturnType<typeof pushMetrics>;
type Place = { readonly mailbox: MailboxKey; readonly id: string };

export function createSender(parts: SenderParts): Sender {
  const node: SenderNode = { ...parts, ...pushMetrics(parts.metrics) };
  const running = new Map<string, Promise<void>>();
  let closed = false;
  const run = (name: string, work: () => Promise<void>): Promise<void> => {
    const attempt = work()
      .catch((error: unknown) => {
        if (!closed) parts.log("warn", "a push failed and is tried again", { error });
      })
      .finally(() => running.delete(name));
    running.set(name, attempt);
    return attempt;
  };
  const ring = async ({ mailbox, id }: Place): Promise<void> => {
    const name = `${mailbox}/${id}`;
    // What finds no room is found by the next look.
    if (!closed && !running.has(name) && running.size < attemptsMax)
      await run(name, () => push(node, { mailbox, id }));
  };
  const look = async (): Promise<void> => {
    let count = 0;
    for await (const page of scanRecords(parts.receipts, duePrefix, parts.now)) {
      count += page.length;
      for (const [key] of page) {
        while (running.size >= attemptsMax / 2) await Promise.race(running.values());
        void ring(placeOf(key));
      }
      await Promise.all(running.values());
      if (closed) return;
    }
    node.due.count = count;
  };
  let timer: ReturnType<typeof setTimeout> | null = null;
  const lookAgain = async (): Promise<void> => {
    await look().catch((error: unknown) => {
      if (!closed)
        parts.log("warn", "due pushes could not be read; they are read again", { error });
    });
    if (!closed) timer = setTimeout(lookAgain, parts.settings.interval);
  };
  void lookAgain();
  return {
    ring: (mailbox, id) => void ring({ mailbox, id }),
    confirm: (subscription, confirmation) => {
      const content = encodeRecord({ waypost: confirmation });
      const work = async () =>
        void (await post(node, subscription, { content, topic: "waypost-confirm" }));
      if (!closed && running.size < attemptsMax) void run(`confirm ${confirmation.token}`, work);
    },
    close: () => {
      closed = true;
      if (timer !== null) clearTimeout(timer);
      parts.egress.close();
    },
  };
}

function placeOf(dueKey: string): Place {
  const [mailbox, id] = dueKey.slice(duePrefix.length).split("/") as [MailboxKey, string];
  return { mailbox, id };
}

type Due = { readonly key: string; readonly value: Uint8Array; readonly atMs: number };

/** One push to one subscription, if one is due and may go out now. */
async function push(node: SenderNode, { mailbox, id }: Place): Promise<void> {
  const { receipts, now, settings, isConnected } = node;
  const nowMs = now();
  const found = await receipts.scan(`${duePrefix}${mailbox}/${id}/`, {
    after: null,
    limit: 2,
    nowMs,
  });
  const due = found.map(
    ([key, value]): Due => ({ key, value, atMs: decodeRecord<{ atMs: number }>(value).atMs }),
  );
  if (due.length === 0 || isConnected(mailbox)) return;
  const value = await receipts.get(subscriptionKey(mailbox, id), nowMs);
  if (value === null || (await isEmpty(node, mailbox))) return removeDue(node, due);
  const subscription = decodeRecord<Subscription>(value);
  if (subscription.token !== null || (await receipts.get(pauseKey(mailbox, id), nowMs)) !== null)
    return;
  const isOfStrangers = due.every(({ key }) => key === dueKey(mailbox, id, "stranger"));
  const rung = `/push-strangers/${mailbox}/${id}/`;
  const page = { after: null, limit: strangersPerHour, nowMs };
  if (isOfStrangers && (await receipts.scan(rung, page)).length === strangersPerHour) return;
  if (!(await node.replay.claim(`push:${mailbox}/${id}`, nowMs + settings.interval, nowMs))) return;
  // The claim lets one at a time count.
  if (isOfStrangers)
    await receipts.put(`${rung}${crypto.randomUUID()}`, encodeRecord(null), nowMs + hourMs);
  const answer = await post(node, subscription, {
    content: utf8(subscription.data),
    topic: "waypost",
  });
  if (answer === "refused") return;
  if (answer.kind === "taken") {
    for (const { atMs } of due) node.seconds.observe([], Math.max(0, now() - atMs) / secondMs);
    await removeDue(node, due);
  } else if (answer.kind === "gone") {
    // Unless the device has replaced it since.
    await receipts.remove(subscriptionKey(mailbox, id), value);
    await removeDue(node, due);
  } else {
    const pauseMs = Math.min(Math.max(answer.retryAfterMs, pauseMsMin), pauseMsMax);
    await receipts.put(
      pauseKey(mailbox, id),
      encodeRecord({ status: answer.status } satisfies Pause),
      now() + pauseMs,
    );
  }
}

async function removeDue({ receipts }: SenderNode, due: readonly Due[]): Promise<void> {
  await Promise.all(due.map(({ key, value }) => receipts.remove(key, value)));
}

async function isEmpty(
  { mailbox: mailboxes, now }: SenderNode,
  mailbox: MailboxKey,
): Promise<boolean> {
  const page = await mailboxes.summary(mailbox, {
    after: null,
    entriesMax: 1,
    bytesMax: 0,
    nowMs: now(),
  });
  return !isFault(page) && page.entries.length === 0;
}

// ------------------------------------------------------------------------------------------------------- one request

type Answered = {
  readonly kind: "taken" | "gone" | "later" | "denied";
  readonly status: number | null;
  readonly retryAfterMs: number;
};

/** `refused`: the address is one that this node sends nothing to, or the node is closing. */
async function post(
  node: SenderNode,
  subscription: Subscription,
  { content, topic }: { readonly content: Uint8Array; readonly topic: string },
): Promise<Answered | "refused"> {
  const { endpoint } = subscription;
  const target = targetOf(subscription);
  if (target === null) return "refused";
  const claims = { endpoint, contact: node.settings.contact() ?? "", nowMs: node.now() };
  const answer = await node.egress.send({
    endpoint,
    suffix: "",
    body: await encryptPush(target, content),
    headers: {
      "content-type": "application/octet-stream",
      "content-encoding": "aes128gcm",
      authorization: await pushAuthorization(node.key, claims),
      ttl: String(ttlSeconds),
      urgency: "high",
      topic,
    },
    wantsBody: false,
    timeoutMs,
  });
  const kind = kindOf(answer.httpStatus);
  node.requests.add([kind]);
  const { httpStatus: status } = answer;
  if (kind === "denied" && !node.denied.isTold) {
    node.denied.isTold = true;
    const { host } = new URL(endpoint);
    node.log("error", "a push service does not accept this node's key or push.contact", {
      host,
      status,
    });
  }
  return { kind, status, retryAfterMs: retryAfterOf(answer.retryAfter, node.now()) };
}

function kindOf(status: number | null): Answered["kind"] {
  if (status === null) return "later";
  if (status >= 200 && status < 300) return "taken";
  if (status === 404 || status === 410) return "gone";
  return status === 401 || status === 403 ? "denied" : "later";
}

/** Seconds or a date (RFC 9110). */
function retryAfterOf(text: string | undefined, nowMs: number): number {
  if (text === undefined) return 0;
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * secondMs : Date.parse(text) - nowMs;
  return Math.max(ms || 0, 0);
}

function pushMetrics(metrics: Metrics) {
  const due = { count: 0 };
  metrics.gauge(
    { name: "push_due", help: "Pushes that were due at the last look." },
    () => due.count,
  );
  return {
    due,
    /** Whether the log has said that a push service refuses this node. */
    denied: { isTold: false },
    requests: metrics.counter({
      name: "push_requests_total",
      help: "Requests to push services, by what they said.",
      labels: ["answer"],
    }),
    seconds: metrics.histogram(
      {
        name: "push_seconds",
        help: "Time from an envelope's arrival until the push service has taken the push.",
      },
      [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600],
    ),
  };
}
