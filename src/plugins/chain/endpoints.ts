/**
 * The configured nodes: one connection at a time to one of them. When it is lost, the next node is tried; when none can
 * be used, after a growing pause. Meanwhile `session()` throws `unavailable` with the reason: a chain that can't be asked
 * never counts as an empty one. Which nodes are trusted: the anchor is the last finalized block that a node showed, also
 * after a restart, and every node must have it; and with two endpoints or more, a call ends only by a block that a second
 * one has finalized too, with the same state (`confirm`). Source: docs/chain.md "A Directory on a chain", D76.
 */
import { StoreError } from "../../storage/contract.ts";
import { isLight } from "./chain.ts";
import { nameOf, type SignedBlock } from "./rpc.ts";
import {
  type Anchor,
  type ChainHead,
  type Common,
  heartbeatMs,
  readable,
  Session,
  StateGone,
  Unusable,
  unusable,
} from "./session.ts";

type EndpointsOptions = Common & { readonly genesis: string | null; readonly anchor: Anchor | null };

export type EndpointsEvents = {
  /** A connection is open, the first one or a later one. Its head was reported before. */
  readonly onSession: (session: Session) => void;
  readonly onHead: (head: ChainHead) => void;
};

export type OpenSession = Session & { readonly head: ChainHead };

const firstPauseMs = 200;
/** For how many block times the anchor wins against nodes that lack it: an hour, in which one that is behind catches up. */
const disputeBlocksMax = 600;
/** How long calls wait for the confirmation of a second endpoint when none can be asked: once for all of them. */
const aloneMsMax = 600_000;
/** A second endpoint further behind than this confirms nothing. */
const behindMax = { blocks: 16n, ms: 120_000 } as const;
/** How long a head may stand still before another endpoint is asked for a later one. */
const standsMsMax = 120_000;
/** An outage is over when a connection has lasted so long: then its lines in the log are written again. */
const calmMs = 60_000;

type About = "block or state" | "records";
type Ask<T> = (other: OpenSession, endpoint: string) => Promise<T | "differs" | "silent">;

