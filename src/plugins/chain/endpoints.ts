/**
 * The configured nodes: one connection at a time to one of them. When it is lost, the next node is tried; when none can
 * be used, after a growing pause. Meanwhile `session()` throws `unavailable` with the reason: a chain that can't be asked
 * never counts as an empty one. Which nodes are trusted: the anchor is the last finalized block that a node showed, also
 * after a restart, and every node must have it; and with two endpoints or more, a call ends only by a block that a second
 * one has finalized too, with the same state (`confirm`). Source: docs/chain.md "A Directory on a chain", D76.
 */
import { errorText } from "../../core/fault.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { blockTimeMsDefault } from "./layouts.ts";
import { isLight, nameOf } from "./rpc.ts";
import { type Anchor, type ChainHead, Session, type SessionOptions, StateGone, Unusable } from "./session.ts";

type EndpointsOptions = Omit<SessionOptions, "endpoint" | "genesis" | "anchor" | "signal" | "passive"> & {
  readonly genesis: string | null;
  readonly anchor: Anchor | null;
  readonly log: StoreEnvironment["log"];
};

export type EndpointsEvents = {
  /** A connection is open, the first one or a later one. Its head was reported before. */
  readonly onSession: (session: Session) => void;
  readonly onHead: (head: ChainHead) => void;
};

export type OpenSession = Session & { readonly head: ChainHead };

const firstPauseMs = 200;
/**
 * How many block times the anchor wins against a node with another block at its number (`forked`) or one that is only
 * behind; and more for each block in between. A node that is behind usually catches up; one on another branch never does.
 */
const disputeBlocks = { forked: 32, behind: 600 } as const;
const distanceBlocks = 2;
/** How long calls wait for the confirmation of a second endpoint when none can be asked: once for all of them. */
const aloneMsMax = 600_000;
/** A second endpoint further behind than this confirms nothing. */
const behindMax = { blocks: 16n, ms: 120_000 } as const;
/** How long a head may stand still before another endpoint is asked for a later one. */
const standsMsMax = 120_000;
/** An outage is over when a connection has lasted so long: then its lines in the log are written again. */
const calmMs = 60_000;

/** How the use of an endpoint ended; `stoodMs` is `null` when it never began. */
type Used = { readonly stoodMs: number | null; readonly reason: Unusable };

type About = "block or state" | "events";

export class Endpoints {
  private current: OpenSession | null = null;
  private currentEndpoint = "";
  /** Another endpoint, asked before calls end. */
  private witness: OpenSession | null = null;
  private witnessEndpoint = "";
  private witnessTurn = 0;
  private aloneSinceMs: number | null = null;
  /** Endpoints that contradicted the one in use since they agreed with it last. */
  private readonly contradicting = new Set<string>();
  private reasons: Unusable[] = [];
  private anchorBlock: Anchor | null;
  /** By endpoint: since when it has not had the anchor. */
  private readonly disputes = new Map<string, number>();
  private genesisHash: string | null;
  /** Aborted when the store closes. */
  private readonly stop = new AbortController();
  private wake: () => void = () => {};
  private readonly firstRound = Promise.withResolvers<void>();
  private running: Promise<void> = Promise.resolve();
  private cancelWatch: () => void = () => {};
  /** Endpoints whose present trouble is in the log, and when it was seen last. */
  private readonly said = new Map<string, number>();
  /** What endpoints disagree about, and which: one line in the log for all that follows from it. */
  private readonly disagreeing = new Set<string>();

  constructor(
    private readonly options: EndpointsOptions,
    private readonly events: EndpointsEvents,
  ) {
    this.genesisHash = options.genesis;
    this.anchorBlock = options.anchor;
  }

  start(): void {
    this.running = this.run();
  }

  /** Resolves when every endpoint was tried once, or one of them answers. */
  tried(): Promise<void> {
    return this.firstRound.promise;
  }

  get closed(): boolean {
    return this.stop.signal.aborted;
  }

  /** The last finalized block that was shown. */
  get anchor(): Anchor | null {
    return this.anchorBlock;
  }

  /** The connection, or why there is none. */
  session(): OpenSession {
    if (this.closed) throw new StoreError("closed", "the store is closed");
    if (this.current !== null) return this.current;
    throw new StoreError("unavailable", this.outage());
  }

