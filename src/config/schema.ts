/**
 * The settings: one strict schema in which every one has its text, its unit and its
 * default. Options of a storage plugin are the plugin's own; here only its name is read.
 * `docs/settings.md` lists the settings from this schema.
 */
import { z } from "zod";
import { isDid } from "../core/codec/did.ts";
import { dayMs, hourMs, secondMs } from "../core/codec/time.ts";
import {
  cacheConstants,
  deliveryMsMax,
  directoryConstants,
  limitConstants,
  liveAckMsMin,
  relayConstants,
  serverConstants,
  witnessConstants,
} from "./constants.ts";
import {
  adminGroups,
  count,
  duration,
  endpoints,
  filePath,
  flag,
  groupPattern,
  homeEntry,
  homeUrl,
  listenAddress,
  listOf,
  name,
  namedAddress,
  origin,
  privateNetwork,
  proxyNetwork,
  recipients,
  size,
  sizeOrNone,
  store,
  text,
  witnessAddress,
} from "./kinds.ts";

// ------------------------------------------------------------------------------------------ schema

const serverSchema = z.strictObject({
  listen: listOf(listenAddress, { min: 1, max: 16, standard: ["127.0.0.1:7400"] }).describe(
    "Addresses to listen on: `host:port`, `[v6]:port` or `unix:/path`.",
  ),
  admin_listen: listOf(listenAddress, { max: 16 }).describe(
    "Addresses of a second listener for health, `/metrics` and operations. When it is set, only this listener serves `/metrics`.",
  ),
  admin_group: z
    .string()
    .regex(groupPattern, "must be a Unix group, by name or number")
    .nullable()
    .prefault(null)
    .describe(
      "Unix group that may open the Unix sockets of `admin_listen` too: the node gives it the socket (mode 0660) and its folder (0750), which has nothing else in it.",
    ),
  admin_groups: adminGroups.describe(
    'Who else than root and the node\'s own user may do what over the Unix sockets of `admin_listen`: Unix groups by name or number, and users as `"user:alice"`, each with `members`, `invitations`, `blocks`, `notices`, `storage`, `node`, `audit`, single actions such as `members.show`, or `all`. When it is empty, and `admin_group` is not set, everyone who can open the socket may do everything.',
  ),
  tls_cert_file: filePath.describe(
    "PEM file with the certificate of `listen` and its chain, for TLS without a proxy. Read at the start.",
  ),
  tls_key_file: filePath.describe(
    "PEM file with the key of that certificate, without a passphrase.",
  ),
  recipients,
  trusted_proxies: listOf(proxyNetwork).describe(
    "Proxies whose `X-Forwarded-For` names the client: networks (`10.0.0.0/8`), addresses or `unix`.",
  ),
  log_level: z
    .enum(["debug", "info", "warn", "error"])
    .prefault("info")
    .describe(
      "Lowest level that is logged: `debug`, `info`, `warn` or `error`. `info` includes a line for every request.",
    ),
  app: z
    .string()
    .regex(
      /^([a-z0-9-]+\.)*[a-z0-9-]+(:\d{1,5})?$/,
      'must be a host such as "chat.example.org", with the port where it is unusual',
    )
    .max(255)
    .nullable()
    .prefault(null)
    .describe(
      "Host that answers with the chat app and nothing else, as browsers name it. It must lead to `listen`, like the public endpoints.",
    ),
  cors_origins: listOf(origin, { max: 256, standard: ["*"] })
    .refine(
      (origins) => origins.length < 2 || !origins.includes("*"),
      '"*" is every origin: remove it, or the others',
    )
    .describe(
      'Origins whose pages may call this node from a browser; `"*"` means all. With `directory.unsigned_updates = "allow"`, only pages served by this machine may.',
    ),
  last_seen: z
    .boolean()
    .prefault(true)
    .describe(
      "Whether the node keeps the day on which each member was seen last, for `waypost members`.",
    ),
  requests_max: count(1_024, { max: 65_536 }).describe(
    "Requests handled at once; further ones get a delayed 503. One client network gets at most half.",
  ),
  body_bytes_in_flight: size("192MiB", { min: 1 << 20 }).describe(
    "Bytes of request bodies in memory at once. Long answers that clients have not read yet may use as many again. One client network gets at most half.",
  ),
  drain_timeout: duration("30s", { min: 0, max: hourMs }).describe(
    "How long requests may take to finish after SIGTERM.",
  ),
});

