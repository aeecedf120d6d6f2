/**
 * Web Push: which devices of a recipient want to be woken, and that they are due. A subscription
 * counts when its device has returned the token of the first push, so no one can make this node
 * push to a stranger. A due record is written before an envelope is accepted, and removed when the
 * push service has taken the push (`push-sender.ts`).
 * Source: docs/interface.md "Push", D392, D393; RFC 8030.
 */

import { encodeBase64Url, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { MailboxKey } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { hourMs, secondMs } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { pushBodyShape, pushListShape } from "../../core/schema/messages.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import type { Answer, Call } from "../http/route.ts";
import { checkRate, createRateLimiter, type RateLimiter } from "../parties/rates.ts";
import { decodeRecord, encodeRecord, readRecord, scanRecords } from "../parties/records.ts";
import { deviceKey } from "./push-message.ts";
import {
  createSender,
  type DeviceSubscription,
  dueKey,
  type Pause,
  pauseKey,
  type Sender,
  type SenderParts,
  subscriptionKey,
  subscriptionLifeMs,
  targetOf,
} from "./push-sender.ts";

type Arrival = {
  readonly mailbox: MailboxKey;
  /** Whether the mailbox knows the sender. */
  readonly isKnown: boolean;
  readonly expiresAtMs: number;
  readonly nowMs: number;
};

export type Push = {
  /** Writes what is due, and resolves when that is safe; the pushes follow. */
  readonly stored: (arrival: Arrival) => Promise<void>;
  readonly subscribe: (owner: PushOwner, call: Call) => Promise<Answer | Fault>;
  readonly unsubscribe: (owner: PushOwner) => Promise<Answer>;
  /** Ends all subscriptions of a mailbox that its owner does not name. */
  readonly keep: (mailbox: MailboxKey, call: Call) => Promise<Answer | Fault>;
  /** For `waypost explain`. */
  readonly describe: (mailbox: MailboxKey, nowMs: number) => Promise<string[]>;
  readonly close: () => void;
};

type PushOwner = { readonly mailbox: MailboxKey; readonly id: string };

const tokenLifeMs = hourMs;
/**
 * New subscriptions of a client network: each makes this node ask a host of the client's choice.
 */
const subscriptionRate = { perSecond: 0.5, burst: 100 };
const subscriptionsMax = 10;
const dataBytesMax = 1_024;
const idForm = /^[A-Za-z0-9_-]{1,64}$/;

/** The id in the path, and what the proof of a request covers. */
export function pushSubject(call: Call): { readonly id: string; readonly subject: string } | Fault {
  const id = call.params["id"] ?? "";
  if (!idForm.test(id))
    return fault("invalid_request", "the id in the path is 1 to 64 of A-Z a-z 0-9 _ -");
  return { id, subject: `${id},${encodeHex(sha256(call.body))}` };
}

/** The same where the request is about all subscriptions: none has an empty id. */
export const pushListSubject = (call: Call): string => `,${encodeHex(sha256(call.body))}`;

type PushNode = SenderParts & {
  readonly sender: Sender;
  readonly pace: RateLimiter;
  /** Of each mailbox the last arrival whose pushes could not be written yet. */
  readonly unwritten: BoundedMap<MailboxKey, Arrival>;
};

const unwrittenMax = 10_000;
const unwrittenAgainMs = secondMs;

export function createPush(parts: SenderParts): Push {
  const sender = createSender(parts);
  // Over all hosts: strangers name hosts and ports as they like, and an office behind one
  // address has one push service.
  const node: PushNode = {
    ...parts,
    sender,
    pace: createRateLimiter(subscriptionRate),
    unwritten: new BoundedMap(unwrittenMax),
  };
  const again = setInterval(() => void writeAgain(node), unwrittenAgainMs);
  return {
    stored: (arrival) => stored(node, arrival),
    subscribe: (owner, call) => confirmOrChallenge(node, owner, call),
    unsubscribe: async (owner) => {
      await endSubscription(parts.receipts, owner);
      return { status: 200, json: { id: owner.id, state: "removed" } };
    },
    keep: (mailbox, call) => keepSubscription(parts.receipts, mailbox, call),
    describe: (mailbox, nowMs) => describe(parts, mailbox, nowMs),
    close: () => {
      clearInterval(again);
      sender.close();
    },
  };
}

async function endSubscription(receipts: Receipts, { mailbox, id }: PushOwner): Promise<void> {
  await receipts.remove(subscriptionKey(mailbox, id));
  await receipts.remove(pauseKey(mailbox, id));
}

const checkList = compileShape(pushListShape);

/** What is due for a subscription that ended goes with the next look. */
async function keepSubscription(
  receipts: Receipts,
  mailbox: MailboxKey,
  call: Call,
): Promise<Answer | Fault> {
  const members = parseJsonObject(call.body);
  const asked = isFault(members) ? members : checkList(members);
  if (isFault(asked)) return asked;
  const all = await subscriptionsOf(receipts, mailbox, call.nowMs);
  const kept = all.map(({ id }) => id).filter((id) => asked.ids.includes(id));
  for (const { id } of all)
    if (!kept.includes(id)) await endSubscription(receipts, { mailbox, id });
  return { status: 200, json: { ids: kept } };
}

/**
 * Subscriptions of all mailboxes are in the first database. While that is away, the
 * entry in another one is accepted, and its pushes are written when it is back, unless
 * this process ends before.
 */
async function stored(node: PushNode, arrival: Arrival): Promise<void> {
  try {
    await writeDue(node, arrival);
  } catch (error) {
    if (!isAway(error)) throw error;
    const { mailbox, isKnown } = arrival;
    const before = node.unwritten.get(mailbox);
    node.unwritten.set(mailbox, { ...arrival, isKnown: isKnown || before?.isKnown === true });
  }
}

const isAway = (error: unknown): boolean =>
  error instanceof StoreError && error.code === "unavailable";

async function writeAgain(node: PushNode): Promise<void> {
  for (const [mailbox, arrival] of node.unwritten) {
    try {
      await writeDue(node, { ...arrival, nowMs: node.now() });
    } catch (error) {
      if (isAway(error)) return;
      node.log("warn", "a due push could not be written", { error });
    }
    // Not one that came meanwhile.
    if (node.unwritten.get(mailbox) === arrival) node.unwritten.delete(mailbox);
  }
}

async function writeDue({ receipts, sender }: PushNode, arrival: Arrival): Promise<void> {
  const { mailbox, isKnown, expiresAtMs, nowMs } = arrival;
  const confirmed = (await subscriptionsOf(receipts, mailbox, nowMs)).filter(
    ({ subscription }) => subscription.token === null,
  );
  const who = isKnown ? "known" : "stranger";
  // Different each time: a push that is on its way removes only what it has seen.
  const due = encodeRecord({ atMs: nowMs, one: crypto.randomUUID() });
  await Promise.all(
    confirmed.map(({ id }) => receipts.put(dueKey(mailbox, id, who), due, expiresAtMs)),
  );
  for (const { id } of confirmed) sender.ring(mailbox, id);
}

type Subscribed = { readonly id: string; readonly subscription: DeviceSubscription };

async function subscriptionsOf(
  receipts: Receipts,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<Subscribed[]> {
  const prefix = subscriptionKey(mailbox, "");
  const found = await receipts.scan(prefix, { after: null, limit: subscriptionsMax, nowMs });
  return found.map(([key, value]) => ({
    id: key.slice(prefix.length),
    subscription: decodeRecord(value),
  }));
}

// ------------------------------------------------------------------------------------- subscribing

const checkBody = compileShape(pushBodyShape);

/** Confirms a subscription whose token came back, or sends the token. */
async function confirmOrChallenge(
  node: PushNode,
  { mailbox, id }: PushOwner,
  call: Call,
): Promise<Answer | Fault> {
  const { receipts, sender } = node;
  const wanted = await decodeWanted(node, call.body);
  if (isFault(wanted)) return wanted;
  const { nowMs } = call;
  const all = await subscriptionsOf(receipts, mailbox, nowMs);
  const known = all.find((one) => one.id === id)?.subscription;
  const isSame = known !== undefined && sameTarget(known, wanted);
  if (wanted.token !== null && !(isSame && (known.token ?? wanted.token) === wanted.token))
    return badInput(
      "invalid_request",
      "/token",
      "must be the one of the last push to this subscription",
    );
  const isConfirmed = isSame && (known.token === null || wanted.token !== null);
  const token = isConfirmed
    ? null
    : ((isSame ? known.token : null) ??
      encodeBase64Url(crypto.getRandomValues(new Uint8Array(16))));
  if (known === undefined && all.length >= subscriptionsMax)
    return fault("rate_limited", `${subscriptionsMax} subscriptions are there: remove one`, {
      retryAfterSeconds: 3_600,
    });
  const network = storingNetwork(call.network);
  const tooFast = token === null ? null : checkRate(node.pace, network, nowMs);
  if (tooFast !== null) return tooFast;
  const subscription = { ...wanted, token };
  const untilMs = nowMs + (token === null ? subscriptionLifeMs : tokenLifeMs);
  await receipts.put(subscriptionKey(mailbox, id), encodeRecord(subscription), untilMs);
  if (!isSame) await receipts.remove(pauseKey(mailbox, id));
  if (token === null) return { status: 200, json: { id, state: "confirmed" } };
  if (!sender.confirm(subscription, { id, token, network }))
    return fault("rate_limited", "too many subscriptions of this network wait for their token", {
      retryAfterSeconds: 10,
    });
  return { status: 202, json: { id, state: "unconfirmed" } };
}

function sameTarget(a: DeviceSubscription, b: DeviceSubscription): boolean {
  return a.endpoint === b.endpoint && a.p256dh === b.p256dh && a.auth === b.auth;
}

/**
 * With the token that the device returns, if any. Refuses with `invalid_json` or `invalid_request`.
 */
async function decodeWanted(
  { egress }: PushNode,
  body: Uint8Array,
): Promise<DeviceSubscription | Fault> {
  const members = parseJsonObject(body);
  const asked = isFault(members) ? members : checkBody(members);
  if (isFault(asked)) return asked;
  const { endpoint, keys, data = "", token = null } = asked;
  if (utf8(data).length > dataBytesMax)
    return badInput("invalid_request", "/data", `must be at most ${dataBytesMax} bytes of UTF-8`);
  if (egress.refuses(endpoint))
    return badInput(
      "invalid_request",
      "/endpoint",
      "must be an https URL, at port 443, that this node may send to",
    );
  const target = targetOf({ endpoint, ...keys });
  if (target === null || (await deviceKey(target.p256dh)) === null)
    return badInput(
      "invalid_request",
      "/keys",
      "must be a point of P-256 and 16 bytes, both in base64url",
    );
  return { endpoint, p256dh: keys.p256dh, auth: keys.auth, data, token };
}

/** Removes all that is kept for pushes of a mailbox. */
export async function forgetPushes(receipts: Receipts, mailbox: MailboxKey): Promise<void> {
  for (const kind of ["push", "push-pause", "push-due", "push-strangers"])
    for await (const page of scanRecords(receipts, `/${kind}/${mailbox}/`, () => 0))
      await Promise.all(page.map(([key]) => receipts.remove(key)));
}

// -------------------------------------------------------------------------------------- explaining

/** A sentence for each subscription: whether it would be pushed to. */
async function describe(
  { receipts }: SenderParts,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<string[]> {
  const all = await subscriptionsOf(receipts, mailbox, nowMs);
  return Promise.all(
    all.map(async ({ id, subscription: { endpoint, token } }) => {
      const pause = await readRecord<Pause>(receipts, pauseKey(mailbox, id), nowMs);
      const paused =
        pause === null ? "would be pushed to" : `paused: the push service answered ${pause.status}`;
      const state = token === null ? paused : "the device has not returned its token";
      return `${id} at ${new URL(endpoint).host}: ${state}`;
    }),
  );
}