  /** Why no endpoint can be used, by kind. */
  outage(): string {
    if (this.reasons.length === 0) return "the chain has not answered yet";
    const list = this.reasons.map(({ message }) => message).join("; ");
    if (this.reasons.some(({ kind }) => kind === "differs")) return `no endpoint has the right chain: ${list}`;
    if (this.reasons.some(({ kind }) => kind !== "gone")) return `no endpoint is up to date: ${list}`;
    return `no endpoint of the chain answers: ${list}`;
  }

  /** Whether an endpoint was refused for what it is: a mistake in the configuration, not an outage. */
  differs(): boolean {
    return this.reasons.some(({ kind }) => kind === "differs");
  }

  /** Tries the endpoints in turn, so a bad first one is not preferred. */
  private async run(): Promise<void> {
    const { endpoints, reconnect_max_ms: reconnectMsMax } = this.options.settings;
    let pauseMs = firstPauseMs;
    for (let turn = 0, failed: Unusable[] = []; !this.closed; turn++) {
      const endpoint = endpoints[turn % endpoints.length] as string;
      const { stoodMs, reason } = await this.use(endpoint);
      if (this.closed) return;
      failed = [...failed, new Unusable(reason.kind, `${nameOf(endpoint)}: ${reason.message}`)];
      if (stoodMs !== null) {
        const saidMs = this.options.host.elapsedMs() - (this.said.get(endpoint) ?? 0);
        if (stoodMs >= calmMs && saidMs > stoodMs) this.said.delete(endpoint);
        const ended = { endpoint: nameOf(endpoint), reason: reason.message };
        this.logOnce([endpoint], "the connection to the chain has ended", ended);
        failed = failed.slice(-1);
        // A node that soon ends every connection is asked as rarely as one that is gone.
        if (stoodMs >= reconnectMsMax) pauseMs = firstPauseMs;
      }
      this.reasons = failed;
      if (failed.length < endpoints.length) continue;
      failed = [];
      this.firstRound.resolve();
      this.logOnce(endpoints, "the chain can't be reached", { reason: this.outage(), pause_ms: pauseMs });
      await this.pause(pauseMs * (0.75 + this.options.host.chance() / 2));
      pauseMs = Math.min(pauseMs * 2, reconnectMsMax);
    }
  }

  /** One line for each endpoint that an outage is about: reasons change while it lasts. */
  private logOnce(about: readonly string[], message: string, fields: Readonly<Record<string, unknown>>): void {
    const isNew = about.some((endpoint) => !this.said.has(endpoint));
    for (const endpoint of about) this.said.set(endpoint, this.options.host.elapsedMs());
    if (isNew) this.options.log("warn", message, fields);
  }

  /** The log says what is wrong with the endpoint in use, so the end of its connection is no further line. */
  trouble(): void {
    this.said.set(this.currentEndpoint, this.options.host.elapsedMs());
  }

  /** Uses one endpoint for as long as it lasts. Never throws: without this loop there is no connection ever again. */
  private async use(endpoint: string): Promise<Used> {
    const { host } = this.options;
    let session: Session | null = null;
    try {
      session = await this.open(endpoint);
      const beganMs = host.elapsedMs();
      this.begin(session as OpenSession, endpoint);
      const reason = await session.over.promise;
      return { stoodMs: host.elapsedMs() - beganMs, reason };
    } catch (error) {
      const reason = error instanceof Unusable ? error : new Unusable("gone", errorText(error));
      session?.end(reason);
      this.dispute(endpoint, reason);
      return { stoodMs: null, reason };
    } finally {
      this.current = null;
    }
  }

  private open(endpoint: string, passive?: true): Promise<Session> {
    const anchor = () => this.anchorBlock;
    const given = { ...this.options, endpoint, genesis: this.genesisHash, signal: this.stop.signal, anchor };
    return Session.open(passive ? { ...given, passive } : given);
  }

  private begin(session: OpenSession, endpoint: string): void {
    this.genesisHash = session.genesis;
    session.onHead = (head) => this.show(head);
    this.disputes.clear();
    this.contradicting.clear();
    // It may be the endpoint that is used now, and no endpoint can confirm itself.
    this.dropWitness();
    this.show(session.head);
    this.current = session;
    this.currentEndpoint = endpoint;
    this.reasons = [];
    this.firstRound.resolve();
    this.watch(session, session.head.number);
    this.options.log("info", "connected to the chain", {
      endpoint: nameOf(endpoint),
      block: String(session.head.number),
    });
    this.events.onSession(session);
  }

