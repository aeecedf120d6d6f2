/**
 * The bus over nats-server (core NATS, 2.x). Opening never fails because of an unreachable
 * server: the driver connects as soon as it can, and reconnects by itself. Until then every
 * request answers "unanswered", and published messages are dropped and counted, never kept
 * in memory.
 *
 * The library never closes a connection to a server that accepts it and stays silent, so
 * the driver calls the library only for a server that has just sent its first line, and
 * lets it neither reconnect nor choose a server.
 *
 * A process has one subscription for what others send it, and one for what they announce to
 * all (`peers.ts`). Subjects are those of the bus within this process (`local.ts`): a
 * message goes to that one, and to each process that has its subject.
 */
import { readFile } from "node:fs/promises";
import { createConnection } from "node:net";
import type { ConnectionOptions, Msg, NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/fault.ts";
import { late, Waiters, withDeadline } from "../../core/std/bounded.ts";
import {
  type Bus,
  type BusEnvironment,
  type BusReceiver,
  type BusSubscription,
  busReadyMsMax,
  checkSubject,
  type SubscribeOptions,
} from "../../storage/bus.ts";
import { LocalBus } from "./local.ts";
import { helloMs, type PeerMessage, Peers } from "./peers.ts";

/** On demand: most nodes do without. */
const loadLibrary = () => import("@nats-io/transport-node");

const secret = z.string().min(1).max(1_024).nullable().default(null);
const file = z.string().min(1).max(4_096).nullable().default(null);
const server = z
  .string()
  .max(2_048)
  .refine(isServer, "must be nats://host:port or tls://host:port");

function isServer(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password, pathname, search } = new URL(text);
  const known = protocol === "nats:" || protocol === "tls:";
  return known && hostname !== "" && username + password + search === "" && pathname.length <= 1;
}

/** The options next to `plugin = "nats"`. */
export const natsOptions = z
  .strictObject({
    servers: z
      .array(server)
      .min(1)
      .max(1_000)
      .describe("Servers of one installation, or of its cluster"),
    user: secret.describe("User name"),
    password: secret.describe("Password; `password_file` names a file with it"),
    token: secret.describe("Token instead of user and password; `token_file` names a file with it"),
    credentials_file: file.describe("File with NATS credentials (`.creds`)"),
    tls_ca_file: file.describe("File with the certificates that must have issued the server's"),
    tls_cert_file: file.describe("The node's own certificate, if the server requires one"),
    tls_key_file: file.describe("Key of that certificate"),
    subject_prefix: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,64}$/, "must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
      .default("waypost")
      .describe(
        "First part of all subjects; installations that share a server need different ones",
      ),
  })
  .refine(
    ({ tls_cert_file, tls_key_file }) => (tls_cert_file === null) === (tls_key_file === null),
    {
      path: ["tls_cert_file"],
      error: "needs tls_key_file as well",
    },
  )
  .refine(({ user, password }) => (user === null) === (password === null), {
    path: ["user"],
    error: "user and password_file belong together: set both or neither",
  })
  .refine(
    ({ user, token, credentials_file }) =>
      [user, token, credentials_file].filter(Boolean).length <= 1,
    {
      path: ["user"],
      error: "one of user, token_file and credentials_file is enough: remove the others",
    },
  );

export type NatsBusOptions = z.output<typeof natsOptions>;

/** The limit until the server states its own. */
const messageBytesMaxAtFirst = 64 * 1024;
const connectMsMax = 5_000;
const againMs = 500;
const pingMs = 5_000;
/** How long a new connection waits until other processes have announced their subjects. */
const greetMs = 50;
/** What goes before a message: its subject and the time for its answer. */
const headBytesMax = 1_024;
/** Bytes that were sent and that the server has not read yet; beyond them messages are dropped. */
const unreadBytesMax = 64 * 1024 ** 2;

export async function openNatsBus(
  options: NatsBusOptions,
  environment: BusEnvironment,
): Promise<Bus> {
  const bus = new NatsBus(options, environment.log);
  await bus.start(await connectionOptions(options));
  return bus;
}

/**
 * `server` with its scheme, or as a server names others of its cluster. Every server begins
 * with a line, also with TLS. The library leaves the socket of a silent server open
 * (docs/upstream.md).
 */
