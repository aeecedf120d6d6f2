/**
 * The operator's block list of DIDs, senders and client networks, changed with `waypost block`: one
 * record for each entry in a store of the node, so that it survives a restart and applies to every
 * process on that store. Each process holds the list as sets in memory, so a check costs a look-up.
 * A change is announced over the bus, and every process reads the list again every ten seconds.
 */
import type { Config } from "../../config/schema.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import {
  type Network,
  networkHolds,
  parseAddress,
  parseNetwork,
  unmapAddress,
} from "../../core/message/address.ts";
import { blocksMax } from "../../core/schema/schema.ts";
import { keptMs } from "../results.ts";
import { type FollowParts, followRecords } from "./followed.ts";
import { encodeRecord } from "./records.ts";

/** `did` is blocked as sender and as recipient, `sender` as sender alone. */
type BlockKind = "did" | "sender" | "network";

type Block = {
  /** A DID, or a network such as `203.0.113.0/24`. */
  readonly subject: string;
  readonly kind: BlockKind;
  readonly sinceMs: number;
  readonly reason: string | null;
};

export type BlockChange = {
  /**
   * An entry that is listed keeps its reason unless there is a new one, and stays
   * blocked altogether where it is.
   */
  readonly add: readonly Omit<Block, "sinceMs">[];
  /** Subjects. */
  readonly remove: readonly string[];
};

/** Numbers of entries, and the subjects that were to be removed and are not listed. */
type BlockOutcome = {
  readonly added: number;
  readonly replaced: number;
  readonly removed: number;
  readonly missing: readonly string[];
};

export type Blocks = {
  readonly list: () => readonly Block[];
  /**
   * Durable when it resolves. A store that fails may have a part of the change. 400
   * `invalid_request` for `operator.did`.
   */
  readonly change: (change: BlockChange) => Promise<BlockOutcome | Fault>;
  /**
   * 403 `policy_denied` when sender or recipient is blocked. The sender's
   * signature has been verified.
   */
  readonly checkParties: (to: Did, from: Did | null) => Fault | null;
  /** 403 `policy_denied` for a client of a blocked network. */
  readonly checkClient: (client: string) => Fault | null;
  /** 403 `policy_denied` for a DID that is blocked altogether. */
  readonly checkDid: (did: Did) => Fault | null;
  /**
   * Calls back after each change, so that sessions from before are checked again;
   * the result unsubscribes.
   */
  readonly follow: (changed: () => void) => () => void;
  readonly close: () => void;
};

const prefix = "/block/";

type BlocksParts = FollowParts & {
  /** Whose identity is not blocked, since reports wait there. */
  readonly operator?: Pick<Config["operator"], "did">;
};

export async function openBlocks(parts: BlocksParts): Promise<Blocks> {
  const { receipts, now } = parts;
  const followers = new Set<() => void>();
  let blocks: readonly Block[] = [];
  let [kinds, networks]: [ReadonlyMap<string, BlockKind>, readonly Network[]] = [new Map(), []];
  const { read, announce, close } = await followRecords<Block>(parts, {
    prefix,
    subject: "operator-blocks.changed",
    name: "the block list",
    changed: (found) => {
      blocks = [...found].sort((a, b) => a.sinceMs - b.sinceMs);
      kinds = new Map(blocks.map(({ subject, kind }) => [subject, kind]));
      networks = blocks
        .map(({ subject }) => parseNetwork(subject))
        .filter((network) => network !== null);
      for (const follower of followers) follower();
    },
  });
  const change = async (wanted: BlockChange): Promise<BlockOutcome | Fault> => {
    const operator = parts.operator?.did ?? null;
    if (wanted.add.some(({ subject }) => subject === operator))
      return fault(
        "invalid_request",
        `${operator} is operator.did, which takes the reports: it can't be blocked`,
      );
    await read();
    const decided = decideChange(blocks, wanted, now());
    if (isFault(decided)) return decided;
    await writeBlocks(receipts, decided, now() + keptMs);
    await announce();
    return decided.outcome;
  };
  return {
    list: () => blocks,
    change,
    checkParties: (to, from) => {
      if (kinds.get(to) === "did") return notServed("the recipient");
      return from !== null && kinds.has(from) ? notServed("the sender") : null;
    },
    // Cost: nothing while no network is listed; else a look at each of them, about 20 ns.
    checkClient: (client) => {
      const address = networks.length === 0 ? null : unmapAddress(parseAddress(client));
      const isBlocked =
        address !== null && networks.some((network) => networkHolds(network, address));
      return isBlocked ? notServed("the client's network") : null;
    },
    checkDid: (did) => (kinds.get(did) === "did" ? notServed("the DID") : null),
    follow: (changed) => {
      followers.add(changed);
      return () => followers.delete(changed);
    },
    close,
  };
}

