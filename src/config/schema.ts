/**
 * The settings: one strict schema in which every one has its text, its unit and its default. Options of a
 * storage plugin are the plugin's own; here only its name is read. `docs/settings.md` lists the settings
 * from this schema.
 */
import { z } from "zod";
import { isProxyNetwork, parseListenAddress, parseNetwork } from "../core/message/address.ts";
import { workBitsMax } from "../core/message/proof.ts";
import {
  cacheConstants,
  deliveryMsMax,
  directoryConstants,
  limitConstants,
  liveAckMsMin,
  relayConstants,
  serverConstants,
} from "./constants.ts";

// ------------------------------------------------------------------------------------- kinds of settings

type Range = { readonly min?: number; readonly max?: number };

const duration = (text: string, range: Range = {}) =>
  z
    .unknown()
    .transform((value, context) => {
      const ms = typeof value === "string" ? parseDurationSetting(value) : null;
      const { min = 1, max = 366 * 86_400_000 } = range;
      if (ms !== null && ms >= min && ms <= max) return ms;
      const bounds = `must be from ${renderDurationSetting(min)} to ${renderDurationSetting(max)}`;
      context.addIssue(ms === null ? 'must be a duration such as "30s" or "1h30m"' : bounds);
      return z.NEVER;
    })
    .prefault(text)
    .meta({ form: "duration" });

const size = (text: string, range: Range = {}) =>
  z
    .unknown()
    .transform((value, context) => {
      const bytes = parseSizeSetting(value);
      const { min = 1, max = Number.MAX_SAFE_INTEGER } = range;
      if (bytes !== null && bytes >= min && bytes <= max) return bytes;
      const bounds = `must be from ${renderSizeSetting(min)} to ${renderSizeSetting(max)}`;
      context.addIssue(bytes === null ? 'must be a size such as "25MiB" or a number of bytes' : bounds);
      return z.NEVER;
    })
    .prefault(text)
    .meta({ form: "size" });

const count = (value: number, range: Range = {}) =>
  z
    .int()
    .min(range.min ?? 1)
    .max(range.max ?? 1_000_000_000)
    .prefault(value);
const flag = (value: boolean) => z.boolean().prefault(value);
const name = z.string().regex(/^[a-z][a-z0-9_-]{0,31}$/, "must be a name of a-z, 0-9, _ and -");
const text = z.string().min(1).max(2_048);
const filePath = z.string().min(1).max(4_096).nullable().prefault(null);
const listOf = (entry: typeof text) => z.array(entry).max(1_000).prefault([]);
const texts = listOf(text);

/** Texts of one form, which the message names. */
const textsOf = (accepts: (entry: string) => boolean, form: string) => listOf(text.refine(accepts, `must be ${form}`));

const listenAddress = text.refine(
  (address) => parseListenAddress(address) !== null,
  'must be host:port, [v6]:port or unix:/path, such as "127.0.0.1:7400", with a port of at most 65535',
);

const endpoint = z
  .string()
  .refine(isPublicEndpoint, 'must be a URL such as "https://relay.example.org", without query, fragment and user');

/** An origin as browsers send it, or `*`. */
function isOrigin(text: string): boolean {
  return text === "*" || (URL.canParse(text) && new URL(text).origin === text);
}

