/**
 * The keys of the second version that people publish for a week each. A bundle counts when a
 * method of the person's document has signed it and its time is now; the newest that this
 * identity has seen counts, whatever a node shows or hides. Who has published bundles is sealed
 * to in no other way, until a later document is proven that announces none. Loaded with the first
 * recipient who announces them.
 * Source: docs/protocol.md "Sealing, second version", docs/trust.md "Key bundles".
 */
import type { Did } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { announcesBundle } from "../../core/ledger/account.ts";
import { rememberedOf } from "../../core/ledger/follow.ts";
import type { KeyState } from "../../core/ledger/key-proof.ts";
import {
  bundleDigest,
  bundleTimeProblem,
  type KeyBundle,
  readBundle,
  renderBundle,
  verifyBundle,
} from "../../core/message/bundle.ts";
import { ClientError } from "../base/failure.ts";
import { parseRecord } from "../base/shapes.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { Resolution } from "../net/answers.ts";
import { askTime } from "../net/http.ts";
import type { Client } from "./client.ts";
import { bundleAt, distrust } from "./trust.ts";

/** Of the clocks of two machines. */
const skewMs = 5 * minuteMs;

type AskedBundle = {
  readonly to: Did;
  /** What is proven of the recipient; `null` for a random DID, of which the node's word counts. */
  readonly state: KeyState | null;
  readonly answer: Resolution;
  /** What is remembered of the recipient (`renderKeptBundle`). */
  readonly kept: string | null;
};

type KeptBundle = {
  readonly bundle: KeyBundle;
  /** Of the last document that announced it. */
  readonly nonce: bigint;
};

/** First the digest by which nodes are asked for another: what sends needs no more of it. */
function renderKeptBundle({ bundle, nonce }: KeptBundle): string {
  return [bundleDigest(bundle), nonce, JSON.stringify(renderBundle(bundle))].join(" ");
}

function parseKeptBundle(text: string | null): KeptBundle | null {
  const [, nonce = "", json = ""] = /^[0-9a-f]{64} ([0-9]{1,20}) (.+)$/s.exec(text ?? "") ?? [];
  const bundle = bundleIn(parseRecord(json));
  return bundle === null ? null : { bundle, nonce: BigInt(nonce) };
}

/**
 * The key to seal to, or `null` for the first version. Throws `key_bundle_missing`, with which a
 * message waits, and `downgrade_refused`.
 */
export async function bundleKey(
  client: Client,
  asked: AskedBundle,
): Promise<Pick<KeyBundle, "keyId" | "publicKey"> | null> {
  const { to, state, answer } = asked;
  const isAnnounced = state === null ? isAnnouncedIn(answer) : announcesBundle(state.document);
  if (!isAnnounced) return withoutBundle(client, asked);
  const remembered = parseKeptBundle(asked.kept)?.bundle ?? null;
  const newest = [remembered, bundleIn(answer.key_bundle)]
    .filter((one) => one !== null)
    .sort((a, b) => b.issuedAtMs - a.issuedAtMs);
  let bundle = await firstThatCounts(client, newest, asked);
  // What was learned of the clocks may be old.
  if (bundle === null && newest.length > 0) await askTime(client.relay);
  bundle ??= await firstThatCounts(client, newest, asked);
  if (bundle !== null && bundle !== remembered) await rememberBundle(client, asked, bundle);
  if (bundle !== null) return { keyId: bundle.keyId, publicKey: bundle.publicKey };
  const why = answer.key_bundle_missing ?? "what the node shows does not hold, or has ended";
  throw new ClientError(
    "timed_out",
    "key_bundle_missing",
    `${to} announces sealing keys, and none that counts can be had now: ${why}`,
  );
}

/** Of a random DID only the node knows. */
const isAnnouncedIn = ({ key_bundle_missing: why, key_bundle_sha256: sha256 }: Resolution) =>
  why !== "not_announced" && (why !== undefined || typeof sha256 === "string");

/**
 * Whether a document without the announcement may be believed: it must come after the one that had
 * it. So a Directory that shows an older one to somebody who has forgotten its proof, or makes up
 * what nothing proves, changes nothing.
 */
async function withoutBundle(client: Client, { to, state, kept }: AskedBundle): Promise<null> {
  const before = parseKeptBundle(kept);
  if (before === null) return null;
  if (state !== null && rememberedOf(state).nonce <= before.nonce)
    throw distrust(
      "downgrade_refused",
      `${to} has published keys against recording, and what the Directory shows is not later`,
    );
  await client.known.memory.save(bundleAt(to), null);
  client.known.downgraded(to);
  return null;
}

async function firstThatCounts(
  { relay }: Client,
  bundles: readonly KeyBundle[],
  { to, state }: AskedBundle,
): Promise<KeyBundle | null> {
  const nowMs = Date.now() + relay.clock.aheadMs;
  for (const bundle of bundles) {
    if (bundle.did !== to || bundleTimeProblem(bundle, nowMs, skewMs) !== null) continue;
    if (state === null || (await verifyBundle(bundle, state.document, verifySignature)))
      return bundle;
  }
  return null;
}

/** What is not of a bundle is as if there were nothing. */
function bundleIn(value: Record<string, unknown> | null | undefined): KeyBundle | null {
  const read = value == null ? null : readBundle(value as JsonObject);
  return typeof read === "string" ? null : read;
}

async function rememberBundle(
  client: Client,
  { to, state }: AskedBundle,
  bundle: KeyBundle,
): Promise<void> {
  const nonce = state === null ? 0n : rememberedOf(state).nonce;
  await client.known.memory.save(bundleAt(to), renderKeptBundle({ bundle, nonce }));
}