const storeSchema = z.looseObject({
  plugin: z
    .string()
    .min(1)
    .max(1_024)
    .describe(
      "`lmdb`, `memory`, `postgres`, `chain`, or the path of an external module (`./x.js`). Its options follow in the same table.",
    ),
});

const tiersMax = 16;

/** Without a value, that of `[cache]` or `[relay]` counts. */
const tierSchema = z.strictObject({
  recipient_entries_max: z
    .int()
    .min(1)
    .max(1_000_000_000)
    .optional()
    .describe("Entries stored for a member of this tier."),
  recipient_bytes_max: sizeOrNone.describe("Bytes stored for a member of this tier."),
  recipient_rate: z
    .int()
    .min(1)
    .max(1_000_000)
    .optional()
    .describe(
      "Envelopes per second to a member of this tier from one client network. A burst of 10 times as many is allowed first.",
    ),
});

const busSchema = z.looseObject({
  plugin: z
    .enum(["local", "nats"])
    .prefault("local")
    .describe(
      "Delivers live messages between processes: `local` is for one process, `nats` for several. Its options follow in the same table.",
    ),
});

const limitsSchema = z.strictObject({
  body_bytes_max: size("25MiB", { min: 1_024, max: 1 << 30 }).describe("Largest HTTP body."),
  unchunked_bytes_max: size("16MiB", { max: 1 << 30 }).describe(
    "Largest payload of an envelope that is not a chunk.",
  ),
  chunk_bytes_max: size("2MiB", { max: 1 << 30 }).describe("Largest payload of a chunk."),
  header_bytes_max: size("4KiB", { max: 1 << 20 }).describe("Largest encrypted header, decoded."),
  ttl_max: duration("48h", { min: 1_000, max: 30 * dayMs }).describe(
    "Longest life of an envelope. An envelope without `ttl` lives for 24 hours, or for this when it is shorter.",
  ),
  clock_skew: duration("5m", { min: 10 * secondMs, max: hourMs }).describe(
    "How far a timestamp may be from this node's clock: a proof's in either direction, an envelope's ahead of it.",
  ),
});

/** Names under which people expect the operator (RFC 2142 has some of them). */
const reservedAliases = [
  ...["abuse", "admin", "administrator", "contact", "help", "hostmaster", "info", "moderator"],
  ...["noreply", "operator", "postmaster", "root", "security", "staff", "support", "system"],
  ...["waypost", "webmaster"],
];

const directorySchema = z.strictObject({
  enabled: flag(false).describe("Whether this process is a Directory."),
  store: store.describe("Store of replay claims and receipts."),
  ledger: store.describe("Store whose ledger has the DIDs."),
  registration: z
    .enum(["open", "invite", "closed"])
    .prefault("open")
    .describe(
      "Who registers a DID: everyone (`open`), those with an invitation (`invite`, `waypost invite`), or no one (`closed`).",
    ),
  registration_proofs: z
    .array(z.enum(["v3", "v2", "v1"]))
    .min(1)
    .nullable()
    .prefault(null)
    .describe(
      "Accepted versions of the registration proof; by default all that the ledger accepts. v1 does not sign the document; v2 does not sign the account that submits it.",
    ),
  self_certifying_only: flag(false).describe(
    "Whether only self-certifying DIDs are registered, whose keys can be proven. Other clients make random ones.",
  ),
  aliases: z
    .enum(["any", "members"])
    .prefault("any")
    .describe(
      "Who may take an alias later than with the registration: `any` DID of the ledger, or the `members` of this node.",
    ),
  reserved_aliases: listOf(text, { max: 1_000, standard: reservedAliases }).describe(
    "Aliases that only `operator.did` may take.",
  ),
  alias_interval: duration("0s", { min: 0 }).describe(
    "Time between two changes of an alias by one DID, such as `30d`; the alias of the registration is none. `0s` sets no limit.",
  ),
  log_key_file: filePath.describe(
    "File with the key that signs the log of the ledger: `waypost key new --log <name>` makes it. Next to it, in the same name with `.head`, is what was signed last; `.head.spare` is room for the next one on a full disk.",
  ),
  log_witnesses: listOf(witnessAddress, { max: 16 }).describe(
    "Witnesses that cosign the log, each as its `vkey`, a space and its URL.",
  ),
  public_endpoint: homeUrl
    .nullable()
    .prefault(null)
    .describe(
      "URL without a path by which other Directories reach this one, such as `https://directory.example.org`. Documents name it, and people are `alias@directory.example.org`. Without it, this Directory knows its own ledger only.",
    ),
  homes: listOf(homeEntry, { max: 1_000, standard: ["*"] })
    .refine(
      (hosts) => hosts.length === 0 || !hosts.every((host) => host.startsWith("!")),
      'refuses all hosts: add "*" to ask the others',
    )
    .describe(
      "Hosts of Directories that may be asked about their DIDs; `*` is all, and `!directory.example` is refused.",
    ),
  unsigned_updates: z
    .enum(["deny", "allow"])
    .prefault("deny")
    .describe(
      "Whether primary alias, policy links and policies may change without a proof. `allow` needs loopback listeners.",
    ),
  registration_rate: count(10, { max: 1_000_000 }).describe(
    "Registrations per second from one client network. A burst of 300 times as many is allowed first.",
  ),
  rate_limit_loopback: flag(true).describe("Whether rates apply to clients on this machine too."),
});

