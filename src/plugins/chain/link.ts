/**
 * The way to the chain: one connection at a time, to the first endpoint that can be used, and another
 * one after a growing pause when it is lost. While there is none, `session()` throws `unavailable` with
 * the reason: a chain that can't be asked is never taken for one that holds nothing.
 */
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { nameOf } from "./rpc.ts";
import { type Head, Session, type SessionOptions, Unusable } from "./session.ts";
import type { Surface } from "./surface.ts";

export type LinkOptions = Omit<SessionOptions, "endpoint" | "genesis" | "surfaces" | "last" | "signal"> & {
  readonly endpoints: readonly string[];
  readonly genesis: string | null;
  readonly reconnectMsMax: number;
  readonly log: StoreEnvironment["log"];
};

export type LinkEvents = {
  /** A connection stands, also when an earlier one was lost. Its head was told before. */
  readonly onSession: (session: Session) => void;
  readonly onHead: (head: Head) => void;
  readonly onBest: (hash: string) => void;
};

const firstPauseMs = 200;

/** How the use of an endpoint ended; `stoodMs` is `null` when it never began. */
type Used = { readonly stoodMs: number | null; readonly reason: Unusable };

export class Link {
  private current: Session | null = null;
  private reasons: Unusable[] = [];
  private shown: Head | null = null;
  private genesisHash: string | null;
  private readonly surfaces = new Map<string, Surface>();
  /** Aborted when the store closes. */
  private readonly stop = new AbortController();
  private wake: () => void = () => {};
  private readonly firstRound = Promise.withResolvers<void>();
  private running: Promise<void> = Promise.resolve();

  constructor(
    private readonly options: LinkOptions,
    private readonly events: LinkEvents,
  ) {
    this.genesisHash = options.genesis;
  }

  start(): void {
    this.running = this.run();
  }

  /** Resolves when every endpoint was tried once, or one of them answers. */
  tried(): Promise<void> {
    return this.firstRound.promise;
  }

  get genesis(): string | null {
    return this.genesisHash;
  }

  get closed(): boolean {
    return this.stop.signal.aborted;
  }

  /** The connection, or why there is none. */
  session(): Session & { readonly head: Head } {
    if (this.closed) throw new StoreError("closed", "the store is closed");
    if (this.current?.head) return this.current as Session & { readonly head: Head };
    throw new StoreError("unavailable", this.trouble());
  }

  /** What stands against every endpoint, each kind told apart. */
  trouble(): string {
    if (this.reasons.length === 0) return "the chain has not answered yet";
    const list = this.reasons.map(({ message }) => message).join("; ");
    if (this.reasons.some(({ kind }) => kind === "differs")) return `no endpoint has the right chain: ${list}`;
    if (this.reasons.some(({ kind }) => kind === "syncing")) return `no endpoint is up to date: ${list}`;
    return `no endpoint of the chain answers: ${list}`;
  }

  /** Whether an endpoint was refused for what it is: a mistake in the configuration, not an outage. */
  differs(): boolean {
    return this.reasons.some(({ kind }) => kind === "differs");
  }

  private async run(): Promise<void> {
    const { endpoints, log, reconnectMsMax } = this.options;
    let pauseMs = firstPauseMs;
    while (!this.closed) {
      const reasons: Unusable[] = [];
      for (const endpoint of endpoints) {
        const { stoodMs, reason } = await this.use(endpoint);
        if (this.closed) return;
        reasons.push(new Unusable(reason.kind, `${nameOf(endpoint)}: ${reason.message}`));
        if (stoodMs === null) continue;
        log("warn", "the connection to the chain is over", { endpoint: nameOf(endpoint), reason: reason.message });
        this.reasons = reasons.slice(-1);
        // A node that lets everybody in and throws them out again is asked as rarely as one that is gone.
        if (stoodMs >= reconnectMsMax) pauseMs = firstPauseMs;
      }
      this.reasons = reasons;
      this.firstRound.resolve();
      log("warn", "the chain can't be reached", { reason: this.trouble(), pause_ms: pauseMs });
      await this.pause(pauseMs * (0.75 + Math.random() / 2));
      pauseMs = Math.min(pauseMs * 2, reconnectMsMax);
    }
  }

  /** Uses one endpoint for as long as it lasts. Never throws: without this loop there is no connection ever again. */
  private async use(endpoint: string): Promise<Used> {
    const { genesisHash: genesis, surfaces } = this;
    const { signal } = this.stop;
    let session: Session | null = null;
    try {
      session = await Session.open({ ...this.options, endpoint, genesis, surfaces, signal, last: () => this.shown });
      const beganMs = performance.now();
      this.begin(session, endpoint);
      const reason = await session.over.promise;
      return { stoodMs: performance.now() - beganMs, reason };
    } catch (error) {
      const reason = error instanceof Unusable ? error : new Unusable("gone", String(error));
      session?.end(reason);
      return { stoodMs: null, reason };
    } finally {
      this.current = null;
    }
  }

  private begin(session: Session, endpoint: string): void {
    this.genesisHash = session.genesis;
    session.onHead = (head) => this.show(head);
    session.onBest = (hash) => this.events.onBest(hash);
    if (session.head !== null) this.show(session.head);
    this.current = session;
    this.reasons = [];
    this.firstRound.resolve();
    this.options.log("info", "connected to the chain", {
      endpoint: nameOf(endpoint),
      block: String(session.head?.number),
    });
    this.events.onSession(session);
  }

  private show(head: Head): void {
    this.shown = head;
    this.events.onHead(head);
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async close(): Promise<void> {
    this.stop.abort();
    this.wake();
    this.firstRound.resolve();
    await this.running;
  }
}