type DecidedChange = {
  readonly after: ReadonlyMap<string, Block>;
  /** Subjects whose records are written anew, or removed when they are not in `after`. */
  readonly changed: readonly string[];
  readonly outcome: BlockOutcome;
};

function decideChange(
  listed: readonly Block[],
  { add, remove }: BlockChange,
  nowMs: number,
): DecidedChange | Fault {
  const after = new Map(listed.map((block) => [block.subject, block]));
  const removed = remove.filter((subject) => after.delete(subject));
  const missing = remove.filter((subject) => !removed.includes(subject));
  let replaced = 0;
  for (const block of add) {
    const before = after.get(block.subject);
    if (before !== undefined) replaced += 1;
    const reason = block.reason ?? before?.reason ?? null;
    // One that is blocked altogether stays so: a report must not open what an erasure has closed.
    const kind = before?.kind === "did" ? before.kind : block.kind;
    after.set(block.subject, { ...block, kind, reason, sinceMs: before?.sinceMs ?? nowMs });
  }
  if (after.size > blocksMax)
    return fault("invalid_request", `the block list can have at most ${blocksMax} entries`);
  const changed = [...new Set([...removed, ...add.map(({ subject }) => subject)])];
  const outcome = { added: add.length - replaced, replaced, removed: removed.length, missing };
  return { after, changed, outcome };
}

/** A store takes so many writes at once. */
const writesMax = 256;

async function writeBlocks(
  receipts: BlocksParts["receipts"],
  { after, changed }: DecidedChange,
  expiresAtMs: number,
): Promise<void> {
  const write = (subject: string) => {
    const block = after.get(subject);
    return block === undefined
      ? receipts.remove(prefix + subject)
      : receipts.put(prefix + subject, encodeRecord(block), expiresAtMs);
  };
  for (let at = 0; at < changed.length; at += writesMax)
    await Promise.all(changed.slice(at, at + writesMax).map(write));
}

const notServed = (whom: string): Fault =>
  fault("policy_denied", `this node does not serve ${whom}`);

/** What a subject can be: a network in its one form, a DID, or 400 `invalid_request`. */
export function parseBlockSubject(
  text: string,
): { readonly subject: string; readonly isNetwork: boolean } | Fault {
  if (isDid(text)) return { subject: text, isNetwork: false };
  if (parseNetwork(text) !== null) return { subject: normalNetwork(text), isNetwork: true };
  return fault(
    "invalid_request",
    `${text.slice(0, 100)}: a subject must be a DID, an IP address, or a network such as 192.0.2.0/24`,
  );
}

/**
 * `192.0.2.7` for `192.0.2.7/32`, and IPv6 in its shortest form, so that a network is
 * found however it is written.
 */
function normalNetwork(text: string): string {
  const [address = "", bits] = text.split("/");
  const isIpv6 = address.includes(":");
  const plain = isIpv6 ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
  return bits === undefined || bits === (isIpv6 ? "128" : "32") ? plain : `${plain}/${bits}`;
}
