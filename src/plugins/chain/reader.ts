/**
 * What the driver reads of a chain. Its state at one block: every question is one request
 * to the node, and its answer is cached for as long as that block is the head; bytes become
 * records by the program's own codec, and an unreadable value is `corrupt`, never absent.
 * And its blocks: the calls in them.
 */
import { isDeepStrictEqual } from "node:util";
import { compactStripLength } from "@polkadot/util";
import { decodeUtf8, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, didBytesMax, normalizeAlias } from "../../core/codec/did.ts";
import { decodeWith } from "../../core/codec/scale.ts";
import type { Fault } from "../../core/fault.ts";
import {
  type Account,
  type AliasReserve,
  aliasReserveCodec,
  type DeliveryPolicy,
  deliveryPolicyCodec,
  longerThan,
  type PersonaPolicy,
  type PolicyScope,
  personaPolicyCodec,
  recordCodec,
} from "../../core/ledger/account.ts";
import { counterOf, type LedgerCall } from "../../core/ledger/calls.ts";
import { encodeDidDocument, parseProofTimestamp } from "../../core/ledger/document-codec.ts";
import { faultOfRefusal, isRefusal } from "../../core/ledger/refusals.ts";
import { applyCall, policyScopes } from "../../core/ledger/rules.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import type { OpenSession } from "./connections.ts";
import type { Endpoints } from "./endpoints.ts";
import {
  type Carried,
  carriedBy,
  type Frame,
  headOf,
  isOurs,
  type StorageItemName,
} from "./layouts.ts";
import { decodeUnsigned, entryKey, entryKeys, type RuntimeMetadata } from "./metadata.ts";
import type { SignedBlock } from "./rpc.ts";
import type { ChainHead, ChainSession } from "./session.ts";

/** The state that decides about a call, all of one block. */
export type Facts = {
  readonly head: ChainHead;
  readonly account: Account;
  readonly holders: ReadonlyMap<string, Did>;
  /** Of aliases that were released; `null` where the chain keeps none. */
  readonly reserves: ReadonlyMap<string, AliasReserve> | null;
};

const memoMax = 10_000;

/**
 * What decides about a DID: its record, then numbers; a map that the chain lacks is never
 * asked for.
 */
const accountMaps = [
  "Dids",
  "AliasNonces",
  "DocumentNonces",
  "RootPubkeyNonces",
  "ControlNonces",
  "DocumentTimes",
  "RegistrationExpiries",
  "Lives",
  "ComponentCallsLeft",
] as const satisfies readonly StorageItemName[];

const policyMaps = {
  recipient: "RecipientPolicies",
  tag: "TagPolicies",
  persona: "PersonaPolicies",
} as const satisfies Record<PolicyScope, StorageItemName>;

export class ChainReader {
  private readonly memo = new BoundedMap<string, Promise<unknown>>(memoMax);

  constructor(private readonly endpoints: Endpoints) {}

  async account(did: Did): Promise<Account> {
    return (await this.facts(did, [])).account;
  }

  aliasHolder(alias: string): Promise<Did | null> {
    return this.ofAlias("AliasIndex", alias, holderOf);
  }

  aliasReserve(alias: string): Promise<AliasReserve | null> {
    return this.ofAlias("ReleasedAliases", alias, reserveOf);
  }

  private async ofAlias<T>(
    map: StorageItemName,
    alias: string,
    read: (bytes: Uint8Array | null) => T | null,
  ) {
    if (normalizeAlias(alias) !== alias) return null;
    return this.cached(`${map} ${alias}`, async (session) => {
      const { hash, metadata } = session.head;
      return metadata.absent.has(map)
        ? null
        : read((await session.values([entryKey(map, alias)], hash))[0] ?? null);
    });
  }

