/**
 * What the driver asks of the configured nodes. Calls go to all. Which nodes are trusted:
 * with two endpoints or more, a call ends only by a block that a second one has finalized
 * too, with the same state (`confirm`); and a block is read by the runtime that a second
 * one gives it too.
 * Source: docs/chain.md "A Directory on a chain", D76.
 */
import { BoundedMap } from "../../core/std/bounded.ts";
import { type Block, StoreError } from "../../storage/contract.ts";
import { isLight } from "./chain.ts";
import { type ChainNode, Connections, type OpenSession } from "./connections.ts";
import { type RuntimeMetadata, runtimeName } from "./metadata.ts";
import type { Verdict } from "./pool.ts";
import type { SignedBlock } from "./rpc.ts";
import {
  type ChainHead,
  Disputed,
  type PoolVerdict,
  readable,
  StateGone,
  silence,
  Unusable,
} from "./session.ts";

/**
 * How long calls wait for the confirmation of a second endpoint when none can be asked:
 * once for all of them.
 */
const aloneMsMax = 600_000;
/** A second endpoint further behind than this confirms nothing. */
const behindMax = { blocks: 16n, ms: 120_000 } as const;
/** A new block, and the one before it: each may have 5 MiB. */
const lastBlocksMax = 2;

type Asking<T> = (session: OpenSession) => Promise<T | null>;
/** An answer, and the node that gave it. */
type AnswerOfNode<T> = { readonly answer: T; readonly node: ChainNode };

type Agreement<T> = { readonly agreed: T | null; readonly isAlone: boolean };
type Question<T> = {
  /** What two may disagree about, and what waits meanwhile: the log says both. */
  readonly about: string;
  readonly ask: (other: OpenSession, node: ChainNode) => Promise<T | "differs" | "silent">;
};

type Confirming = {
  readonly session: OpenSession;
  readonly hash: string;
  readonly answer: Promise<ChainHead | null>;
};

export class Endpoints extends Connections {
  private aloneSinceMs: number | null = null;
  /** Is asked before the others, so that a silent or false one delays a single question. */
  private agreedLast: ChainNode | null = null;
  /** What `confirm` answered last, and the question that it is being asked or has settled. */
  private agreedHead: ChainHead | null = null;
  private confirming: Confirming | null = null;
  private readonly lastBlocks = new BoundedMap<string, Promise<SignedBlock | null>>(lastBlocksMax);

  /**
   * To every node, so that none can keep it from the chain. What one takes, no other
   * refuses or delays.
   */
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

  /** The first answer of another endpoint than the one in use. */
  async elsewhere<T>(ask: Asking<T>): Promise<T | null> {
    return (await this.firstOf(ask, this.current?.session ?? null))?.answer ?? null;
  }

  private async firstOf<T>(
    ask: Asking<T>,
    without: OpenSession | null,
  ): Promise<AnswerOfNode<T> | null> {
    for (const node of this.nodes) {
      const { session } = node;
      if (session === null || session === without) continue;
      const answer = await ask(session).catch(() => null);
      if (answer !== null) return { answer, node };
    }
    return null;
  }

  /**
   * The answer of the endpoint in use, or the first one of another; `null` when none has
   * one. What the endpoint in use can't answer is thrown only when no other has an answer:
   * not knowing is not absence.
   */
  private async anywhere<T>(ask: Asking<T>): Promise<AnswerOfNode<T> | null> {
    const session = this.session();
    const { current } = this;
    let failure: unknown = null;
    const own = await readable(ask(session)).catch((error: unknown) => {
      failure = error;
      return null;
    });
    if (own !== null) return { answer: own, node: current as ChainNode };
    const found = await this.firstOf(ask, session);
    if (found === null && failure !== null) throw failure;
    return found;
  }