async function isAwake(server: string): Promise<boolean> {
  const { hostname, port } = new URL(server.includes("://") ? server : `nats://${server}`);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const host = hostname.replace(/^\[|\]$/g, "");
  const socket = createConnection({ host, port: Number(port || defaultPort) }, () => {});
  socket.once("data", () => resolve(true));
  for (const end of ["error", "close"]) socket.once(end, () => resolve(false));
  const answer = await withDeadline(promise, connectMsMax);
  socket.on("error", () => {});
  socket.destroy();
  return answer === true;
}

const defaultPort = 4_222;

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((one) => ({ one, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one);
}

async function connectionOptions(options: NatsBusOptions): Promise<ConnectionOptions> {
  const {
    servers,
    user,
    password,
    token,
    credentials_file,
    tls_ca_file,
    tls_cert_file,
    tls_key_file,
  } = options;
  const ownTls = { caFile: tls_ca_file, certFile: tls_cert_file, keyFile: tls_key_file };
  const tls = Object.fromEntries(Object.entries(ownTls).filter(([, file]) => file !== null));
  const encrypted =
    servers.some((server) => server.startsWith("tls:")) || Object.keys(tls).length > 0;
  return {
    name: "waypost",
    timeout: connectMsMax,
    pingInterval: pingMs,
    maxPingOut: 2,
    reconnect: false,
    // Otherwise each address of a name would be another server.
    resolve: false,
    // Traces cost two stacks for each request, which no one reads.
    noAsyncTraces: true,
    // What is for this process, too, goes over the bus within it.
    noEcho: true,
    ...(user === null ? {} : { user }),
    ...(password === null ? {} : { pass: password }),
    ...(token === null ? {} : { token }),
    ...(credentials_file === null
      ? {}
      : {
          authenticator: (await loadLibrary()).credsAuthenticator(await readFile(credentials_file)),
        }),
    ...(encrypted ? { tls } : {}),
  };
}

class NatsBus implements Bus {
  readonly plugin = "nats";
  private readonly id = crypto.randomUUID();
  private readonly local: LocalBus;
  private readonly peers: Peers;
  private connection: NatsConnection | null = null;
  /** Why the bus is unreachable, as the log says. */
  private readonly reasons = new Set<string>();
  private readonly connected = { now: false, soon: new Waiters() };
  private readonly ending = new Waiters();
  private readonly heartbeat: ReturnType<typeof setInterval>;
  private dropped = 0;
  private unreadBytes = 0;
  private flushing = false;
  private closed = false;
  private reporting: ReturnType<typeof setTimeout> | null = null;

  /** Those of the cluster that a server has named. */
  private named: readonly string[] = [];

  constructor(
    private readonly options: Pick<NatsBusOptions, "servers" | "subject_prefix">,
    private readonly log: BusEnvironment["log"],
  ) {
    this.local = new LocalBus(log);
    this.peers = new Peers(this.id, {
      send: (to, message) => this.sendPeer(to, message),
      onMissed: () => this.reportMissedSoon(),
    });
    this.heartbeat = setInterval(() => this.connected.now && this.peers.sayHello(), helloMs);
  }

  get messageBytesMax(): number {
    return (
      (this.connection?.info?.max_payload ?? messageBytesMaxAtFirst + headBytesMax) - headBytesMax
    );
  }

  mayReach(subject: string): boolean {
    return this.local.mayReach(subject) || this.peers.following(subject).length > 0;
  }

  /** Waits shortly for the first connection, so that a reachable server is used from the start. */
  async start(options: ConnectionOptions): Promise<void> {
    const first = this.keepConnecting(options);
    await withDeadline(first, busReadyMsMax);
  }

  private async keepConnecting(options: ConnectionOptions): Promise<void> {
    for (; !this.closed; await Bun.sleep(againMs)) {
      try {
        const connection = await this.connectToAny(options);
        if (this.closed) return void (await connection.close());
        this.connection = connection;
        this.named = connection.info?.connect_urls ?? [];
        void this.follow(connection, options);
        await this.join(connection);
        return;
      } catch (error) {
        this.warn(errorText(error));
      }
    }
  }

  /** Once for each reason of an outage. */
  private warn(error: string): void {
    if (this.reasons.has(error)) return;
    this.reasons.add(error);
    this.log(
      "warn",
      "the bus is unreachable; signals to other processes are lost until it is back",
      { error },
    );
  }

  private async connectToAny(options: ConnectionOptions): Promise<NatsConnection> {
    let failure: unknown = new Error("no server answers");
    for (const server of shuffled([...new Set([...this.options.servers, ...this.named])])) {
      if (this.closed) break;
      if (!(await isAwake(server))) continue;
      try {
        return await (await loadLibrary()).connect({ ...options, servers: [server] });
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  private async follow(connection: NatsConnection, options: ConnectionOptions): Promise<void> {
    for await (const { type } of connection.status())
      if (type === "disconnect") this.onDisconnected();
    await connection.closed();
    if (this.closed) return;
    this.onDisconnected();
    this.connection = null;
    await Bun.sleep(againMs);
    await this.keepConnecting(options);
  }

  private onDisconnected(): void {
    if (this.connected.now) this.warn("the connection ended");
    this.connected.now = false;
  }

  private async join(connection: NatsConnection): Promise<void> {
    const subscribe = (subject: string, receive: (message: Msg) => void) =>
      connection.subscribe(subject, {
        callback: (error: Error | null, message: Msg) => {
          if (error !== null)
            this.log("error", "the bus refused a subscription", { subject, error: error.message });
          else receive(message);
        },
      });
    subscribe(this.inboxOf("all", "peer"), (message) => this.receivePeer(message));
    subscribe(this.inboxOf(this.id, "peer"), (message) => this.receivePeer(message));
    subscribe(this.inboxOf(this.id, "message"), (message) => this.receive(message));
    await connection.flush();
    this.peers.greet();
    await Bun.sleep(greetMs);
    if (this.closed || connection.isClosed()) return;
    this.connected.now = true;
    this.unreadBytes = 0;
    // A flush of a connection that ended never settles.
    this.flushing = false;
    if (this.reasons.size > 0) this.peers.announceLoss();
    this.reasons.clear();
    this.log("info", "the bus is connected");
    this.local.reportMissed();
    this.connected.soon.release();
  }

  /** Once for all processes that come back together: it makes every live session read again. */
  private reportMissedSoon(): void {
    this.reporting ??= setTimeout(() => {
      this.reporting = null;
      this.local.reportMissed();
    }, againMs);
  }

  private receivePeer(message: Msg): void {
    this.peers.receive(message.json<PeerMessage>());
  }

  /**
   * A request has the time for its answer behind the subject; the answer begins with a byte
   * that says whether there is one.
   */
  private receive(message: Msg): void {
    const end = message.data.indexOf(endOfHead);
    const [subject = "", timeoutMs] = Buffer.from(message.data.subarray(0, end))
      .toString("latin1")
      .split(" ");
    const bytes = message.data.subarray(end + 1);
    if (!message.reply) this.local.publish(subject, bytes);
    else
      void this.local.request(subject, bytes, Number(timeoutMs)).then((answer) => {
        const answered = answer === "unanswered" ? noAnswer : concatBytes(someAnswer, answer);
        if (!message.respond(answered)) this.dropped++;
      });
  }

  publish(subject: string, message: Uint8Array): void {
    checkSubject(subject);
    const peers = this.peers.following(subject);
    const connection = this.usable(message.length);
    if (connection === null && (peers.length > 0 || message.length > this.messageBytesMax))
      this.dropped++;
    if (message.length > this.messageBytesMax) return;
    this.local.publish(subject, message);
    if (connection === null || peers.length === 0) return;
    const framed = concatBytes(utf8(`${subject}\n`), message);
    for (const peer of peers) connection.publish(this.inboxOf(peer, "message"), framed);
    this.countUnread(connection, framed.length * peers.length);
  }

  private usable(bytes: number): NatsConnection | null {
    const fits = bytes <= this.messageBytesMax && this.unreadBytes + bytes <= unreadBytesMax;
    return this.connected.now && !this.closed && fits ? this.connection : null;
  }

  /** A server that reads slowly must not fill the memory here. */
  private countUnread(connection: NatsConnection, bytes: number): void {
    this.unreadBytes += bytes;
    if (this.flushing) return;
    this.flushing = true;
    const sent = this.unreadBytes;
    const countRead = (): void => {
      if (connection !== this.connection) return;
      this.flushing = false;
      this.unreadBytes = Math.max(0, this.unreadBytes - sent);
      if (this.unreadBytes > 0 && this.connected.now) this.countUnread(connection, 0);
    };
    connection.flush().then(countRead, countRead);
  }

  subscribe(
    subject: string,
    receiver: BusReceiver,
    options: SubscribeOptions = {},
  ): BusSubscription {
    const local = this.local.subscribe(subject, receiver, options);
    const announced = this.closed ? Promise.resolve() : this.peers.follow(subject);
    const unsubscribe = () => {
      local.unsubscribe();
      if (!this.local.mayReach(subject)) this.peers.unfollow(subject);
    };
    return { ready: this.ready(announced), unsubscribe };
  }

  private async ready(announced: Promise<void>): Promise<void> {
    if (!this.connected.now && !this.closed) await this.connected.soon.wait(busReadyMsMax);
    await this.ending.orEvent(announced);
  }

  async request(
    subject: string,
    message: Uint8Array,
    timeoutMs: number,
  ): Promise<Uint8Array | "unanswered"> {
    checkSubject(subject);
    if (message.length > this.messageBytesMax) return "unanswered";
    const here = this.local.request(subject, message, timeoutMs);
    const connection = this.usable(message.length);
    const peers = connection === null ? [] : this.peers.following(subject);
    if (connection === null || peers.length === 0) return here;
    const framed = concatBytes(utf8(`${subject} ${Math.max(1, timeoutMs)}\n`), message);
    return firstAnswer([
      here,
      ...peers.map((peer) => this.ask(connection, peer, { framed, timeoutMs })),
    ]);
  }

  private async ask(
    connection: NatsConnection,
    peer: string,
    { framed, timeoutMs }: { readonly framed: Uint8Array; readonly timeoutMs: number },
  ): Promise<Uint8Array | "unanswered"> {
    try {
      const options = { timeout: Math.max(1, timeoutMs) };
      const answer = await this.ending.orEvent(
        connection.request(this.inboxOf(peer, "message"), framed, options),
      );
      return answer === late || answer.data[0] === noAnswer[0]
        ? "unanswered"
        : new Uint8Array(answer.data.subarray(1));
    } catch (error) {
      // No answer in time, the connection broke, or the process has gone: the caller treats
      // them alike.
      if (isGone(error)) this.peers.forget(peer);
      return "unanswered";
    }
  }

  private sendPeer(to: string, message: PeerMessage): boolean {
    const { connection } = this;
    if (connection === null || connection.isClosed()) return false;
    connection.publish(this.inboxOf(to, "peer"), utf8(JSON.stringify(message)));
    return true;
  }

  stats() {
    const connected = this.connected.now && !this.closed;
    const { subscriptions, dropped } = this.local.stats();
    return { connected, subscriptions, dropped: this.dropped + dropped };
  }

  async close(): Promise<void> {
    this.closed = true;
    clearInterval(this.heartbeat);
    this.peers.close();
    if (this.reporting !== null) clearTimeout(this.reporting);
    this.ending.release();
    this.connected.soon.release();
    await this.local.close();
    await this.connection?.close().catch(() => {});
  }

  private inboxOf(process: string, kind: "message" | "peer"): string {
    return `${this.options.subject_prefix}.${process}.${kind}`;
  }
}

const endOfHead = 0x0a;
const noAnswer = Uint8Array.of(0);
const someAnswer = Uint8Array.of(1);

/** The first answer; "unanswered" once all have ended without one. */
function firstAnswer(
  asked: readonly Promise<Uint8Array | "unanswered">[],
): Promise<Uint8Array | "unanswered"> {
  return new Promise((resolve) => {
    for (const one of asked) void one.then((answer) => answer !== "unanswered" && resolve(answer));
    void Promise.all(asked).then(() => resolve("unanswered"));
  });
}

function isGone(error: unknown): boolean {
  const { isNoResponders } = error as { readonly isNoResponders?: () => boolean };
  return isNoResponders?.call(error) === true;
}