  async policy(scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null> {
    if (longerThan(key, didBytesMax) || !key.isWellFormed()) return null;
    return this.cached(`${scope} ${key}`, (session) => {
      const { head } = session;
      return policyAt(head, scope, { key, values: (keys) => session.values(keys, head.hash) });
    });
  }

  /** The account and the holders of some aliases, at one block and with one request. */
  async facts(did: Did, aliases: readonly string[]): Promise<Facts> {
    const read = (session: OpenSession) => {
      const { head } = session;
      return readFacts(head, { did, aliases, values: (keys) => session.values(keys, head.hash) });
    };
    return aliases.length > 0 ? read(this.endpoints.session()) : this.cached(`facts ${did}`, read);
  }

  /** By which a call may end; of a head that need not be the newest. */
  factsAt(head: ChainHead, did: Did, aliases: readonly string[]): Promise<Facts> {
    return readFacts(head, {
      did,
      aliases,
      values: this.agreedValues(did, head),
    });
  }

  private agreedValues(did: string, { hash }: ChainHead): Values {
    const about = `${did}; its calls wait`;
    return (keys) => this.endpoints.values(keys, { hash, about });
  }

  /** Why the ledger would refuse a call in a state, or `null`. */
  dryRun(
    call: LedgerCall,
    facts: Facts,
    given: { readonly nowMs: number; readonly operator: Uint8Array },
  ): Fault | null {
    const outcome = applyCall({
      account: facts.account,
      aliasHolder: (alias: string): Did | null => facts.holders.get(alias) ?? null,
      aliasReserve: (alias: string) => facts.reserves?.get(alias) ?? null,
      ownerReplaces: facts.reserves === null ? ("all" as const) : ("none" as const),
      call,
      ...given,
      proofs: facts.head.proofs,
      bounds: facts.head.metadata.bounds,
    });
    return isRefusal(outcome) ? faultOfRefusal(outcome) : null;
  }

  /**
   * Whether a state shows that a call took effect. A call with a proof raises its counter;
   * a call that the operator signs shows in the content.
   */
  async showsEffect(
    call: LedgerCall,
    { head, account }: Facts,
    operator: Uint8Array,
  ): Promise<boolean> {
    const { record } = account;
    const values = this.agreedValues(call.did, head);
    const counter = counterOf(call);
    if (counter !== null) return account.counters[counter.domain] > counter.nonce;
    switch (call.name) {
      case "register_with_document_proof_signed":
        return isEqual(record?.rootPubkey, call.pubkey) && isEqual(record?.owner, operator);
      case "set_document_with_proof": {
        // Of version 1: a later call in the block may have changed the document, and its
        // time stays.
        const stamp = parseProofTimestamp(call.timestamp);
        if (stamp?.version === "v1" && account.documentTimeMs === BigInt(stamp.timestampMs))
          return true;
        return (
          record?.document != null && isEqual(encodeDidDocument(record.document), call.docBlob)
        );
      }
      case "set_alias":
        return record?.aliases.includes(normalizeAlias(call.alias) ?? "") === true;
      case "set_delivery_policy_links": {
        const { recipientPolicy, tagPolicies, personaPolicies } = call;
        return isDeepStrictEqual(record?.links ?? null, {
          recipientPolicy,
          tagPolicies,
          personaPolicies,
        });
      }
      case "set_delivery_policy":
      case "set_tag_policy":
      case "set_persona_policy":
        return isDeepStrictEqual(
          await policyAt(head, policyScopes[call.name], { key: call.did, values }),
          call.policy,
        );
      default:
        return false;
    }
  }

  private async cached<T>(name: string, read: (session: OpenSession) => Promise<T>): Promise<T> {
    const session = this.endpoints.session();
    const key = `${session.head.hash} ${name}`;
    const known = this.memo.get(key);
    if (known !== undefined) return known as Promise<T>;
    const answer = read(session);
    this.memo.set(key, answer);
    // A failure is not cached.
    answer.catch(() => this.memo.delete(key));
    return answer;
  }
}

/** The values of several keys at the head that is read. */
type Values = (keys: readonly Uint8Array[]) => Promise<readonly (Uint8Array | null)[]>;

async function policyAt(
  head: ChainHead,
  scope: PolicyScope,
  { key, values }: { readonly key: string; readonly values: Values },
): Promise<DeliveryPolicy | PersonaPolicy | null> {
  const map = policyMaps[scope];
  if (head.metadata.absent.has(map)) return null;
  const bytes = (await values([entryKey(map, key)]))[0] ?? null;
  if (bytes === null) return null;
  return (
    (scope === "persona"
      ? decodeWith(personaPolicyCodec, bytes)
      : decodeWith(deliveryPolicyCodec, bytes)) ?? corrupt("policy")
  );
}

async function readFacts(
  head: ChainHead,
  {
    did,
    aliases,
    values: read,
  }: { readonly did: Did; readonly aliases: readonly string[]; readonly values: Values },
): Promise<Facts> {
  const keepsReserves = !head.metadata.absent.has("ReleasedAliases");
  const maps = accountMaps.filter((map) => !head.metadata.absent.has(map));
  const keys = [
    ...entryKeys(maps, did),
    ...aliases.map((alias) => entryKey("AliasIndex", alias)),
    ...(keepsReserves ? aliases.map((alias) => entryKey("ReleasedAliases", alias)) : []),
  ];
  const values = await read(keys);
  const found = new Map<StorageItemName, Uint8Array | null | undefined>(
    maps.map((map, i) => [map, values[i]]),
  );
  const number = (map: (typeof accountMaps)[number]) => decodeUnsigned(found.get(map));
  const record = found.get("Dids") ?? null;
  const byAlias = <T>(from: number, read: (bytes: Uint8Array | null) => T | null): Map<string, T> =>
    new Map(
      aliases.flatMap((alias, i) => {
        const value = read(values[from + i] ?? null);
        return value === null ? [] : [[alias, value]];
      }),
    );
  return {
    head,
    account: {
      record: record === null ? null : (decodeWith(recordCodec, record) ?? corrupt("record")),
      counters: {
        alias: number("AliasNonces"),
        document: number("DocumentNonces"),
        rootPubkey: number("RootPubkeyNonces"),
        control: number("ControlNonces"),
      },
      documentTimeMs: number("DocumentTimes"),
      registrationExpiryMs: number("RegistrationExpiries"),
      life: Number(number("Lives")),
      componentCallsLeft: Number(number("ComponentCallsLeft")),
    },
    holders: byAlias(maps.length, holderOf),
    reserves: keepsReserves ? byAlias(maps.length + aliases.length, reserveOf) : null,
  };
}

/**
 * The value is the DID as a byte string. On a chain with other DIDs as well, an alias of
 * theirs is as taken as any.
 */
function holderOf(bytes: Uint8Array | null): Did | null {
  if (bytes === null) return null;
  const text = decodeUtf8(compactStripLength(bytes)[1]);
  return text === null ? corrupt("alias") : (text as Did);
}

function reserveOf(bytes: Uint8Array | null): AliasReserve | null {
  return bytes === null
    ? null
    : (decodeWith(aliasReserveCodec, bytes) ?? corrupt("reserve of an alias"));
}

const isEqual = (a: Uint8Array | null | undefined, b: Uint8Array): boolean =>
  a != null && equalBytes(a, b);

function corrupt(what: string): never {
  throw new StoreError("corrupt", `the chain has a ${what} that can't be read`);
}

// ------------------------------------------------------------------------------------------ blocks

/** A call of ours in a block, and what surrounds it. */
type BlockExtrinsic = Carried & { readonly frame: Frame };

/**
 * Whether a block has extrinsics that its author did not make: only for those does its
 * runtime matter.
 */
export const hasCalls = ({ extrinsics }: SignedBlock): boolean =>
  extrinsics.some((extrinsic) => headOf(extrinsic) !== null);

const decoded = new WeakMap<SignedBlock, WeakMap<Frame, readonly BlockExtrinsic[]>>();

/**
 * The extrinsics of a block that carry a call which this program may send, by the runtime
 * of the block. Decoded once for all who read the block.
 */
export function extrinsicsIn(
  block: SignedBlock,
  { frame }: Pick<RuntimeMetadata, "frame">,
): readonly BlockExtrinsic[] {
  const byFrame = decoded.get(block) ?? new WeakMap<Frame, readonly BlockExtrinsic[]>();
  decoded.set(block, byFrame);
  const known = byFrame.get(frame);
  if (known !== undefined) return known;
  const found = block.extrinsics.flatMap((extrinsic) => {
    const carried = carriedBy(extrinsic, frame);
    return carried === null || !isOurs(carried.call, frame) ? [] : [{ ...carried, frame }];
  });
  byFrame.set(frame, found);
  return found;
}

// -------------------------------------------------------------------------------- finalized blocks

/** Scans finalized blocks, each once and in order. */
export class FinalizedScan {
  /** Every finalized block up to this one was scanned for pending calls. */
  head: ChainHead | null = null;
  /**
   * The last block that no node could show any more: calls in it or before it may have been
   * missed.
   */
  missed = -1n;
  /** The first of them. */
  private missedHash: string | null = null;
  /** The last block that was scanned; with no hash when it was missed. */
  private last: { readonly number: bigint; readonly hash: string } | null = null;

