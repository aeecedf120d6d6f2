/**
 * The configured nodes, each with a connection that is kept: when it is lost, it is opened again after a growing pause.
 * Reads go to one of them, the node in use; when none can be used, `session()` throws `unavailable` with the reasons: a
 * chain that can't be asked never counts as an empty one. Calls go to all. Which nodes are trusted: with two endpoints or
 * more, a call ends only by a block that a second one has finalized too, with the same state (`confirm`); and the last
 * block that two agreed about is the anchor, also after a restart, which every node must have.
 * Source: docs/chain.md "A Directory on a chain", D76.
 */
import { BoundedMap } from "../../core/std/bounded.ts";
import { type Block, StoreError } from "../../storage/contract.ts";
import { isLight } from "./chain.ts";
import type { RuntimeMetadata } from "./metadata.ts";
import type { Verdict } from "./pool.ts";
import { nameOf, type SignedBlock } from "./rpc.ts";
import {
  type Anchor,
  type ChainHead,
  ChainSession,
  type Common,
  Disputed,
  type PoolVerdict,
  readable,
  StateGone,
  silence,
  Unusable,
  unusable,
} from "./session.ts";

export type EndpointsEvents = {
  /** Another connection is in use. */
  readonly onSession: (session: OpenSession) => void;
  readonly onHead: (head: ChainHead, isInUse: boolean) => void;
};

export type OpenSession = ChainSession & { readonly head: ChainHead };

