/**
 * Sends the pushes that are due: at once when something was stored, and again at the start and
 * every 30 s, so that no crash and no outage loses one. Of the nodes that share a store, one
 * pushes to a subscription in 30 s. Nothing is pushed while a live session of the recipient is
 * open, or when its mailbox is empty: it has fetched all. A push holds what the device asked for,
 * and nothing about senders and messages. Bounded: pushes at once, shared by the registered names
 * of their hosts, of strangers six an hour, pauses after failures. The pushes of tokens have
 * places of their own, shared by the client networks that subscribe: subscriptions keep no
 * sleeping device from being woken.
 * Source: D392; RFC 8030 sections 5 and 7.
 */

import { utf8 } from "../../core/codec/bytes.ts";
import type { MailboxKey } from "../../core/codec/did.ts";
import { dayMs, hourMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { isFault } from "../../core/fault.ts";
import { registeredName } from "../../core/message/address.ts";
import { withDeadline } from "../../core/std/bounded.ts";
import type { Mailbox, Receipts, Replay } from "../../storage/contract.ts";
import type { Egress, EgressAnswer, EgressRequest } from "../egress/egress.ts";
import { createFairShare, type FairShare } from "../http/capacity.ts";
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
export type DeviceSubscription = {
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
}: Pick<DeviceSubscription, "endpoint" | "p256dh" | "auth">): PushTarget | null {
  const [p256dh, auth] = [parseBase64url(keys.p256dh), parseBase64url(keys.auth)];
  return p256dh?.length === 65 && auth?.length === 16 ? { endpoint, p256dh, auth } : null;
}

type PushEgress = Pick<Egress, "send" | "refuses" | "close">;

export type SenderParts = {
  readonly receipts: Receipts;
  readonly replay: Pick<Replay, "claim">;
  readonly mailbox: Pick<Mailbox, "summary">;
  readonly egress: PushEgress;
  /** For the tokens of new subscriptions. */
  readonly confirmations: PushEgress;
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
  /**
   * Pushes the token that the device returns. `false` when the network has no
   * room among those that wait.
   */
  readonly confirm: (
    subscription: DeviceSubscription,
    confirmation: { readonly id: string; readonly token: string; readonly network: string },
  ) => boolean;
  readonly close: () => void;
};

/** Pushes and tokens that wait for a place, or are under way. */
const waitingMax = 512;
/** A look asks so many at once, and waits for each no longer than for a host that answers. */
const [lookedMax, lookMsMax] = [32, secondMs];
/** Reads of the store at once, before it is known where a push goes. */
const runningMax = 2_048;
const placeMs = 100;
const placeMsMax = 20 * secondMs;
const strangersPerHour = 6;
const timeoutMs = 10 * secondMs;
const [pauseMsMin, pauseMsMax] = [5 * minuteMs, 6 * hourMs];
/** How long a push service keeps a push for a device that is away. */
const ttlSeconds = 86_400;

type SenderNode = SenderParts &
  ReturnType<typeof pushMetrics> & {
    /** By the registered name of the host. */
    readonly pushes: FairShare;
    /** By the client network that subscribes. */
    readonly tokens: FairShare;
    isClosed: boolean;
  };
type SubscriptionKey = { readonly mailbox: MailboxKey; readonly id: string };

export function createSender(parts: SenderParts): Sender {
  const node: SenderNode = {
    ...parts,
    ...pushMetrics(parts.metrics),
    pushes: createFairShare(waitingMax, { shrinks: true }),
    tokens: createFairShare(waitingMax, { shrinks: true }),
    isClosed: false,
  };
  const running = new Map<string, Promise<void>>();
  const runInBackground = (name: string, work: () => Promise<void>): Promise<void> => {
    const attempt = work()
      .catch((error: unknown) => {
        if (!node.isClosed) parts.log("warn", "a push failed and is tried again", { error });
      })
      .finally(() => running.delete(name));
    running.set(name, attempt);
    return attempt;
  };
  const ring = async ({ mailbox, id }: SubscriptionKey): Promise<void> => {
    const name = `${mailbox}/${id}`;
    // What finds no room is found by the next look.
    if (!node.isClosed && !running.has(name) && running.size < runningMax)
      await runInBackground(name, () => push(node, { mailbox, id }));
  };
  let timer: ReturnType<typeof setTimeout> | null = null;
  const lookAgain = async (): Promise<void> => {
    await sendDue(node, ring).catch((error: unknown) => {
      if (!node.isClosed)
        parts.log("warn", "due pushes could not be read; they are read again", { error });
    });
    if (!node.isClosed) timer = setTimeout(lookAgain, parts.settings.interval);
  };
  void lookAgain();
  return {
    ring: (mailbox, id) => void ring({ mailbox, id }),
    confirm: (subscription, { network, ...confirmation }) => {
      const name = `confirm ${confirmation.token}`;
      // A repeat while the token is on its way.
      if (node.isClosed || running.has(name)) return true;
      if (!node.tokens.take(network, 1)) return false;
      const content = encodeRecord({ waypost: confirmation });
      const pushed = { content, topic: "waypost-confirm", through: parts.confirmations, network };
      const confirming = async (): Promise<void> => {
        await postPush(node, subscription, pushed);
      };
      void runInBackground(name, confirming).finally(() => node.tokens.give(network, 1));
      return true;
    },
    close: () => {
      node.isClosed = true;
      if (timer !== null) clearTimeout(timer);
      parts.egress.close();
      parts.confirmations.close();
    },
  };
}