  constructor(
    private readonly endpoints: Endpoints,
    private readonly log: StoreEnvironment["log"],
  ) {}

  /** No pending call can be in a block up to `head`. */
  skipTo(head: ChainHead): void {
    this.head = head;
    this.last = head;
  }

  /** Whether a head is late: the chain still has the later one that was scanned. */
  async isPast(session: ChainSession, head: ChainHead): Promise<boolean> {
    if (this.head === null || head.number >= this.head.number) return false;
    return (await session.hashAt(this.head.number)) === this.head.hash;
  }

  /**
   * Scans from `oldest` on, without the blocks that were scanned. After a failure the next
   * call continues.
   */
  async upTo(
    session: ChainSession,
    head: ChainHead,
    given: { readonly oldest: bigint; readonly onBlock: (block: SignedBlock) => Promise<void> },
  ): Promise<void> {
    const { oldest, onBlock } = given;
    // A head that is not after the scanned blocks is on another branch, or comes again.
    const { last } = this;
    const goesOn = last !== null && last.number <= head.number && last.number + 1n >= oldest;
    let parent = goesOn ? last.hash : "";
    for (let number = goesOn ? last.number + 1n : oldest; number <= head.number; number++) {
      const hash = number === head.number ? head.hash : await session.hashAt(number);
      const block = await this.endpoints.block(hash);
      if (block === null) this.miss(number, hash);
      else {
        if (block.header.number !== number || (parent !== "" && block.header.parentHash !== parent))
          throw new StoreError("unavailable", "the node's blocks do not follow each other");
        await onBlock(block);
      }
      parent = block === null ? "" : hash;
      this.last = { number, hash: parent };
    }
    this.skipTo(head);
  }

  /** Where an endpoint has the first missed block again, all are scanned anew. Costs a request. */
  async lookForMissed(): Promise<void> {
    const { missedHash } = this;
    if (missedHash === null || (await this.endpoints.block(missedHash)) === null) return;
    this.missed = -1n;
    this.missedHash = null;
    this.last = null;
  }

  private miss(number: bigint, hash: string): void {
    const isFirst = this.missed !== number - 1n;
    this.missed = number;
    this.missedHash ??= hash;
    const text = "no endpoint has blocks any more that may hold pending calls; the state decides";
    if (isFirst) this.log("warn", text, { from: String(number) });
  }
}