/** One of the configured nodes. */
type Node = {
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
/** How long calls wait for the confirmation of a second endpoint when none can be asked: once for all of them. */
const aloneMsMax = 600_000;
/** A second endpoint further behind than this confirms nothing. */
const behindMax = { blocks: 16n, ms: 120_000 } as const;
/** How long the head of the node in use may stand still while another has a later one. */
const standsMsMax = 120_000;
/** An outage is over when a node was well for so long: then the log reports the next one. */
const calmMs = 60_000;

/** A new block, and the one before it: each may have 5 MiB. */
const lastBlocksMax = 2;

type Agreement<T> = { readonly agreed: T | null; readonly isAlone: boolean };
type Ask<T> = (other: OpenSession, node: Node) => Promise<T | "differs" | "silent">;

type Confirming = {
  readonly session: OpenSession;
  readonly hash: string;
  readonly answer: Promise<ChainHead | null>;
};

export class Endpoints {
  private readonly nodes: readonly Node[];
  private current: Node | null = null;
  private aloneSinceMs: number | null = null;
  /** Is asked before the others, so that a silent or false one delays a single question. */
  private agreedLast: Node | null = null;
  private anchorBlock: Anchor | null;
  /** What `confirm` answered last, and the question that it is being asked or has settled. */
  private agreedHead: ChainHead | null = null;
  private confirming: Confirming | null = null;
  private readonly lastBlocks = new BoundedMap<string, Promise<SignedBlock | null>>(lastBlocksMax);
  private genesis: string | null;
  /** Aborted when the store closes. */
  private readonly stop = new AbortController();
  private readonly firstUse = Promise.withResolvers<void>();
  private running: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly options: Common & {
      readonly genesis: string | null;
      readonly anchor: Anchor | null;
    },
    private readonly events: EndpointsEvents,
  ) {
    this.genesis = options.genesis;
    this.anchorBlock = options.anchor;
    this.nodes = options.settings.endpoints.map((endpoint) => ({
      endpoint,
      name: nameOf(endpoint),
      session: null,
      reason: null,
      movedMs: 0,
      troubledMs: null,
    }));
  }

  start(): void {
    this.running = this.run();
  }

  /** At a first start one after the other, until one has decided which chain the store belongs to. */
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

  /** Whether an endpoint was refused for what it is: a mistake in the configuration, not an outage. */
  differs(): boolean {
    return this.current === null && this.nodes.some(({ reason }) => reason?.isMistake === true);
  }

  // ------------------------------------------------------------------------------------------------ connections

  /** Never throws: without this loop there is no connection to the node ever again. */
  private async keep(node: Node, tried: () => void): Promise<void> {
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
  private async use(node: Node, tried: () => void): Promise<Unusable> {
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
        session.end(unusable(error));
        throw error;
      }
    } catch (error) {
      return unusable(error);
    }
  }

  private lost(node: Node, { message }: Unusable): void {
    this.logOnce([node], "an endpoint of the chain can't be used", {
      endpoint: node.name,
      reason: message,
    });
    if (node !== this.current) return;
    this.current = null;
    this.choose();
  }

  private moved(node: Node, head: ChainHead): void {
    const nowMs = this.options.host.elapsedMs();
    node.movedMs = nowMs;
    if (nowMs - (node.troubledMs ?? nowMs) >= calmMs) node.troubledMs = null;
    this.choose();
    this.events.onHead(head, node === this.current);
  }

  /** Uses the first node that has the anchor, until it is lost, or stands still while another one has a later head. */
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
  private logOnce(
    about: readonly Node[],
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

  // -------------------------------------------------------------------------------------------------- questions

  private open(): OpenSession[] {
    return this.nodes.flatMap(({ session }) => session ?? []);
  }

  /** To every node, so that none can keep it from the chain. What one takes, no other refuses or delays. */
  async submit(extrinsic: Uint8Array): Promise<PoolVerdict> {
    const asked = this.open().map((session) => session.submit(extrinsic));
    const taken = asked.map(async (answer) =>
      (await answer).verdict === "taken" ? answer : Promise.reject(),
    );
    return Promise.any(taken).catch(async () => {
      const answers = await Promise.all(asked);
      return (
        answers.sort((a, b) => byFavour.indexOf(a.verdict) - byFavour.indexOf(b.verdict))[0] ??
        silence
      );
    });
  }

  /** The first answer of another endpoint. */
  async elsewhere<T>(ask: (other: OpenSession) => Promise<T | null>): Promise<T | null> {
    for (const other of this.open()) {
      if (other === this.current?.session) continue;
      const answer = await ask(other).catch(() => null);
      if (answer !== null) return answer;
    }
    return null;
  }

  /**
   * A block of any endpoint that has its body, which its header proves; `null` when none has it any more. The last ones
   * are remembered: those who read a new block share it.
   */
  async block(hash: string): Promise<SignedBlock | null> {
    const known = this.lastBlocks.get(hash);
    if (known !== undefined) return known;
    const ask = (session: ChainSession) => readable(session.block(hash));
    const asked = (async () => (await ask(this.session())) ?? this.elsewhere(ask))();
    this.lastBlocks.set(hash, asked);
    const forget = () => this.lastBlocks.delete(hash);
    asked.then((block) => block === null && forget(), forget);
    return asked;
  }

  /** The runtime in force after a block, of any endpoint that has its state; `null` when none has it any more. */
  async runtimeAfter(hash: string): Promise<RuntimeMetadata | null> {
    const ask = (session: ChainSession) => readable(session.metadataAt(hash));
    return (await ask(this.session())) ?? this.elsewhere(ask);
  }

  /** Whether no other endpoint has another block at a number. Where none can be asked, the head will show it. */
  async isAgreed(number: bigint, hash: string): Promise<boolean> {
    const { agreed, isAlone } = await this.agreement(this.current, true, async (other) =>
      (await other.hashAt(number)) === hash ? true : "differs",
    );
    return agreed !== null || isAlone;
  }

  async blockAt(number: bigint): Promise<SignedBlock | null> {
    const ask = (session: ChainSession) => readable(session.hashAt(number));
    const hash = (await ask(this.session())) ?? (await this.elsewhere(ask));
    return hash === null ? null : this.block(hash);
  }

  /** How many of the endpoints that answer have this block at its number, and how many another one. */
  async votes({ number, hash }: Pick<Block, "number" | "hash">): Promise<[number, number]> {
    const asked = this.open().map((session) => session.hashAt(number).catch(() => null));
    const found = (await Promise.all(asked)).filter((one) => one !== null);
    const same = found.filter((one) => one === hash).length;
    return [same, found.length - same];
  }

  /**
   * The head by which calls may end: `head` itself, or the newest before it that a second endpoint has finalized as
   * well and whose state gives the operator the same account; `null` when there is none for now. Once for all who ask
   * about one head; an older head or none is looked for again.
   */
  confirm(session: OpenSession, head: ChainHead): Promise<ChainHead | null> {
    const { confirming } = this;
    if (confirming?.session === session && confirming.hash === head.hash) return confirming.answer;
    const answer = this.confirmOnce(session, head);
    const asked = { session, hash: head.hash, answer };
    this.confirming = asked;
    const forget = () => {
      if (this.confirming === asked) this.confirming = null;
    };
    answer.then((agreed) => agreed === head || forget(), forget);
    return answer;
  }

  private async confirmOnce(session: OpenSession, head: ChainHead): Promise<ChainHead | null> {
    const { agreed, isAlone } = await this.agreement(this.current, head, async (other, node) => {
      if (this.isBehind(node, other.head, head)) return "silent";
      const { number } = other.head;
      const common =
        number < head.number ? await session.headAt(await session.hashAt(number)) : head;
      const hash = await other.hashAt(common.number);
      // The state that was read of `common` is compared, not what a second request would answer now.
      if (common.hash !== hash || !isSameState(common, await other.headAt(hash))) return "differs";
      return common;
    });
    if (agreed === null) return null;
    if (!isAlone && agreed.number >= (this.anchorBlock?.number ?? 0n))
      this.anchorBlock = { number: agreed.number, hash: agreed.hash, timeMs: agreed.timeMs };
    if (agreed.number >= (this.agreedHead?.number ?? 0n)) this.agreedHead = agreed;
    return agreed;
  }

  /**
   * The operator's nonce to sign by: of the last head that was agreed about. Before the first one it is the lowest that an
   * endpoint claims: a nonce that was used costs a signature, and one that is too high would wait for all below it.
   */
  nonce(): number {
    const { head } = this.session();
    if (this.nodes.length === 1) return head.nonce;
    return this.agreedHead?.nonce ?? Math.min(...this.open().map((session) => session.head.nonce));
  }

  /**
   * Values at a block that a second endpoint has too: a single one must not decide what lasts. Throws `StateGone` when one
   * of the two has discarded the state, `Disputed` when the others have other values, `unavailable` while none answers.
   */
  async values(keys: readonly Uint8Array[], hash: string): Promise<(Uint8Array | null)[]> {
    const { current } = this;
    const own = await this.session().values(keys, hash);
    let isGone = false;
    const { agreed, isAlone } = await this.agreement(current, own, async (other) => {
      const found = await readable(other.values(keys, hash));
      isGone ||= found === null;
      if (found === null) return "silent";
      return found.every((value, n) => value?.toHex() === own[n]?.toHex()) ? own : "differs";
    });
    if (agreed !== null) return agreed;
    if (isGone) throw new StateGone("unavailable", "a second endpoint has no state of a block");
    const text = "no second endpoint agrees about a block's state";
    throw isAlone ? new StoreError("unavailable", text) : new Disputed("unavailable", text);
  }

  /**
   * Asks the other endpoints until one agrees, and answers what it agrees to: `own`, or less. `silent`: it can't be asked,
   * or stands still. When every other one contradicts the endpoint `current`, which said it, its connection ends.
   */
  private async agreement<T>(current: Node | null, own: T, ask: Ask<T>): Promise<Agreement<T>> {
    const others = this.nodes.filter((node) => node !== current);
    others.sort((a, b) => Number(b === this.agreedLast) - Number(a === this.agreedLast));
    // With one endpoint there is nothing to compare, and a light client proves its answers.
    if (current === null || others.length === 0 || isLight(current.endpoint))
      return { agreed: own, isAlone: false };
    const differing: Node[] = [];
    for (const node of others) {
      const answer =
        node.session === null ? "silent" : await ask(node.session, node).catch(silentOf);
      if (answer === "differs") differing.push(node);
      else if (answer !== "silent") {
        this.aloneSinceMs = null;
        this.agreedLast = node;
        return { agreed: answer, isAlone: false };
      }
    }
    if (differing.length === 0)
      return { agreed: this.isAloneForLong(others) ? own : null, isAlone: true };
    const about = [current, ...differing];
    const endpoints = about.map(({ name }) => name).join(", ");
    this.logOnce(about, "two endpoints of the chain disagree; no call ends meanwhile", {
      endpoints,
    });
    if (differing.length === others.length && others.length > 1)
      current.session?.end(new Unusable("every other endpoint contradicts it"));
    return { agreed: null, isAlone: false };
  }

  private isBehind(node: Node, other: ChainHead, head: ChainHead): boolean {
    if (
      other.number + behindMax.blocks >= head.number &&
      other.timeMs + behindMax.ms >= head.timeMs
    )
      return false;
    const fields = { endpoint: node.name, block: String(other.number) };
    this.logOnce([node], "an endpoint is too far behind to confirm calls", fields);
    return true;
  }

  /** The time without a second endpoint goes on while no call is pending, and over connections. */
  private isAloneForLong(others: readonly Node[]): boolean {
    const nowMs = this.options.host.elapsedMs();
    this.aloneSinceMs ??= nowMs;
    if (nowMs - this.aloneSinceMs < aloneMsMax) return false;
    const text =
      "no second endpoint of the chain can be asked; calls end with the confirmation of one";
    this.logOnce(others, text, { endpoints: others.map(({ name }) => name).join(", ") });
    return true;
  }
}

const byFavour: readonly Verdict[] = [
  "taken",
  "nonce-used",
  "full",
  "banned",
  "invalid",
  "silence",
];

function silentOf(error: unknown): "silent" {
  if (error instanceof StoreError || error instanceof Unusable) return "silent";
  throw error;
}

const isSameState = (a: ChainHead, b: ChainHead): boolean =>
  a.nonce === b.nonce &&
  a.free === b.free &&
  a.timeMs === b.timeMs &&
  a.metadata.frame.specVersion === b.metadata.frame.specVersion;