  private show(head: ChainHead): void {
    this.anchorBlock = { number: head.number, hash: head.hash, timeMs: head.timeMs };
    this.events.onHead(head);
  }

  /** Counts endpoints without the anchor; when most of them have lacked it for long, the anchor is given up. */
  private dispute(endpoint: string, { kind, distance }: Unusable): void {
    const { settings, host, log } = this.options;
    if (kind !== "behind" && kind !== "forked") return void this.disputes.delete(endpoint);
    const nowMs = host.elapsedMs();
    const sinceMs = this.disputes.get(endpoint) ?? nowMs;
    this.disputes.set(endpoint, sinceMs);
    const patienceMs = this.blockTimeMs() * (disputeBlocks[kind] + distanceBlocks * Number(distance));
    if (this.disputes.size * 2 <= settings.endpoints.length || nowMs - sinceMs < patienceMs) return;
    log("error", "most endpoints lack a block that was final before; the driver follows them from now on", {
      block: String(this.anchorBlock?.number),
      hash: this.anchorBlock?.hash,
    });
    this.anchorBlock = null;
    this.disputes.clear();
  }

  private blockTimeMs(): number {
    const [runtime] = this.options.runtimes.values();
    return this.options.settings.block_time_ms ?? runtime?.blockTimeMs ?? blockTimeMsDefault;
  }

  /** Leaves a node whose head stands still while another endpoint has a later one. */
  private watch(session: OpenSession, seen: bigint): void {
    this.cancelWatch();
    this.cancelWatch = this.options.host.after(standsMsMax, async () => {
      if (this.current !== session) return;
      const { number } = session.head;
      if (number === seen && (await this.isOvertaken(number))) this.leave("its head stands still");
      else if (this.current === session) this.watch(session, number);
    });
  }

  private async isOvertaken(number: bigint): Promise<boolean> {
    const other = await this.elsewhere(async ({ head }) => head.number > number);
    other?.end(unneeded());
    return other !== null;
  }

  /** A connection to another endpoint of which something is true. The caller ends it. */
  async elsewhere(isSo: (session: OpenSession) => Promise<boolean>): Promise<OpenSession | null> {
    for (const endpoint of this.others()) {
      const other = (await this.open(endpoint, true).catch(() => null)) as OpenSession | null;
      if (other !== null && (await isSo(other).catch(() => false))) return other;
      other?.end(unneeded());
    }
    return null;
  }

  /** The connection ends, and the next endpoint is used. Without another one, a bad node is better than none. */
  leave(why: string): void {
    if (this.others().length > 0) this.current?.end(new Unusable("gone", why));
  }

  private others(): readonly string[] {
    return this.options.settings.endpoints.filter((endpoint) => endpoint !== this.currentEndpoint);
  }

  // ------------------------------------------------------------------------------------------ second endpoint

  /**
   * The head by which calls may end: `head` itself, or the newest before it that a second endpoint has finalized as
   * well and whose state gives the operator the same account; `null` when there is none for now.
   */
  async confirm(session: OpenSession, head: ChainHead): Promise<ChainHead | null> {
    if (this.isAlone()) return head;
    for (const _ of this.others()) {
      const witness = await this.openWitness();
      const common = witness === null ? "silent" : await this.commonHead(session, witness, head);
      if (common === "differs") return null;
      if (common === "silent") continue;
      this.aloneSinceMs = null;
      return common;
    }
    return this.isAloneForLong() ? head : null;
  }

  /** `differs`: one of the two is wrong. `silent`: the second one can't be asked, or stands still. */
  private async commonHead(
    session: OpenSession,
    witness: OpenSession,
    head: ChainHead,
  ): Promise<ChainHead | "differs" | "silent"> {
    try {
      const other = await witness.headAt(await witness.finalizedHash());
      if (this.isBehind(other, head)) {
        this.dropWitness();
        return "silent";
      }
      const common = other.number < head.number ? await session.headAt(await session.hashAt(other.number)) : head;
      // The state that was read of `common` is compared, not what a second request would answer now.
      const hash = await witness.hashAt(common.number);
      if (common.hash === hash && isSameState(common, await witness.headAt(common.hash))) {
        this.agreed("block or state");
        // One that stands still may agree about what was before.
        if (common === head) this.said.delete(this.witnessEndpoint);
        return common;
      }
    } catch (error) {
      if (!(error instanceof StoreError) && !(error instanceof Unusable)) throw error;
      this.dropWitness();
      return "silent";
    }
    this.contradicted("block or state");
    return "differs";
  }

