/**
 * The configured nodes, each with a connection that is kept: when it is lost, it is opened
 * again after a growing pause. Reads go to one of them, the node in use; when none can be
 * used, `session()` throws `unavailable` with the reasons: a chain that can't be asked
 * never counts as an empty one. The last block that two agreed about is the anchor, also
 * after a restart, which every node must have. Of an only endpoint it is its last head.
 */
import { StoreError } from "../../storage/contract.ts";
import { endpointName } from "./rpc.ts";
import {
  type Anchor,
  asUnusable,
  type ChainHead,
  ChainSession,
  type Common,
  Unusable,
} from "./session.ts";

export type EndpointsEvents = {
  /** Another connection is in use. */
  readonly onSession: (session: OpenSession) => void;
  readonly onHead: (head: ChainHead, isInUse: boolean) => void;
};

export type OpenSession = ChainSession & { readonly head: ChainHead };

/** One of the configured nodes. */
export type ChainNode = {
  readonly endpoint: string;
  readonly name: string;
  session: OpenSession | null;
  /** Why there is no connection. */
  reason: Unusable | null;
  /** When its head moved last. */
  movedMs: number;
  /** When the trouble that the log reports was seen last; `null` when all is well. */
  troubledMs: number | null;
};

const firstPauseMs = 200;
/** How long the head of the node in use may stand still while another has a later one. */
const standsMsMax = 120_000;
/** An outage is over when a node was well for so long: then the log reports the next one. */
const calmMs = 60_000;

export class Connections {
  protected readonly nodes: readonly ChainNode[];
  protected current: ChainNode | null = null;
  protected anchorBlock: Anchor | null;
  private genesis: string | null;
  /** Aborted when the store closes. */
  private readonly stop = new AbortController();
  private readonly firstUse = Promise.withResolvers<void>();
  private running: Promise<unknown> = Promise.resolve();

  constructor(
    protected readonly options: Common & {
      readonly genesis: string | null;
      readonly anchor: Anchor | null;
    },
    private readonly events: EndpointsEvents,
  ) {
    this.genesis = options.genesis;
    this.anchorBlock = options.anchor;
    this.nodes = options.settings.endpoints.map((endpoint) => ({
      endpoint,
      name: endpointName(endpoint),
      session: null,
      reason: null,
      movedMs: 0,
      troubledMs: null,
    }));
  }

  start(): void {
    this.running = this.run();
  }

  /**
   * At a first start one after the other, until one has decided which chain the store
   * belongs to.
   */
  private async run(): Promise<void> {
    const kept: Promise<void>[] = [];
    const tries: Promise<void>[] = [];
    for (const node of this.nodes) {
      const tried = Promise.withResolvers<void>();
      kept.push(this.keep(node, tried.resolve));
      tries.push(tried.promise);
      if (this.genesis === null) await tried.promise;
    }
    await Promise.all(tries);
    this.firstUse.resolve();
    await Promise.all(kept);
  }

  /** Resolves when every endpoint was tried once, or one of them is in use. */
  tried(): Promise<void> {
    return this.firstUse.promise;
  }

  get closed(): boolean {
    return this.stop.signal.aborted;
  }

  /** The last finalized block that two endpoints agreed about. */
  get anchor(): Anchor | null {
    return this.anchorBlock;
  }

  /** The connection in use, or why there is none. */
  session(): OpenSession {
    if (this.closed) throw new StoreError("closed", "the store is closed");
    if (this.current?.session != null) return this.current.session;
    throw new StoreError("unavailable", this.outage());
  }

  outage(): string {
    const reasons = this.nodes.map(({ name, session, reason }) => {
      if (session === null) return `${name}: ${reason?.message ?? "no answer yet"}`;
      return `${name}: it is at block ${session.head.number}, block ${this.anchorBlock?.number} was final before`;
    });
    return `no endpoint of the chain can be used: ${reasons.join("; ")}`;
  }

  /**
   * Whether an endpoint was refused for what it is: a mistake in the configuration, not an
   * outage.
   */
  differs(): boolean {
    return this.current === null && this.nodes.some(({ reason }) => reason?.isMistake === true);
  }

  // ----------------------------------------------------------------------------------- connections