  /**
   * A block of any endpoint that has its body, which its header proves; `null` when none
   * has it any more. The last ones are remembered: those who read a new block share it.
   */
  async block(hash: string): Promise<SignedBlock | null> {
    const known = this.lastBlocks.get(hash);
    if (known !== undefined) return known;
    const asked = this.anywhere((session) => session.block(hash)).then(answerOrNull);
    this.lastBlocks.set(hash, asked);
    const forget = () => this.lastBlocks.delete(hash);
    asked.then((block) => block === null && forget(), forget);
    return asked;
  }

  /**
   * The runtime in force after a block, of any endpoint that has its state; `null` when
   * none has it any more.
   */
  async runtimeAfter(hash: string): Promise<RuntimeMetadata | null> {
    return answerOrNull(await this.anywhere((session) => session.metadataAt(hash)));
  }

  /**
   * The same, where no other endpoint contradicts it: by another runtime a block holds no
   * call that can be read. The name that the headers lead to needs no second endpoint.
   * Throws `Disputed`.
   */
  async agreedRuntime(hash: string, expected: string | null): Promise<RuntimeMetadata | null> {
    const found = await this.anywhere((session) => session.metadataAt(hash));
    if (found === null) return null;
    const { answer, node } = found;
    const name = runtimeName(answer.frame);
    if (name === expected) return answer;
    const { agreed, isAlone } = await this.agreement(node, answer, {
      about: `the runtime after block ${hash}; no block behind it is read for key proofs`,
      ask: async (other) => {
        const runtime = await readable(other.metadataAt(hash));
        if (runtime === null) return "silent";
        return runtimeName(runtime.frame) === name ? answer : "differs";
      },
    });
    if (agreed !== null || isAlone) return answer;
    throw new Disputed("unavailable", "two endpoints disagree about the runtime of a block");
  }

  /**
   * Whether no other endpoint has another block at a number. Where none can be asked, the
   * head will show it.
   */
  async isAgreed(number: bigint, hash: string): Promise<boolean> {
    const { agreed, isAlone } = await this.agreement(this.current, true, {
      about: `block ${number}; no later one is read for key proofs`,
      ask: async (other) => ((await other.hashAt(number)) === hash ? true : "differs"),
    });
    return agreed !== null || isAlone;
  }

  async blockAt(number: bigint): Promise<SignedBlock | null> {
    const found = await this.anywhere((session) => session.hashAt(number));
    return found === null ? null : this.block(found.answer);
  }

  /**
   * How many of the endpoints that answer have this block at its number, and how many
   * another one.
   */
  async votes({ number, hash }: Pick<Block, "number" | "hash">): Promise<[number, number]> {
    const asked = this.open().map((session) => session.hashAt(number).catch(() => null));
    const found = (await Promise.all(asked)).filter((one) => one !== null);
    const same = found.filter((one) => one === hash).length;
    return [same, found.length - same];
  }

  /**
   * The head by which calls may end: `head` itself, or the newest before it that a second
   * endpoint has finalized as well and whose state gives the operator the same account;
   * `null` when there is none for now. Once for all who ask about one head; an older head
   * or none is looked for again.
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
    const ask = async (other: OpenSession, node: ChainNode) => {
      if (this.isBehind(node, other.head, head)) return "silent";
      const { number } = other.head;
      const common =
        number < head.number ? await session.headAt(await session.hashAt(number)) : head;
      const hash = await other.hashAt(common.number);
      // The state that was read of `common` is compared, not what a second request would
      // answer now.
      if (common.hash !== hash || !haveSameFacts(common, await other.headAt(hash)))
        return "differs";
      return common;
    };
    const about = `block ${head.number} or the operator's account in it; no call ends meanwhile`;
    const { agreed, isAlone } = await this.agreement(this.current, head, { about, ask });
    if (agreed === null) return null;
    if (!isAlone) this.agreed(agreed);
    if (agreed.number >= (this.agreedHead?.number ?? 0n)) this.agreedHead = agreed;
    return agreed;
  }

  /**
   * The operator's nonce to sign by: of the last head that was agreed about. Before the
   * first one it is the lowest that an endpoint claims: a nonce that was used costs a
   * signature, and one that is too high would wait for all below it.
   */
  nonce(): number {
    const { head } = this.session();
    if (this.nodes.length === 1) return head.nonce;
    return this.agreedHead?.nonce ?? Math.min(...this.open().map((session) => session.head.nonce));
  }