export class Endpoints {
  private current: OpenSession | null = null;
  private currentEndpoint = "";
  /** Connections to the others, which are asked before calls end; `null`: it can't be had. */
  private readonly asked = new Map<string, Promise<OpenSession | null>>();
  /** Until when one that could not be opened is not tried again: whoever asks for many blocks would wait for each. */
  private readonly absentUntilMs = new Map<string, number>();
  private agreedLast = "";
  private aloneSinceMs: number | null = null;
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
  /** Endpoints, and what two of them disagree about, whose present trouble is in the log; and when it was seen last. */
  private readonly said = new Map<string, number>();

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
      const beganMs = this.options.host.elapsedMs();
      const { hasBegun, reason } = await this.use(endpoint);
      if (this.closed) return;
      failed = [...failed, new Unusable(reason.kind, `${nameOf(endpoint)}: ${reason.message}`)];
      if (hasBegun) {
        const stoodMs = this.options.host.elapsedMs() - beganMs;
        if (stoodMs >= calmMs && (this.said.get(endpoint) ?? 0) < beganMs) this.said.delete(endpoint);
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

  /** One line for all that an outage is about: reasons change while it lasts. */
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
  private async use(endpoint: string): Promise<{ readonly hasBegun: boolean; readonly reason: Unusable }> {
    let session: Session | null = null;
    try {
      session = await this.open(endpoint, () => this.anchorBlock);
      this.begin(session as OpenSession, endpoint);
      return { hasBegun: true, reason: await session.over.promise };
    } catch (error) {
      const reason = unusable(error);
      session?.end(reason);
      this.dispute(endpoint, reason);
      return { hasBegun: false, reason };
    } finally {
      this.current = null;
    }
  }

  private open(endpoint: string, anchor: () => Anchor | null): Promise<Session> {
    const { genesisHash: genesis, stop } = this;
    return Session.open({ ...this.options, endpoint, genesis, signal: stop.signal, anchor });
  }

  private begin(session: OpenSession, endpoint: string): void {
    this.genesisHash = session.genesis;
    session.onHead = (head) => this.show(head);
    this.disputes.clear();
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
  private dispute(endpoint: string, { kind }: Unusable): void {
    const { settings, host, log } = this.options;
    if (kind !== "behind" && kind !== "forked") return void this.disputes.delete(endpoint);
    const nowMs = host.elapsedMs();
    const sinceMs = this.disputes.get(endpoint) ?? nowMs;
    this.disputes.set(endpoint, sinceMs);
    const patienceMs = disputeBlocksMax * heartbeatMs(settings);
    if (this.disputes.size * 2 <= settings.endpoints.length || nowMs - sinceMs < patienceMs) return;
    log("error", "most endpoints lack a block that was final before; the driver follows them from now on", {
      block: String(this.anchorBlock?.number),
      hash: this.anchorBlock?.hash,
    });
    this.anchorBlock = null;
    this.disputes.clear();
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
    return (await this.elsewhere(async ({ head }) => head.number > number || null)) !== null;
  }

  /** The first answer of another endpoint. */
  async elsewhere<T>(ask: (other: OpenSession) => Promise<T | null>): Promise<T | null> {
    for (const endpoint of this.others()) {
      const other = await this.other(endpoint);
      const answer = other && (await ask(other).catch(() => null));
      if (answer !== null) return answer;
    }
    return null;
  }

  /** A block of any endpoint that has its body, which its header proves; `null` when none has it any more. */
  async block(hash: string): Promise<SignedBlock | null> {
    const ask = (session: Session) => readable(session.block(hash));
    return (await ask(this.session())) ?? this.elsewhere(ask);
  }

  async blockAt(number: bigint): Promise<SignedBlock | null> {
    const ask = (session: Session) => readable(session.hashAt(number));
    const hash = (await ask(this.session())) ?? (await this.elsewhere(ask));
    return hash === null ? null : this.block(hash);
  }

  /** The connection ends, and the next endpoint is used. Without another one, a bad node is better than none. */
  leave(why: string): void {
    if (this.others().length > 0) this.current?.end(new Unusable("gone", why));
  }

  /** The one that agreed last goes first: a false or silent one is asked only in its place. */
  private others(): readonly string[] {
    const others = this.options.settings.endpoints.filter((endpoint) => endpoint !== this.currentEndpoint);
    return others.sort((a, b) => Number(b === this.agreedLast) - Number(a === this.agreedLast));
  }

  /** It need not have the anchor: it may be a little behind. */
  private async other(endpoint: string): Promise<OpenSession | null> {
    const { host, settings } = this.options;
    const known = this.asked.get(endpoint);
    if (known !== undefined) return known;
    if (host.elapsedMs() < (this.absentUntilMs.get(endpoint) ?? 0)) return null;
    const forget = () => void this.asked.delete(endpoint);
    const opening = this.open(endpoint, () => null).then(
      (session) => {
        void session.over.promise.then(forget);
        return session as OpenSession;
      },
      () => {
        this.absentUntilMs.set(endpoint, host.elapsedMs() + settings.reconnect_max_ms);
        forget();
        return null;
      },
    );
    this.asked.set(endpoint, opening);
    return opening;
  }

  // ------------------------------------------------------------------------------------------ second endpoint

  /**
   * The head by which calls may end: `head` itself, or the newest before it that a second endpoint has finalized as
   * well and whose state gives the operator the same account; `null` when there is none for now.
   */
  confirm(session: OpenSession, head: ChainHead): Promise<ChainHead | null> {
    return this.agreement("block or state", head, async (other, endpoint) => {
      const newest = other.head.number < head.number ? await other.newest() : other.head;
      if (this.isBehind(endpoint, newest, head)) return "silent";
      const common = newest.number < head.number ? await session.headAt(await session.hashAt(newest.number)) : head;
      // The state that was read of `common` is compared, not what a second request would answer now.
      const hash = await other.hashAt(common.number);
      if (common.hash !== hash || !isSameState(common, await other.headAt(hash))) return "differs";
      // One that stands still may agree about what was before.
      if (common === head) this.said.delete(endpoint);
      return common;
    });
  }

  /**
   * Values at a block that a second endpoint has too: a single one must not decide what lasts. Throws `StateGone` when one
   * of the two has discarded the state, and `unavailable` while none agrees.
   */
  async values(keys: readonly Uint8Array[], hash: string): Promise<(Uint8Array | null)[]> {
    const own = await this.session().values(keys, hash);
    let isGone = false;
    const agreed = await this.agreement("records", own, async (other) => {
      const found = await readable(other.values(keys, hash));
      isGone ||= found === null;
      if (found === null) return "silent";
      return found.every((value, n) => value?.toHex() === own[n]?.toHex()) ? own : "differs";
    });
    if (agreed !== null) return agreed;
    if (isGone) throw new StateGone("unavailable", "a second endpoint has no state of a block");
    throw new StoreError("unavailable", "no second endpoint agrees about a block's state");
  }

  /**
   * Asks the other endpoints until one agrees, and answers what it agrees to: `own`, or less. `silent`: it can't be asked,
   * or stands still. When every other one contradicts the endpoint in use, its connection ends.
   */
  private async agreement<T>(about: About, own: T, ask: Ask<T>): Promise<T | null> {
    // With one endpoint there is nothing to compare, and a light client proves its answers.
    const others = this.others();
    if (others.length === 0 || isLight(this.currentEndpoint)) return own;
    const differing: string[] = [];
    for (const endpoint of others) {
      const other = await this.other(endpoint);
      const answer = other === null ? "silent" : await ask(other, endpoint).catch(silentOf);
      if (answer === "differs") differing.push(endpoint);
      else if (answer !== "silent") {
        this.agreed(about, endpoint);
        return answer;
      }
    }
    if (differing.length === 0) return this.isAloneForLong(others) ? own : null;
    this.contradicted(about, differing);
    if (differing.length === others.length && others.length > 1)
      this.current?.end(new Unusable("forked", "every other endpoint contradicts it"));
    return null;
  }

  private isBehind(endpoint: string, other: ChainHead, head: ChainHead): boolean {
    if (other.number + behindMax.blocks >= head.number && other.timeMs + behindMax.ms >= head.timeMs) return false;
    const fields = { endpoint: nameOf(endpoint), block: String(other.number) };
    this.logOnce([endpoint], "an endpoint is too far behind to confirm calls", fields);
    return true;
  }

  private agreed(about: About, other: string): void {
    this.aloneSinceMs = null;
    this.agreedLast = other;
    // They may agree about one record and not about the next.
    if (this.options.host.elapsedMs() - (this.said.get(about) ?? 0) >= calmMs) this.said.delete(about);
  }

  private contradicted(about: About, others: readonly string[]): void {
    this.trouble();
    const endpoints = [this.currentEndpoint, ...others].map(nameOf).join(", ");
    const text = "two endpoints of the chain disagree; no call ends meanwhile";
    this.logOnce([about], text, { reason: about, endpoints });
  }

  /** The time without a second endpoint goes on while no call is pending, and over connections. */
  private isAloneForLong(others: readonly string[]): boolean {
    const nowMs = this.options.host.elapsedMs();
    this.aloneSinceMs ??= nowMs;
    if (nowMs - this.aloneSinceMs < aloneMsMax) return false;
    const text = "no second endpoint of the chain can be asked; calls end with the confirmation of one";
    this.logOnce(others, text, { endpoints: others.map(nameOf).join(", ") });
    return true;
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
    await this.running;
  }
}

function silentOf(error: unknown): "silent" {
  if (error instanceof StoreError || error instanceof Unusable) return "silent";
  throw error;
}

const isSameState = (a: ChainHead, b: ChainHead): boolean =>
  a.nonce === b.nonce &&
  a.free === b.free &&
  a.timeMs === b.timeMs &&
  a.metadata.frame.specVersion === b.metadata.frame.specVersion;
