/**
 * Constants that are not settings: each was a setting that nobody had a reason to change. Nodes read them beside the
 * settings of their section, so that a test can still give another value. `config.ts` warns about a file that names
 * one.
 */
import { dayMs, minuteMs, secondMs } from "../core/codec/time.ts";

type Values = Readonly<Record<string, unknown>>;

type Value = number | boolean;
type Constant<Section = never, V extends Value = Value> = {
  readonly form: "duration" | "count" | "flag";
  /** What it is, or how it follows from the settings of the same section. */
  readonly of: (section: Section) => V;
};

type Of<Section, V> = (section: Section) => V;
const duration = <S = Values>(of: Of<S, number>): Constant<S, number> => ({ form: "duration", of });
const count = <S = Values>(of: Of<S, number>): Constant<S, number> => ({ form: "count", of });
const flag = <S = Values>(of: Of<S, boolean>): Constant<S, boolean> => ({ form: "flag", of });

/**
 * A delivery must end before the sender's connection, which may be silent for 30 s, is cut. Before it begins,
 * sessions that are joining may hold it up for three times 3 s.
 */
export const deliveryMsMax = 20 * secondMs;
/** Least time that a delivery leaves to a live client. */
export const liveAckMsMin = 100;

export const constants = {
  server: {
    // 25 MiB, the usual largest body, arrive in it at 3.5 Mbit/s.
    body_deadline: duration(() => minuteMs),
    // `waypost dev` alone shows strangers which bytes were verified: a public node should not repeat what clients sent.
    show_signed_text: flag(() => false),
    // `waypost dev` alone shows `/metrics` and `/status` beside the interface although it has an admin socket.
    shows_status: flag(() => false),
  },
  limits: {
    // The interface names the life of an envelope that asks for none.
    ttl_default: duration(({ ttl_max }: { readonly ttl_max: number }) => Math.min(dayMs, ttl_max)),
  },
  directory: {
    // A person reads and signs in it. Callers with other needs name the end themselves.
    prepared_life: duration(() => 5 * minuteMs),
    // An office behind one address, or a tester, may register as a whole; then the rate counts (D167).
    registration_burst: count(
      ({ registration_rate }: { readonly registration_rate: number }) => 300 * registration_rate,
    ),
    // Changes of all DIDs together from one client network. They share one pool of pending calls (D213).
    change_rate: count(({ registration_rate }: { readonly registration_rate: number }) => 10 * registration_rate),
    change_burst: count(({ registration_rate }: { readonly registration_rate: number }) => 300 * registration_rate),
    // As long as an extrinsic lives on a chain. What is under way is pending in any case.
    pending_blocks: count(() => 64),
  },
  relay: {
    // Doubled for each further attempt; `attempts` and `delivery_budget` bound the whole.
    retry_delay: duration(() => 200),
    // Both are the interface's: 5 s to connect, 10 s in all.
    connect_timeout: duration(() => 5 * secondMs),
    request_timeout: duration(() => 10 * secondMs),
    // The interface's 5 s, or what a longer budget leaves of the time of a delivery.
    live_ack_timeout: duration(({ delivery_budget }: { readonly delivery_budget: number }) =>
      Math.min(5 * secondMs, deliveryMsMax - delivery_budget),
    ),
    // The devices of one person.
    recipient_sessions_max: count(() => 16),
    client_burst: count(({ client_rate }: { readonly client_rate: number }) => 4 * client_rate),
    recipient_burst: count(({ recipient_rate }: { readonly recipient_rate: number }) => 10 * recipient_rate),
    // Results of one client network that are remembered as long as their envelopes live, about a KiB each; those
    // beyond are remembered for a short time, in which a sender tries again.
    results_rate: count(({ client_rate }: { readonly client_rate: number }) => Math.ceil(client_rate / 25)),
    results_burst: count(({ client_rate }: { readonly client_rate: number }) => 400 * client_rate),
    results_life_beyond: duration(() => 15 * minuteMs),
  },
  cache: {
    // A Relay that comes back sends what it kept.
    client_burst: count(({ client_rate }: { readonly client_rate: number }) => 4 * client_rate),
    // Answers are written as clients read them, so `retrieve_bytes_max` is what bounds them.
    retrieve_entries_max: count(() => 1_000),
    // Clients ask for up to 1,000 with `limit`; `page_bytes_max` bounds the bytes.
    page_entries_max: count(() => 100),
    // The devices of one person.
    recipient_streams_max: count(() => 8),
    // Proxies cut connections after 30 to 60 silent seconds.
    stream_heartbeat: duration(() => 15 * secondMs),
    // Then the client reconnects with a new proof, where it left off.
    stream_life: duration(() => 15 * minuteMs),
    // Push services count calls; a device that was woken fetches everything.
    wake_interval: duration(() => minuteMs),
  },
} as const;

type Constants<Section> = Readonly<Record<string, Constant<Section>>>;

/** The settings of a section with its constants beside them. */
export function withConstants<Section extends object, Own extends Constants<Section>>(
  section: Section,
  own: Own,
): Section & { [Name in keyof Own]: ReturnType<Own[Name]["of"]> } {
  const values = Object.entries(own).map(([name, { of }]) => [name, of(section)]);
  return { ...section, ...(Object.fromEntries(values) as { [Name in keyof Own]: ReturnType<Own[Name]["of"]> }) };
}