  /** Whether what was agreed about last had a second endpoint, or the proofs of a light client. */
  get isWitnessed(): boolean {
    if (this.current !== null && isLight(this.current.endpoint)) return true;
    return this.nodes.length > 1 && this.aloneSinceMs === null;
  }

  /**
   * Values at a block that a second endpoint has too: a single one must not decide what
   * lasts. `about`: whose they are, for the log. Throws `StateGone` when one of the two has
   * discarded the state, `Disputed` when the others have other values, `unavailable` while
   * none answers.
   */
  async values(
    keys: readonly Uint8Array[],
    { hash, about }: { readonly hash: string; readonly about: string },
  ): Promise<(Uint8Array | null)[]> {
    const { current } = this;
    const own = await this.session().values(keys, hash);
    let isGone = false;
    const ask = async (other: OpenSession) => {
      const found = await readable(other.values(keys, hash));
      isGone ||= found === null;
      if (found === null) return "silent";
      return found.every((value, n) => value?.toHex() === own[n]?.toHex()) ? own : "differs";
    };
    const { agreed, isAlone } = await this.agreement(current, own, { about, ask });
    if (agreed !== null) return agreed;
    if (isGone) throw new StateGone("unavailable", "a second endpoint has no state of a block");
    const text = "no second endpoint agrees about a block's state";
    throw isAlone ? new StoreError("unavailable", text) : new Disputed("unavailable", text);
  }

  /**
   * Asks the other endpoints until one agrees, and answers what it agrees to: `own`, or
   * less. `silent`: it can't be asked, or stands still. When every other one contradicts
   * the endpoint `current`, which said it, its connection ends.
   */
  private async agreement<T>(
    current: ChainNode | null,
    own: T,
    { about, ask }: Question<T>,
  ): Promise<Agreement<T>> {
    const others = this.nodes.filter((node) => node !== current);
    others.sort((a, b) => Number(b === this.agreedLast) - Number(a === this.agreedLast));
    // With one endpoint there is nothing to compare, and a light client proves its answers.
    if (current === null || others.length === 0 || isLight(current.endpoint))
      return { agreed: own, isAlone: false };
    const differing: ChainNode[] = [];
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
    const disagreeing = [current, ...differing];
    const endpoints = disagreeing.map(({ name }) => name).join(", ");
    this.logOnce(disagreeing, `two endpoints of the chain disagree about ${about}`, { endpoints });
    if (differing.length === others.length && others.length > 1)
      current.session?.end(new Unusable("every other endpoint contradicts it"));
    return { agreed: null, isAlone: false };
  }

  private isBehind(node: ChainNode, other: ChainHead, head: ChainHead): boolean {
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
  private isAloneForLong(others: readonly ChainNode[]): boolean {
    const nowMs = this.options.host.elapsedMs();
    this.aloneSinceMs ??= nowMs;
    if (nowMs - this.aloneSinceMs < aloneMsMax) return false;
    const text =
      "no second endpoint of the chain can be asked; calls end with the confirmation of one";
    this.logOnce(others, text, { endpoints: others.map(({ name }) => name).join(", ") });
    return true;
  }
}

const answerOrNull = <T>(found: AnswerOfNode<T> | null): T | null => found?.answer ?? null;

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

const haveSameFacts = (a: ChainHead, b: ChainHead): boolean =>
  a.nonce === b.nonce &&
  a.free === b.free &&
  a.timeMs === b.timeMs &&
  a.metadata.frame.specVersion === b.metadata.frame.specVersion;