const signatureRequired = flag(false).describe(
  "Whether envelopes without a sender signature are refused.",
);

const relaySchema = z.strictObject({
  enabled: flag(false).describe("Whether this process is a Relay."),
  store: store.describe("Store of delivery results and replay claims."),
  public_id: z
    .string()
    .min(1)
    .max(128)
    .regex(/^\S*$/, "must be a name without spaces")
    .nullable()
    .prefault(null)
    .describe("Name of this Relay in `allowed_relays` of policies."),
  public_endpoints: endpoints.describe(
    "URLs by which others reach this Relay. Live sessions need one, and the Relay never forwards to them.",
  ),
  allow_http: flag(false).describe("Whether `http:` destinations are allowed."),
  allow_private: listOf(privateNetwork).describe("Private networks that the Relay may connect to."),
  attempts: count(3, { max: 10 }).describe("Attempts for each destination."),
  delivery_budget: duration("10s", { min: 100, max: deliveryMsMax - liveAckMsMin }).describe(
    "Longest time for all attempts of one envelope.",
  ),
  sessions_max: count(10_000, { max: 1_000_000 }).describe(
    "Live sessions, for all recipients together. One client network gets at most half.",
  ),
  client_rate: count(50, { max: 1_000_000 }).describe(
    "Envelopes per second from one client network; one of more than 256 KiB counts once for each 256 KiB. A burst of 4 times as many is allowed first.",
  ),
  recipient_rate: count(20, { max: 1_000_000 }).describe(
    "Envelopes per second to one recipient from one client network. A burst of 10 times as many is allowed first.",
  ),
  rate_limit_loopback: flag(true).describe("Whether rates apply to clients on this machine too."),
  require_sender_signature: signatureRequired,
});

const cacheSchema = z.strictObject({
  enabled: flag(false).describe("Whether this process is a Cache."),
  store: store.describe("Store of the mailboxes and of replay claims."),
  public_endpoints: endpoints.describe(
    "URLs by which others reach this Cache, exactly as recipients publish and sign them. At least one.",
  ),
  signing_key_file: filePath.describe(
    "File with the key that signs event proofs: a 32-byte seed in hex. A signature takes about 20 µs of a processor, one for each message that is stored and for each that a page returns.",
  ),
  recipient_entries_max: count(10_000).describe("Entries stored for one recipient."),
  recipient_bytes_max: size("256MiB").describe("Bytes stored for one recipient."),
  stranger_share: count(40, { max: 100 }).describe(
    "Percent of a recipient's quota for unsigned and first-time senders. The rest is for known people.",
  ),
  client_rate: count(500, { max: 1_000_000 }).describe(
    "Envelopes stored per second from one client network; one of more than 256 KiB counts once for each 256 KiB. A burst of 4 times as many is allowed first.",
  ),
  rate_limit_loopback: flag(false).describe(
    "Whether `client_rate` applies to clients on this machine, such as a Relay next to this Cache.",
  ),
  store_entries_max: count(10_000_000).describe("Entries stored for all recipients together."),
  store_bytes_max: size("64GiB").describe("Bytes stored for all recipients together."),
  page_bytes_max: size("1MiB", { min: 1_024, max: 16 << 20 }).describe(
    "Bytes of envelopes in one page. A page contains at least one envelope, whatever its size.",
  ),
  require_sender_signature: signatureRequired,
  recipients: z
    .enum(["own", "any"])
    .nullable()
    .prefault(null)
    .describe(
      "Recipients that this Cache, and a Relay in this process, serve: `own`, of the own Directory alone, or `any`, of other homes too. By default `any` where the Directory's `registration` is `open`, else `own`. The Relay always takes what own senders sign.",
    ),
});