  /** Never throws: without this loop there is no connection to the node ever again. */
  private async keep(node: ChainNode, tried: () => void): Promise<void> {
    const { host, settings } = this.options;
    for (
      let pauseMs = firstPauseMs;
      !this.closed;
      pauseMs = Math.min(pauseMs * 2, settings.reconnect_max_ms)
    ) {
      const beganMs = host.elapsedMs();
      node.reason = await this.use(node, tried);
      node.session = null;
      // A node that soon ends every connection is asked as rarely as one that is gone.
      if (host.elapsedMs() - beganMs >= settings.reconnect_max_ms) pauseMs = firstPauseMs;
      if (!this.closed) this.lost(node, node.reason);
      tried();
      await this.pause(pauseMs * (0.75 + host.chance() / 2));
    }
  }

  /** Uses a connection for as long as it lasts. */
  private async use(node: ChainNode, tried: () => void): Promise<Unusable> {
    const { genesis, stop, options } = this;
    try {
      const session = (await ChainSession.open({
        ...options,
        endpoint: node.endpoint,
        genesis,
        signal: stop.signal,
        anchor: () => this.anchorBlock,
      })) as OpenSession;
      try {
        // At a first start, two were opened at once.
        this.genesis ??= session.genesis;
        if (session.genesis !== this.genesis)
          throw new Unusable("another endpoint has another chain", true);
        node.session = session;
        session.onHead = (head) => this.moved(node, head);
        this.moved(node, session.head);
        tried();
        return await session.over.promise;
      } catch (error) {
        session.end(asUnusable(error));
        throw error;
      }
    } catch (error) {
      return asUnusable(error);
    }
  }

  private lost(node: ChainNode, { message }: Unusable): void {
    this.logOnce([node], "an endpoint of the chain can't be used", {
      endpoint: node.name,
      reason: message,
    });
    if (node !== this.current) return;
    this.current = null;
    this.choose();
  }

  private moved(node: ChainNode, head: ChainHead): void {
    const nowMs = this.options.host.elapsedMs();
    node.movedMs = nowMs;
    if (nowMs - (node.troubledMs ?? nowMs) >= calmMs) node.troubledMs = null;
    if (this.nodes.length === 1) this.agreed(head);
    this.choose();
    this.events.onHead(head, node === this.current);
  }

  /**
   * Uses the first node that has the anchor, until it is lost, or stands still while
   * another one has a later head.
   */
  private choose(): void {
    const { current, options } = this;
    const standsAt =
      current?.session != null && options.host.elapsedMs() - current.movedMs >= standsMsMax
        ? current.session.head.number
        : null;
    if (current !== null && standsAt === null) return;
    const least = standsAt === null ? (this.anchorBlock?.number ?? 0n) : standsAt + 1n;
    const next = this.nodes.find(({ session }) => session !== null && session.head.number >= least);
    if (next?.session == null) return;
    this.current = next;
    this.firstUse.resolve();
    options.log("info", "connected to the chain", {
      endpoint: next.name,
      block: String(next.session.head.number),
    });
    this.events.onSession(next.session);
  }

  /** One line for all that an outage is about: reasons change while it lasts. */
  protected logOnce(
    about: readonly ChainNode[],
    message: string,
    fields: Readonly<Record<string, unknown>>,
  ): void {
    const isNew = about.some(({ troubledMs }) => troubledMs === null);
    for (const node of about) node.troubledMs = this.options.host.elapsedMs();
    if (isNew) this.options.log("warn", message, fields);
  }

  private pause(ms: number): Promise<void> {
    const { signal } = this.stop;
    return new Promise((resolve) => {
      const done = () => {
        cancel();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const cancel = this.options.host.after(ms, done);
      signal.addEventListener("abort", done);
      if (signal.aborted) done();
    });
  }

  async close(): Promise<void> {
    this.stop.abort();
    this.firstUse.resolve();
    await this.running;
  }

  protected open(): OpenSession[] {
    return this.nodes.flatMap(({ session }) => session ?? []);
  }

  /** A head that every later one must follow. */
  protected agreed({ number, hash, timeMs }: ChainHead): void {
    if (number >= (this.anchorBlock?.number ?? 0n)) this.anchorBlock = { number, hash, timeMs };
  }
}
