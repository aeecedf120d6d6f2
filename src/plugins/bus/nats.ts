/**
 * The bus over nats-server (core NATS, 2.x). Opening never fails because of an unreachable server: the driver connects as
 * soon as it can, and reconnects by itself. Until then every request answers "nobody", and published messages are dropped
 * and counted, never kept in memory.
 *
 * The library never closes a connection to a server that accepts it and stays silent, so the driver calls the library only
 * for a server that has just sent its first line, and lets it neither reconnect nor choose a server.
 */
import { readFile } from "node:fs/promises";
import { createConnection } from "node:net";
import type { ConnectionOptions, Msg, NatsConnection, Subscription as NatsSubscription } from "@nats-io/transport-node";
import { z } from "zod";
import { errorText } from "../../core/fault.ts";
import { late, Waiters, withDeadline } from "../../core/std/bounded.ts";
import {
  type Bus,
  type BusEnvironment,
  type BusReceiver,
  busReadyMsMax,
  checkSubject,
  Inbox,
  type SubscribeOptions,
  type Subscription,
} from "../../storage/bus.ts";

/** On demand: most nodes do without. */
const loadLibrary = () => import("@nats-io/transport-node");

const secret = z.string().min(1).max(1_024).nullable().default(null);
const file = z.string().min(1).max(4_096).nullable().default(null);
const server = z.string().max(2_048).refine(isServer, "must be nats://host:port or tls://host:port");

function isServer(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password, pathname, search } = new URL(text);
  const known = protocol === "nats:" || protocol === "tls:";
  return known && hostname !== "" && username + password + search === "" && pathname.length <= 1;
}

/** The options beside `plugin = "nats"`. */
export const natsOptions = z
  .strictObject({
    servers: z.array(server).min(1).max(1_000).describe("Servers of one installation, or of its cluster"),
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
      .describe("First part of all subjects; installations that share a server need different ones"),
  })
  .refine(({ tls_cert_file, tls_key_file }) => (tls_cert_file === null) === (tls_key_file === null), {
    path: ["tls_cert_file"],
    error: "needs tls_key_file as well",
  });

export type NatsBusOptions = z.output<typeof natsOptions>;

/** The limit until the server states its own. */
const messageBytesMaxAtFirst = 64 * 1024;
const connectMsMax = 5_000;
const againMs = 500;
const pingMs = 5_000;
/** Bytes that were sent and that the server has not read yet; beyond them messages are dropped. */
const unreadBytesMax = 64 * 1024 ** 2;

export async function openNatsBus(options: NatsBusOptions, environment: BusEnvironment): Promise<Bus> {
  const bus = new NatsBus(options, environment.log);
  await bus.start(await connectionOptions(options));
  return bus;
}

/** `server` with its scheme, or as a server names others of its cluster. Every server begins with a line, also with TLS. */
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
  const { servers, user, password, token, credentials_file, tls_ca_file, tls_cert_file, tls_key_file } = options;
  const ownTls = { caFile: tls_ca_file, certFile: tls_cert_file, keyFile: tls_key_file };
  const tls = Object.fromEntries(Object.entries(ownTls).filter(([, file]) => file !== null));
  const encrypted = servers.some((server) => server.startsWith("tls:")) || Object.keys(tls).length > 0;
  return {
    name: "waypost",
    timeout: connectMsMax,
    pingInterval: pingMs,
    maxPingOut: 2,
    reconnect: false,
    // Otherwise each address of a name would be another server.
    resolve: false,
    // Traces cost two stacks for each request, which nobody reads.
    noAsyncTraces: true,
    ...(user === null ? {} : { user }),
    ...(password === null ? {} : { pass: password }),
    ...(token === null ? {} : { token }),
    ...(credentials_file === null
      ? {}
      : { authenticator: (await loadLibrary()).credsAuthenticator(await readFile(credentials_file)) }),
    ...(encrypted ? { tls } : {}),
  };
}

type Registered = { readonly subject: string; readonly inbox: Inbox; remote: NatsSubscription | null };

class NatsBus implements Bus {
  readonly plugin = "nats";
  private connection: NatsConnection | null = null;
  private readonly registered = new Set<Registered>();
  /** Why the bus is unreachable, as the log says. */
  private readonly reasons = new Set<string>();
  private readonly connected = { now: false, soon: new Waiters() };
  private readonly ending = new Waiters();
  private dropped = 0;
  private unreadBytes = 0;
  private flushing = false;
  private closed = false;

  /** Those of the cluster that a server has named. */
  private named: readonly string[] = [];

