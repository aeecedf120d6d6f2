/**
 * The operator's block list of DIDs, senders and client networks, changed with `waypost block`. Each process holds it as
 * sets in memory, so a check costs a look-up.
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { type Fault, fault } from "../../core/fault.ts";
import {
  type Address,
  type Network,
  networkHolds,
  parseAddress,
  parseNetwork,
  unmapAddress,
} from "../../core/message/address.ts";
import { blocksMax } from "../../core/schema/schema.ts";
import { type ListParts, openList } from "./list.ts";

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
  readonly add: readonly Omit<Block, "sinceMs">[];
  /** Subjects. */
  readonly remove: readonly string[];
};

export type Blocks = {
  readonly list: () => readonly Block[];
  /** The number of entries that were added or replaced, and removed; durable when it resolves. */
  readonly change: (change: BlockChange) => Promise<{ added: number; removed: number } | Fault>;
  /** 403 `policy_denied` when sender or recipient is blocked. The sender's signature has been verified. */
  readonly checkParties: (to: Did, from: Did | null) => Fault | null;
  /** 403 `policy_denied` for a client of a blocked network. */
  readonly checkClient: (client: string) => Fault | null;
  /** 403 `policy_denied` for a DID that is blocked altogether. */
  readonly checkDid: (did: Did) => Fault | null;
  /** Calls back after each change, so that sessions and streams from before are checked again; the result unsubscribes. */
  readonly follow: (changed: () => void) => () => void;
  readonly close: () => void;
};

export async function openBlocks(parts: ListParts): Promise<Blocks> {
  let sets = setsOf([]);
  const list = await openList<Block>(
    {
      name: "operator-blocks",
      title: "block list",
      entriesMax: blocksMax,
      index: (blocks) => {
        sets = setsOf(blocks);
      },
    },
    parts,
  );
  return {
    list: list.entries,
    change: async (wanted) => {
      let counted = { added: 0, removed: 0 };
      const refused = await list.change((before) => {
        const { blocks, ...counts } = decideBlocks(before, wanted, parts.now());
        counted = counts;
        return blocks;
      });
      return refused ?? counted;
    },
    checkParties: (to, from) => checkParties(sets, to, from),
    checkClient: (client) => checkClient(sets, client),
    checkDid: (did) => (sets.recipients.has(did) ? fault("policy_denied", "this node does not serve the DID") : null),
    follow: list.follow,
    close: list.close,
  };
}

// ------------------------------------------------------------------------------------------------ decide

/** Later entries of a subject replace earlier ones. */
function decideBlocks(
  blocks: readonly Block[],
  { add, remove }: BlockChange,
  nowMs: number,
): { readonly blocks: readonly Block[]; readonly added: number; readonly removed: number } {
  const bySubject = new Map(blocks.map((block) => [block.subject, block]));
  let removed = 0;
  for (const one of remove) if (bySubject.delete(one)) removed += 1;
  for (const one of add) bySubject.set(one.subject, { ...one, sinceMs: nowMs });
  return { blocks: [...bySubject.values()], added: add.length, removed };
}

/** What a subject can be: a network in its one form, a DID, or 400 `invalid_request`. */
export function parseBlockSubject(text: string): { readonly subject: string; readonly isNetwork: boolean } | Fault {
  if (isDid(text)) return { subject: text, isNetwork: false };
  if (parseNetwork(text) !== null) return { subject: normalNetwork(text), isNetwork: true };
  return fault("invalid_request", "a subject must be a DID, an IP address, or a network such as 192.0.2.0/24");
}

/** `192.0.2.7` for `192.0.2.7/32`, and IPv6 in its shortest form, so that a network is found however it is written. */
function normalNetwork(text: string): string {
  const [address = "", bits] = text.split("/");
  const isIpv6 = address.includes(":");
  const plain = isIpv6 ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
  return bits === undefined || bits === (isIpv6 ? "128" : "32") ? plain : `${plain}/${bits}`;
}

type Sets = {
  readonly recipients: ReadonlySet<string>;
  readonly senders: ReadonlySet<string>;
  readonly networks: readonly Network[];
};

function setsOf(blocks: readonly Block[]): Sets {
  const subjects = (...kinds: BlockKind[]): string[] =>
    blocks.filter(({ kind }) => kinds.includes(kind)).map((block) => block.subject);
  return {
    recipients: new Set(subjects("did")),
    senders: new Set(subjects("did", "sender")),
    networks: subjects("network")
      .map(parseNetwork)
      .filter((network) => network !== null),
  };
}

function checkParties({ recipients, senders }: Sets, to: string, from: string | null): Fault | null {
  if (recipients.has(to)) return fault("policy_denied", "this node does not serve the recipient");
  if (from !== null && senders.has(from)) return fault("policy_denied", "this node does not serve the sender");
  return null;
}

/** Cost: nothing while no network is listed; else a look at each of them, about 20 ns. */
function checkClient({ networks }: Sets, client: string): Fault | null {
  if (networks.length === 0) return null;
  const address: Address | null = unmapAddress(parseAddress(client));
  if (address === null || !networks.some((network) => networkHolds(network, address))) return null;
  return fault("policy_denied", "this node does not serve the client's network");
}