/** Rings for every record that is due, a few at once, none of them for longer than `lookMsMax`. */
async function sendDue(
  node: SenderNode,
  ring: (key: SubscriptionKey) => Promise<void>,
): Promise<void> {
  let count = 0;
  const looked = new Set<Promise<unknown>>();
  for await (const page of scanRecords(node.receipts, duePrefix, node.now)) {
    count += page.length;
    for (const [key] of page) {
      while (looked.size >= lookedMax) await Promise.race(looked);
      const ringing = ring(subscriptionKeyOf(key));
      const asked = withDeadline(ringing, lookMsMax).finally(() => looked.delete(asked));
      looked.add(asked);
    }
    await Promise.all(looked);
    if (node.isClosed) return;
  }
  node.due.count = count;
}

function subscriptionKeyOf(dueKey: string): SubscriptionKey {
  const [mailbox, id] = dueKey.slice(duePrefix.length).split("/") as [MailboxKey, string];
  return { mailbox, id };
}

type Due = { readonly key: string; readonly value: Uint8Array; readonly atMs: number };

/** One push to one subscription, if one is due and may go out now. */
async function push(node: SenderNode, { mailbox, id }: SubscriptionKey): Promise<void> {
  const { receipts, now, isConnected } = node;
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
  const subscription = decodeRecord<DeviceSubscription>(value);
  if (subscription.token !== null || (await receipts.get(pauseKey(mailbox, id), nowMs)) !== null)
    return;
  const isOfStrangers = due.every(({ key }) => key === dueKey(mailbox, id, "stranger"));
  const rung = `/push-strangers/${mailbox}/${id}/`;
  const page = { after: null, limit: strangersPerHour, nowMs };
  if (isOfStrangers && (await receipts.scan(rung, page)).length === strangersPerHour) return;
  // The next look finds what has no room now.
  const network = registeredName(new URL(subscription.endpoint).hostname);
  if (!node.pushes.take(network, 1)) return;
  const ringing = { mailbox, id, subscription, value, due, network, rung, isOfStrangers };
  await wake(node, ringing).finally(() => node.pushes.give(network, 1));
}

type Ringing = SubscriptionKey & {
  readonly subscription: DeviceSubscription;
  /** As it is kept. */
  readonly value: Uint8Array;
  readonly due: readonly Due[];
  readonly network: string;
  /** Where pushes for strangers are counted. */
  readonly rung: string;
  readonly isOfStrangers: boolean;
};

async function wake(node: SenderNode, ringing: Ringing): Promise<void> {
  const { receipts, now, settings } = node;
  const { mailbox, id, subscription, due, network } = ringing;
  const nowMs = now();
  if (!(await node.replay.claim(`push:${mailbox}/${id}`, nowMs + settings.interval, nowMs))) return;
  // The claim lets one at a time count.
  if (ringing.isOfStrangers)
    await receipts.put(`${ringing.rung}${crypto.randomUUID()}`, encodeRecord(null), nowMs + hourMs);
  const content = utf8(subscription.data);
  const pushed = { content, topic: "waypost", through: node.egress, network };
  const answer = await postPush(node, subscription, pushed);
  if (answer === "refused") return;
  if (answer.kind === "taken") {
    for (const { atMs } of due) node.seconds.observe([], Math.max(0, now() - atMs) / secondMs);
    await removeDue(node, due);
  } else if (answer.kind === "gone") {
    // Unless the device has replaced it since.
    await receipts.remove(subscriptionKey(mailbox, id), ringing.value);
    await removeDue(node, due);
  } else {
    const pauseMs = Math.min(Math.max(answer.retryAfterMs, pauseMsMin), pauseMsMax);
    const pause = encodeRecord({ status: answer.status } satisfies Pause);
    await receipts.put(pauseKey(mailbox, id), pause, now() + pauseMs);
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

// ------------------------------------------------------------------------------------- one request

type PushAnswer = {
  readonly kind: "taken" | "gone" | "later" | "denied";
  readonly status: number | null;
  readonly retryAfterMs: number;
};

type Pushed = {
  readonly content: Uint8Array;
  readonly topic: string;
  readonly through: PushEgress;
  /** Whose place it takes. */
  readonly network: string;
};

/**
 * `refused`: nothing was sent, because the address is refused, the host hangs,
 * or no place came in time.
 */
async function postPush(
  node: SenderNode,
  subscription: DeviceSubscription,
  { content, topic, through, network }: Pushed,
): Promise<PushAnswer | "refused"> {
  const { endpoint } = subscription;
  const target = targetOf(subscription);
  if (target === null) return "refused";
  const claims = { endpoint, contact: node.settings.contact() ?? "", nowMs: node.now() };
  const request = {
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
    wantsBody: () => false,
    client: network,
    timeoutMs,
  };
  const answer = await sendInPlace(node, through, request);
  if (answer.notAsked !== undefined) return "refused";
  const kind = pushOutcome(answer.httpStatus);
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

/** Tries again while this node has no place: those of hosts that hang come free within a second. */
async function sendInPlace(
  node: SenderNode,
  through: PushEgress,
  request: EgressRequest,
): Promise<EgressAnswer> {
  const untilMs = performance.now() + placeMsMax;
  let answer = await through.send(request);
  while (answer.notAsked === "node" && !node.isClosed && performance.now() < untilMs) {
    await Bun.sleep(placeMs);
    answer = await through.send(request);
  }
  return answer;
}

function pushOutcome(status: number | null): PushAnswer["kind"] {
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