/** An endpoint that others reach this node by. */
export function isPublicEndpoint(text: string): boolean {
  if (text.length > 512 || !URL.canParse(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return (protocol === "https:" || protocol === "http:") && username + password + search + hash === "";
}

// ------------------------------------------------------------------------------------------------ schema

const doc = (description: string) => ({ description });

const serverSchema = z.strictObject({
  listen: z
    .array(listenAddress)
    .min(1)
    .max(16)
    .prefault(["127.0.0.1:7400"])
    .meta(doc("Addresses to listen on: `host:port`, `[v6]:port` or `unix:/path`.")),
  admin_listen: z
    .array(listenAddress)
    .max(16)
    .prefault([])
    .meta(
      doc(
        "Addresses of a second listener for health, `/metrics` and operations. When it is set, only this listener serves `/metrics`.",
      ),
    ),
  share_port: flag(false).meta(
    doc(
      "Whether other processes may also listen on the addresses of `listen`; the system then spreads connections over them. Linux only. A Directory or a Cache then needs `postgres` stores.",
    ),
  ),
  tls_cert_file: filePath.meta(
    doc(
      "PEM file with the certificate of `listen` and its chain, for TLS without a proxy. Read again when it changes.",
    ),
  ),
  tls_key_file: filePath.meta(doc("PEM file with the key of that certificate, without a passphrase.")),
  trusted_proxies: textsOf(
    isProxyNetwork,
    'an address such as "127.0.0.1", a network such as "10.0.0.0/8", or "unix"',
  ).meta(doc("Proxies whose `X-Forwarded-For` names the client: networks (`10.0.0.0/8`), addresses or `unix`.")),
  log_level: z
    .enum(["debug", "info", "warn", "error"])
    .prefault("info")
    .meta(doc("Lowest level that is logged. `info` includes a line for every request.")),
  cors_origins: z
    .array(text.refine(isOrigin, 'must be an origin such as "https://app.example" (without a path), or "*"'))
    .max(256)
    .prefault(["*"])
    .meta(
      doc(
        'Origins whose pages may call this node from a browser; `"*"` means all. With `directory.unsigned_updates = "allow"`, only pages served by this machine may.',
      ),
    ),
  requests_max: count(1_024, { max: 65_536 }).meta(
    doc("Requests handled at once; further ones get a delayed 503. One client network gets at most half."),
  ),
  body_bytes_in_flight: size("256MiB", { min: 1 << 20 }).meta(
    doc(
      "Bytes of request bodies in memory at once. Long answers that clients have not read yet may use as many again. One client network gets at most half.",
    ),
  ),
  drain_timeout: duration("30s", { min: 0, max: 3_600_000 }).meta(
    doc("How long requests may take to finish after SIGTERM."),
  ),
});

const storeSchema = z.looseObject({
  plugin: z
    .string()
    .min(1)
    .max(1_024)
    .meta(
      doc(
        "`lmdb`, `memory`, `postgres`, `chain`, or the path of an external module (`./x.js`). Its options follow in the same table.",
      ),
    ),
});

const busSchema = z.looseObject({
  plugin: z
    .enum(["local", "nats"])
    .prefault("local")
    .meta(
      doc(
        "Delivers live messages between processes: `local` is for one process, `nats` for several. Its options follow in the same table.",
      ),
    ),
});

const limitsSchema = z.strictObject({
  body_bytes_max: size("25MiB", { min: 1_024, max: 1 << 30 }).meta(doc("Largest HTTP body.")),
  unchunked_bytes_max: size("16MiB", { max: 1 << 30 }).meta(doc("Largest payload of an envelope that is not a chunk.")),
  chunk_bytes_max: size("2MiB", { max: 1 << 30 }).meta(doc("Largest payload of a chunk.")),
  header_bytes_max: size("4KiB", { max: 1 << 20 }).meta(doc("Largest encrypted header, decoded.")),
  ttl_max: duration("48h", { min: 1_000, max: 30 * 86_400_000 }).meta(
    doc("Longest life of an envelope. An envelope without `ttl` lives for 24 hours, or for this when it is shorter."),
  ),
  clock_skew: duration("5m", { min: 1_000, max: 86_400_000 }).meta(
    doc("How far a timestamp may be from this node's clock: a proof's in either direction, an envelope's ahead of it."),
  ),
});

const directorySchema = z.strictObject({
  enabled: flag(false).meta(doc("Whether this process is a Directory.")),
  store: name.prefault("main").meta(doc("Store of replay claims and receipts.")),
  ledger: name.prefault("main").meta(doc("Store whose ledger has the DIDs.")),
  registration_proofs: z
    .array(z.enum(["v3", "v2", "v1"]))
    .min(1)
    .nullable()
    .prefault(null)
    .meta(
      doc(
        "Accepted versions of the registration proof; by default all that the ledger accepts. v1 does not sign the document; v2 does not sign the account that submits it.",
      ),
    ),
  self_certifying_only: flag(false).meta(
    doc("Whether only self-certifying DIDs are registered, whose keys can be proven. Other clients make random ones."),
  ),
  unsigned_updates: z
    .enum(["deny", "allow"])
    .prefault("deny")
    .meta(
      doc(
        "Whether primary alias, policy links and policies may change without a proof. `allow` needs loopback listeners.",
      ),
    ),
  authorization_max_ahead: duration("1h", { min: 1_000, max: 30 * 86_400_000 }).meta(
    doc("How far ahead an authorization may expire."),
  ),
  registration_rate: count(10, { max: 1_000_000 }).meta(
    doc("Registrations per second from one client network. A burst of 300 times as many is allowed first."),
  ),
  registration_work_bits: count(18, { min: 0, max: workBitsMax }).meta(
    doc(
      "Zero bits in the proof of work for a registration beyond the rate; each bit doubles the work. 0 refuses such registrations.",
    ),
  ),
  rate_limit_loopback: flag(true).meta(doc("Whether rates apply to clients on this machine too.")),
});

const recipientsSetting = z
  .string()
  .refine(
    isRecipientsSource,
    'must be "local", "ledger:<store>" or the URL of a Directory, such as "https://directory.example.org"',
  )
  .prefault("local")
  .meta(
    doc("Where to look up recipients: `local` (this process's Directory), `ledger:<store>`, or a Directory's URL."),
  );

function isRecipientsSource(text: string): boolean {
  return text === "local" || /^ledger:[a-z][a-z0-9_-]{0,31}$/.test(text) || isPublicEndpoint(text);
}

/** Whom a node serves, beside the recipient's policy. */
const admissionSettings = {
  require_sender_signature: flag(false).meta(doc("Whether envelopes without a sender signature are refused.")),
  allow_recipients: texts.meta(doc("If not empty, only these recipients are served.")),
  deny_recipients: texts.meta(doc("Recipients whose envelopes are refused.")),
  allow_senders: texts.meta(doc("If not empty, only these senders are served. They must sign.")),
  deny_senders: texts.meta(doc("Senders whose envelopes are refused.")),
};

const relaySchema = z.strictObject({
  enabled: flag(false).meta(doc("Whether this process is a Relay.")),
  store: name.prefault("main").meta(doc("Store of delivery results and replay claims.")),
  recipients: recipientsSetting,
  public_id: z
    .string()
    .min(1)
    .max(128)
    .nullable()
    .prefault(null)
    .meta(doc("Name of this Relay in `allowed_relays` of policies.")),
  public_endpoints: z
    .array(endpoint)
    .max(16)
    .prefault([])
    .meta(doc("URLs by which others reach this Relay. Live sessions need one, and the Relay never forwards to them.")),
  allow_http: flag(false).meta(doc("Whether `http:` destinations are allowed.")),
  allow_private: listOf(
    text
      .refine((entry) => parseNetwork(entry) !== null, "must be a network such as 10.0.0.0/8")
      .refine((entry) => parseNetwork(entry)?.prefixBits !== 0, "must not be every address"),
  ).meta(doc("Private networks that the Relay may connect to.")),
  ignore_proxy_variables: flag(false).meta(
    doc(
      "Whether the Relay starts although the environment sets proxy variables. The Relay never uses them; it connects to destinations directly.",
    ),
  ),
  attempts: count(3, { max: 10 }).meta(doc("Attempts for each destination.")),
  delivery_budget: duration("10s", { min: 100, max: deliveryMsMax - liveAckMsMin }).meta(
    doc("Longest time for all attempts of one envelope."),
  ),
  destination_requests_max: count(4, { max: 1_000 }).meta(doc("Concurrent requests to one destination.")),
  sessions_max: count(10_000, { max: 1_000_000 }).meta(
    doc("Live sessions, for all recipients together. One client network gets at most half."),
  ),
  client_rate: count(50, { max: 1_000_000 }).meta(
    doc("Envelopes per second from one client network. A burst of 4 times as many is allowed first."),
  ),
  recipient_rate: count(20, { max: 1_000_000 }).meta(
    doc("Envelopes per second to one recipient from one client network. A burst of 10 times as many is allowed first."),
  ),
  rate_limit_loopback: flag(true).meta(doc("Whether rates apply to clients on this machine too.")),
  ...admissionSettings,
});

const cacheSchema = z.strictObject({
  enabled: flag(false).meta(doc("Whether this process is a Cache.")),
  store: name.prefault("main").meta(doc("Store of the mailboxes and of replay claims.")),
  recipients: recipientsSetting,
  public_endpoints: z
    .array(endpoint)
    .max(16)
    .prefault([])
    .meta(doc("URLs by which others reach this Cache, exactly as recipients publish and sign them. At least one.")),
  signing_key_file: z
    .string()
    .min(1)
    .nullable()
    .prefault(null)
    .meta(doc("File with the key that signs event proofs: a 32-byte seed in hex.")),
  recipient_entries_max: count(10_000).meta(doc("Entries stored for one recipient.")),
  recipient_bytes_max: size("256MiB").meta(doc("Bytes stored for one recipient.")),
  stranger_share: count(50, { max: 100 }).meta(
    doc("Percent of a recipient's quota for all unsigned and first-time senders together."),
  ),
  network_share: count(25, { max: 100 }).meta(
    doc(
      "Percent of a recipient's quota for unsigned and first-time senders of one client network while no other network has stored anything. The next network gets the same part of the rest.",
    ),
  ),
  client_rate: count(500, { max: 1_000_000 }).meta(
    doc("Envelopes stored per second from one client network. A burst of 4 times as many is allowed first."),
  ),
  rate_limit_loopback: flag(false).meta(
    doc(
      "Whether `client_rate` applies to clients on this machine, such as a Relay beside this Cache. If not, a loopback address gets half as much again of a network's share.",
    ),
  ),
  store_entries_max: count(10_000_000).meta(doc("Entries stored for all recipients together.")),
  store_bytes_max: size("64GiB").meta(doc("Bytes stored for all recipients together.")),
  retrieve_bytes_max: size("64MiB", { min: 1_024 }).meta(
    doc("Bytes of envelopes in one retrieval without `limit` and `cursor`. The answer is streamed."),
  ),
  page_bytes_max: size("1MiB", { min: 1_024, max: 16 << 20 }).meta(
    doc("Bytes of envelopes in one page. A page contains at least one envelope, whatever its size."),
  ),
  streams_max: count(10_000, { max: 1_000_000 }).meta(
    doc("Open event streams, for all recipients together. One client network gets at most half."),
  ),
  wake_url: endpoint
    .nullable()
    .prefault(null)
    .meta(
      doc("URL that receives `{recipient_digest, count}` when a recipient without an open stream has new entries."),
    ),
  ...admissionSettings,
});

export const configSchema = z.strictObject({
  server: serverSchema.transform((server) => ({ ...server, ...serverConstants() })).prefault({}),
  stores: z.record(name, storeSchema).prefault({}),
  bus: busSchema.prefault({}),
  limits: limitsSchema.transform((limits) => ({ ...limits, ...limitConstants(limits) })).prefault({}),
  directory: directorySchema
    .transform((directory) => ({ ...directory, ...directoryConstants(directory) }))
    .prefault({}),
  relay: relaySchema.transform((relay) => ({ ...relay, ...relayConstants(relay) })).prefault({}),
  cache: cacheSchema.transform((cache) => ({ ...cache, ...cacheConstants(cache) })).prefault({}),
});

/** The sections with settings of our own; options of stores belong to their plugins. */
export const sectionNames = ["server", "bus", "limits", "directory", "relay", "cache"] as const;
export type SectionName = (typeof sectionNames)[number];

/** The settings of every section, and its constants beside them. */
export type Config = z.output<typeof configSchema>;
/** A configuration as a file would say it, before defaults. */
export type ConfigInput = z.input<typeof configSchema>;

// --------------------------------------------------------------------------------------------------------- text forms

// Durations such as `1h30m` and sizes such as `25MiB`, both ways.

const durationUnitsMs: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};
const sizeUnits: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** Milliseconds of `500ms`, `30s`, `1h30m`; `null` for anything else. */
export function parseDurationSetting(text: string): number | null {
  if (text.length > 40 || !/^(?:\d{1,9}(?:ms|[smhdw]))+$/.test(text)) return null;
  let ms = 0;
  for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g))
    ms += Number(count) * (durationUnitsMs[unit ?? ""] ?? 0);
  return ms;
}

/** Bytes of `25MiB`, `4KiB`, `512B` or of a plain number; `null` for anything else. */
function parseSizeSetting(value: unknown): number | null {
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value : null;
  const m = typeof value === "string" ? /^(\d{1,12})(B|KiB|MiB|GiB|TiB)$/.exec(value) : null;
  return m === null ? null : Number(m[1]) * (sizeUnits[m[2] ?? ""] ?? 0);
}

export const renderDurationSetting = (ms: number): string => renderIn(durationUnitsMs, ["h", "m", "s", "ms"], ms);
export const renderSizeSetting = (bytes: number): string => renderIn(sizeUnits, ["GiB", "MiB", "KiB", "B"], bytes);

/** In the largest unit that leaves no fraction; the smallest comes last and is 1. */
function renderIn(sizes: Readonly<Record<string, number>>, units: readonly string[], value: number): string {
  const unit = units.find((name) => value > 0 && value % (sizes[name] ?? 1) === 0) ?? units.at(-1) ?? "";
  return `${value / (sizes[unit] ?? 1)}${unit}`;
}