  private isBehind(other: ChainHead, head: ChainHead): boolean {
    if (other.number + behindMax.blocks >= head.number && other.timeMs + behindMax.ms >= head.timeMs) return false;
    const fields = { endpoint: nameOf(this.witnessEndpoint), block: String(other.number) };
    this.logOnce([this.witnessEndpoint], "an endpoint is too far behind to confirm calls", fields);
    return true;
  }

  private agreed(about: About): void {
    for (const endpoint of [this.currentEndpoint, this.witnessEndpoint])
      this.disagreeing.delete(`${about} ${endpoint}`);
  }

  /** When every other endpoint contradicts the one in use, its connection ends; until then another one is asked. */
  private contradicted(about: About): void {
    const others = this.others().length;
    this.contradicting.add(this.witnessEndpoint);
    this.dropWitness();
    this.trouble();
    const pair = [this.currentEndpoint, this.witnessEndpoint];
    const isNew = !pair.some((endpoint) => this.disagreeing.has(`${about} ${endpoint}`));
    for (const endpoint of pair) this.disagreeing.add(`${about} ${endpoint}`);
    const fields = { reason: about, endpoints: pair.map(nameOf).join(", ") };
    if (isNew) this.options.log("warn", "two endpoints of the chain disagree; no call ends meanwhile", fields);
    if (this.contradicting.size < others || others < 2) return;
    this.current?.end(new Unusable("forked", "every other endpoint contradicts it"));
  }

  /**
   * Whether a second endpoint has this value at a block, or no longer has the block's state. Throws when they differ:
   * then another one is asked later.
   */
  async corroborate(key: Uint8Array, value: Uint8Array, hash: string): Promise<boolean | "gone"> {
    if (this.isAlone()) return true;
    const witness = await this.openWitness();
    if (witness === null) return this.isAloneForLong();
    try {
      const [other] = await witness.values([key], hash);
      if (other?.toHex() === value.toHex()) {
        this.contradicting.delete(this.witnessEndpoint);
        this.agreed("events");
        return true;
      }
    } catch (error) {
      if (error instanceof StateGone) return "gone";
      throw error;
    }
    this.contradicted("events");
    throw new StoreError("unavailable", "two endpoints report different events of a block");
  }

  /** Whether answers need no comparison: with one endpoint, or with a light client, which proves its answers. */
  private isAlone(): boolean {
    return this.options.settings.endpoints.length < 2 || isLight(this.currentEndpoint);
  }

  /** The time without a second endpoint goes on while no call is pending, and over connections. */
  private isAloneForLong(): boolean {
    const nowMs = this.options.host.elapsedMs();
    this.aloneSinceMs ??= nowMs;
    if (nowMs - this.aloneSinceMs < aloneMsMax) return false;
    const text = "no second endpoint of the chain can be asked; calls end with the confirmation of one";
    this.logOnce(this.others(), text, { endpoints: this.others().map(nameOf).join(", ") });
    return true;
  }

  private async openWitness(): Promise<OpenSession | null> {
    if (this.witness !== null) return this.witness;
    const others = this.others();
    const endpoint = others[this.witnessTurn++ % others.length] as string;
    try {
      const witness = (await this.open(endpoint, true)) as OpenSession;
      void witness.over.promise.then(() => {
        if (this.witness === witness) this.witness = null;
      });
      this.witnessEndpoint = endpoint;
      this.witness = witness;
      return witness;
    } catch {
      return null;
    }
  }

  /** Called as well when no call is pending: the connection is not needed then. */
  dropWitness(): void {
    this.witness?.end(unneeded());
    this.witness = null;
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.options.host.after(ms, resolve);
      this.wake = () => {
        cancel();
        resolve();
      };
    });
  }

  async close(): Promise<void> {
    this.stop.abort();
    this.wake();
    this.cancelWatch();
    this.firstRound.resolve();
    this.dropWitness();
    await this.running;
  }
}

export const unneeded = (): Unusable => new Unusable("gone", "it is not needed");

const isSameState = (a: ChainHead, b: ChainHead): boolean =>
  a.nonce === b.nonce &&
  a.free === b.free &&
  a.timeMs === b.timeMs &&
  a.metadata.frame.specVersion === b.metadata.frame.specVersion;
