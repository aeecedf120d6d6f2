/**
 * Shares of a mailbox: what unsigned and first-time senders together, and one client network alone, may
 * take of a recipient's quota. Refusals are counted, and logged with the recipient's digest and the
 * client's network, so that an operator sees who fills whose mailbox.
 * Source: D156.
 */
import type { Config } from "../../config/schema.ts";
import { utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { sha256 } from "../../core/codec/hash.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { isLoopbackAddress } from "../../core/message/address.ts";
import { BoundedMap } from "../../core/std/bounded-map.ts";
import type { MailboxShare } from "../../storage/contract.ts";
import { type Log, maskAddress } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";

/** Who hands an envelope in: the address, and the network that it is counted under. */
export type Origin = { readonly client: string; readonly network: string };

/** Entries of unsigned and first-time senders. */
export const strangerLabel = "new";
const networkPrefix = "net:";

/** The label of a client's network; `null` for clients of this machine where they are not limited. */
export function networkLabel({ client, network }: Origin, settings: Config["cache"]): string | null {
  if (!settings.rate_limit_loopback && isLoopbackAddress(client)) return null;
  return `${networkPrefix}${sha256(utf8(`waypost network ${network}`))
    .toHex()
    .slice(0, 32)}`;
}

/** However small a quota is, a share holds this much: shares protect large mailboxes, not small ones. */
const shareEntriesMin = 100;
const shareBytesMin = 1024 ** 2;

export function sharesOf(labels: readonly string[], settings: Config["cache"]): MailboxShare[] {
  const { recipient_entries_max: entries, recipient_bytes_max: bytes } = settings;
  const share = (label: string, percent: number): MailboxShare => ({
    label,
    entriesMax: Math.max(shareEntriesMin, Math.floor((entries * percent) / 100)),
    bytesMax: Math.max(shareBytesMin, Math.floor((bytes * percent) / 100)),
  });
  return labels.flatMap((label) => {
    if (label === strangerLabel) return [share(label, settings.stranger_share)];
    return label.startsWith(networkPrefix) ? [share(label, settings.network_share)] : [];
  });
}

type Scope = "strangers" | "network";

export type ShareReports = { readonly refuse: (label: string, recipient: Did, origin: Origin) => Fault };

const warnEveryMs = minuteMs;
const warnedMax = 1_000;
const reportedMax = 100;

export function createShareReports(log: Log, metrics: Metrics, now: () => number): ShareReports {
  const refusals = metrics.counter({
    name: "cache_share_refusals_total",
    help: "Stores refused because a share of the recipient's mailbox is used up.",
    labels: ["scope"],
  });
  const warned = new BoundedMap<string, number>(warnedMax);
  const latest = new BoundedMap<string, { labels: readonly string[]; count: number }>(reportedMax);
  metrics.gauge(
    {
      name: "cache_share_refusals_latest",
      help: `Such refusals by recipient (digest) and client network, the latest ${reportedMax} pairs.`,
      labels: ["scope", "recipient", "network"],
    },
    () => [...latest].map(([, { labels, count }]) => [labels, count] as const),
  );
  return {
    refuse: (label, recipient, { client }) => {
      const scope: Scope = label === strangerLabel ? "strangers" : "network";
      const digest = sha256(utf8(recipient)).toHex().slice(0, 16);
      const network = maskAddress(client);
      const key = `${scope} ${digest} ${network}`;
      refusals.add([scope]);
      latest.set(key, { labels: [scope, digest, network], count: (latest.get(key)?.count ?? 0) + 1 });
      if (now() - (warned.get(key) ?? Number.NEGATIVE_INFINITY) >= warnEveryMs) {
        warned.set(key, now());
        log("warn", "a share of a mailbox is used up", { scope, recipient_digest: digest, network });
      }
      return fault("mailbox_full", details[scope]);
    },
  };
}

const details: Record<Scope, string> = {
  strangers: "unsigned and first-time senders have used up their share of this mailbox",
  network: "this client network has used up its share of this mailbox",
};