  constructor(
    private readonly options: Pick<NatsBusOptions, "servers" | "subject_prefix">,
    private readonly log: BusEnvironment["log"],
  ) {}

  get messageBytesMax(): number {
    return this.connection?.info?.max_payload ?? messageBytesMaxAtFirst;
  }

  /** Only a request shows it. */
  mayReach(): boolean {
    return true;
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
        this.onConnected();
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
    this.log("warn", "the bus is unreachable; signals to other processes are lost until it is back", { error });
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
    for await (const { type } of connection.status()) if (type === "disconnect") this.onDisconnected();
    await connection.closed();
    if (this.closed) return;
    this.onDisconnected();
    this.connection = null;
    for (const one of this.registered) one.remote = null;
    await Bun.sleep(againMs);
    await this.keepConnecting(options);
  }

  private onDisconnected(): void {
    if (this.connected.now) this.warn("the connection ended");
    this.connected.now = false;
  }

  private onConnected(): void {
    this.connected.now = true;
    this.unreadBytes = 0;
    this.reasons.clear();
    this.log("info", "the bus is connected");
    for (const one of this.registered) {
      one.remote ??= this.subscribeRemote(one);
      one.inbox.reportMissed();
    }
    this.connected.soon.release();
  }

  private subscribeRemote({ subject, inbox }: Registered): NatsSubscription | null {
    const { connection } = this;
    if (connection === null || connection.isClosed()) return null;
    const callback = (error: Error | null, message: Msg): void => {
      if (error !== null) this.log("error", "the bus refused a subscription", { subject, error: error.message });
      else inbox.add({ message: new Uint8Array(message.data), answer: message.reply ? answerTo(message) : null });
    };
    return connection.subscribe(this.encode(subject), { callback });
  }

  publish(subject: string, message: Uint8Array): void {
    checkSubject(subject);
    const connection = this.usable(message.length);
    if (connection === null) {
      this.dropped++;
      return;
    }
    connection.publish(this.encode(subject), message.slice());
    this.countUnread(connection, message.length);
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
    const read = (): void => {
      this.flushing = false;
      this.unreadBytes = Math.max(0, this.unreadBytes - sent);
      if (this.unreadBytes > 0 && this.connected.now) this.countUnread(connection, 0);
    };
    connection.flush().then(read, read);
  }

  subscribe(subject: string, receiver: BusReceiver, { missed }: SubscribeOptions = {}): Subscription {
    checkSubject(subject);
    if (this.closed) return { ready: Promise.resolve(), unsubscribe: () => {} };
    const inbox = new Inbox({ subject, handler: receiver, missed, log: this.log, onDrop: () => this.dropped++ });
    const one: Registered = { subject, inbox, remote: null };
    one.remote = this.subscribeRemote(one);
    this.registered.add(one);
    const unsubscribe = () => {
      inbox.close();
      this.registered.delete(one);
      one.remote?.unsubscribe();
    };
    return { ready: this.ready(), unsubscribe };
  }

  private async ready(): Promise<void> {
    const endMs = performance.now() + busReadyMsMax;
    if (!this.connected.now) await this.connected.soon.wait(busReadyMsMax);
    const flushed = this.connection?.flush().catch(() => {});
    if (flushed !== undefined) await withDeadline(this.ending.orEvent(flushed), endMs - performance.now());
  }

  async request(subject: string, message: Uint8Array, timeoutMs: number): Promise<Uint8Array | "nobody"> {
    checkSubject(subject);
    const connection = this.usable(message.length);
    if (connection === null) return "nobody";
    try {
      const asked = connection.request(this.encode(subject), message.slice(), { timeout: Math.max(1, timeoutMs) });
      const answer = await this.ending.orEvent(asked);
      return answer === late ? "nobody" : new Uint8Array(answer.data);
    } catch {
      // No subscription, no answer in time, or the connection broke: the caller treats them alike.
      return "nobody";
    }
  }

  stats() {
    const connected = this.connected.now && !this.closed;
    return { connected, subscriptions: this.registered.size, dropped: this.dropped };
  }

  async close(): Promise<void> {
    this.closed = true;
    this.ending.release();
    for (const { inbox } of this.registered) inbox.close();
    this.registered.clear();
    this.connected.soon.release();
    await this.connection?.close().catch(() => {});
  }

  private encode(subject: string): string {
    return `${this.options.subject_prefix}.${subject.replace(/[.*>%]/g, (c) => `%${c.charCodeAt(0).toString(16)}`)}`;
  }
}

function answerTo(message: Msg): (bytes: Uint8Array | undefined) => void {
  return (bytes) => {
    if (bytes !== undefined) message.respond(bytes);
  };
}