const contact = z
  .string()
  .max(512)
  .refine(
    (text) =>
      /^mailto:[^@\s]+@[^@\s]+$/.test(text) || (text.startsWith("https://") && URL.canParse(text)),
    'must be "mailto:" and an address, or an https URL',
  )
  .meta({ pattern: "^(mailto:|https://).+$" });

const pushSchema = z.strictObject({
  enabled: flag(false).describe(
    "Whether the Cache wakes sleeping devices by Web Push. Its key is made next to `cache.signing_key_file`, in the same name with `.push`; all nodes of an installation need the same file.",
  ),
  contact: contact
    .nullable()
    .prefault(null)
    .describe(
      "Whom operators of push services may write to: `mailto:` and an address, or an https URL.",
    ),
});

const operatorSchema = z.strictObject({
  did: z
    .string()
    .refine(isDid, "must be a DID, such as that of `waypost did create`")
    .nullable()
    .prefault(null)
    .describe(
      "Identity of who runs this node, of its own Directory: it signs notices, and reports are sealed to it.",
    ),
  contact: contact
    .nullable()
    .prefault(null)
    .describe("Where members reach the operator: `mailto:` and an address, or an https URL."),
  rules: contact
    .refine((text) => text.startsWith("https://"), "must be an https URL")
    .nullable()
    .prefault(null)
    .describe("https URL of the rules of this node."),
  welcome: z
    .string()
    .min(1)
    .max(1_000)
    .nullable()
    .prefault(null)
    .describe("Text that the app shows to who registers here, such as the rules in short."),
});

const witnessSchema = z.strictObject({
  key_file: filePath.describe(
    "File with the key of this witness: `waypost key new --witness <name>` makes it. Without one, this process is not a witness.",
  ),
  store: store.describe("Store of what it has cosigned, and of the entries of the logs."),
  logs: listOf(namedAddress("log"), { max: 256 }).describe(
    "Logs that it cosigns, each as its `vkey`, a space and its URL, such as `https://directory.example/log`.",
  ),
});

export const configSchema = z.strictObject({
  server: serverSchema.transform((server) => ({ ...server, ...serverConstants() })).prefault({}),
  stores: z.record(name, storeSchema).prefault({}),
  bus: busSchema.prefault({}),
  tiers: z
    .record(name, tierSchema)
    .refine((tiers) => Object.keys(tiers).length <= tiersMax, `at most ${tiersMax} tiers`)
    .refine((tiers) => !("default" in tiers), "default is the tier of everybody else")
    .prefault({}),
  limits: limitsSchema
    .transform((limits) => ({ ...limits, ...limitConstants(limits) }))
    .prefault({}),
  directory: directorySchema
    .transform((directory) => ({ ...directory, ...directoryConstants(directory) }))
    .prefault({}),
  relay: relaySchema.transform((relay) => ({ ...relay, ...relayConstants(relay) })).prefault({}),
  cache: cacheSchema.transform((cache) => ({ ...cache, ...cacheConstants(cache) })).prefault({}),
  push: pushSchema.prefault({}),
  operator: operatorSchema.prefault({}),
  witness: witnessSchema
    .transform((witness) => ({ ...witness, ...witnessConstants() }))
    .prefault({}),
});

/** The sections with settings of our own; options of stores belong to their plugins. */
export const sectionNames = [
  "server",
  "bus",
  "limits",
  "directory",
  "relay",
  "cache",
  "push",
  "operator",
  "witness",
] as const;

/** The settings of every section, with its constants. */
export type Config = z.output<typeof configSchema>;
/** A configuration as a file would say it, before defaults. */
export type ConfigInput = z.input<typeof configSchema>;
