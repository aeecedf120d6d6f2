/**
 * Constants that are not settings: no operator had a reason to change one. Nodes read them
 * with the settings of their section, from some of which they follow, so that a test can
 * give another value.
 */
import { dayMs, hourMs, minuteMs, secondMs } from "../core/codec/time.ts";

/** A delivery must end before the sender's connection, which may be silent for 30 s, is cut. */
export const deliveryMsMax = 20 * secondMs;
/** Least time that a delivery leaves to a live client. */
export const liveAckMsMin = 100;

export const serverConstants = () => ({
  /** 25 MiB, the usual largest body, arrive in it at 3.5 Mbit/s. */
  body_deadline: minuteMs,
  /** Of refusals over capacity (D125). */
  refusal_delay: 500,
  /**
   * `waypost dev` alone shows strangers which bytes were verified: a public node should not
   * repeat what clients sent.
   */
  show_signed_text: false as boolean,
  /**
   * `waypost dev` alone shows `/metrics` and `/status` with the interface although it has
   * an admin socket.
   */
  shows_status: false as boolean,
});

export const limitConstants = ({ ttl_max }: { readonly ttl_max: number }) => ({
  /** The interface names the life of an envelope that asks for none. */
  ttl_default: Math.min(dayMs, ttl_max),
});

export const directoryConstants = ({
  registration_rate: rate,
}: {
  readonly registration_rate: number;
}) => ({
  /** A person reads and signs in it. Callers with other needs name the end themselves. */
  prepared_life: 5 * minuteMs,
  /** How far ahead an authorization may expire. */
  authorization_max_ahead: hourMs,
  /**
   * An office behind one address, or a tester, may register as a whole; then the rate
   * counts (D167).
   */
  registration_burst: 300 * rate,
  /**
   * Changes of all DIDs together from one client network. They share one pool of pending
   * calls (D213).
   */
  change_rate: 10 * rate,
  change_burst: 300 * rate,
  /**
   * Bytes of registrations and changes that one client network may write in a day: they
   * stay for ever.
   */
  network_day_bytes: 128 * 1024 ** 2,
  /**
   * A proof of another home is asked for again after this, as facts about recipients are
   * (rules section 7).
   */
  home_fresh: 30 * secondMs,
  /** How long a home that failed is not asked the same. */
  home_failure: 10 * secondMs,
  /**
   * Questions to other homes that one client network causes. A Relay elsewhere has many
   * senders behind it.
   */
  home_rate: 20,
  home_burst: 1_000,
  /** The lifetime of an extrinsic. A submission in flight counts as pending regardless. */
  pending_blocks: 64,
});

type RelayRates = Readonly<Record<"client_rate" | "recipient_rate" | "delivery_budget", number>>;

export const relayConstants = ({ client_rate, recipient_rate, delivery_budget }: RelayRates) => ({
  /** Doubled for each further attempt; `attempts` and `delivery_budget` bound the whole. */
  retry_delay: 200,
  /** Both are the interface's: 5 s to connect, 10 s in all. */
  connect_timeout: 5 * secondMs,
  request_timeout: 10 * secondMs,
  /** The interface's 5 s, or what a longer budget leaves of the time of a delivery. */
  live_ack_timeout: Math.min(5 * secondMs, deliveryMsMax - delivery_budget),
  /** Concurrent requests to one destination. */
  destination_requests_max: 4,
  /** The devices of one person. */
  recipient_sessions_max: 16,
  client_burst: 4 * client_rate,
  recipient_burst: 10 * recipient_rate,
  /**
   * Results of one client network that are remembered as long as their envelopes live,
   * about a KiB each; those beyond are remembered for a short time, in which a sender tries
   * again.
   */
  results_rate: Math.ceil(client_rate / 25),
  results_burst: 400 * client_rate,
  results_life_beyond: 15 * minuteMs,
});

export const cacheConstants = ({ client_rate }: { readonly client_rate: number }) => ({
  /** Lets a Relay drain its backlog after an outage. */
  client_burst: 4 * client_rate,
  /** Of one retrieval without `limit` and `cursor`. Answers are written as clients read them. */
  retrieve_bytes_max: 64 * 1024 ** 2,
  retrieve_entries_max: 1_000,
  /** Clients ask for up to 1,000 with `limit`; `page_bytes_max` bounds the bytes. */
  page_entries_max: 100,
  /**
   * Of pushes to one subscription, and of looks for those that are due: a device that was
   * woken fetches everything.
   */
  push_interval: 30 * secondMs,
});

export const witnessConstants = () => ({
  /**
   * Entries and map of one log. A log may be valid and endless, and keys that begin alike
   * make a map 30 times as large as others do: so bytes are counted, not entries (D520).
   */
  log_bytes_max: 16 * 1024 ** 3,
});
