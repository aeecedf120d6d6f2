/**
 * Reading the chain's state at one block: every question is one request to the node, and its answer is cached for
 * as long as that block is the head. Bytes become records by the program's own codec; an unreadable value is
 * `corrupt`, never absent.
 */
import { decodeUtf8, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, didBytesMax, normalizeAlias } from "../../core/codec/did.ts";
import { decodeWith } from "../../core/codec/scale.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { type Account, longerThan } from "../../core/ledger/account.ts";
import { counterOf, intentOfCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { encodeDidDocument } from "../../core/ledger/document-codec.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../../core/ledger/policy.ts";
import { faultOfRefusal, isRefusal, refuse } from "../../core/ledger/refusals.ts";
import { applyCall } from "../../core/ledger/rules.ts";
import { deliveryPolicyCodec, personaPolicyCodec, recordCodec } from "../../core/ledger/structures.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Endpoints, OpenSession } from "./endpoints.ts";
import { isOwned } from "./extrinsic.ts";
import { blockTimeMsDefault, type MapName } from "./layouts.ts";
import { storageKeys, u32Of, u64Of } from "./metadata.ts";
import type { Head, Session } from "./session.ts";

/** What decides over a call, all of one block. */
export type Facts = {
  readonly head: Head;
  readonly account: Account;
  readonly holders: ReadonlyMap<string, Did>;
  /** The block at which the DID may make all its calls with a proof at once again. */
  readonly allowanceWholeAt: bigint;
};

const memoMax = 10_000;

const accountMaps = [
  "Dids",
  "AliasNonces",
  "DocumentNonces",
  "RootPubkeyNonces",
  "ControlNonces",
  "DocumentTimes",
  "RegistrationExpiries",
] as const satisfies readonly MapName[];

const optionalMaps = ["Lives", "ProofAllowances"] as const;

const policyMaps = {
  recipient: "RecipientPolicies",
  tag: "TagPolicies",
  persona: "PersonaPolicies",
} as const satisfies Record<PolicyScope, MapName>;

export class Reader {
  private readonly memo = new Map<string, Promise<unknown>>();
  private memoHead = "";

  constructor(private readonly endpoints: Endpoints) {}

  async account(did: Did): Promise<Account> {
    return (await this.facts(did, [])).account;
  }

  async aliasHolder(alias: string): Promise<Did | null> {
    if (normalizeAlias(alias) !== alias) return null;
    return this.cached(`alias ${alias}`, async (session) => {
      const key = storageKeys(session.head.metadata).entry("AliasIndex", alias);
      return holderOf((await session.values([key], session.head.hash))[0] ?? null);
    });
  }

  async policy(scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null> {
    if (longerThan(key, didBytesMax) || !key.isWellFormed()) return null;
    return this.cached(`${scope} ${key}`, ({ head }) => this.policyAt(head, scope, key));
  }

  /** The account and the holders of some aliases, of one block and in one question. */
  async facts(did: Did, aliases: readonly string[]): Promise<Facts> {
    const read = (session: OpenSession) => readFacts({ session, head: session.head }, did, aliases);
    return aliases.length > 0 ? read(this.endpoints.session()) : this.cached(`facts ${did}`, read);
  }

  /** At one head, which need not be the newest. */
  factsAt(head: Head, did: Did, aliases: readonly string[]): Promise<Facts> {
    return readFacts({ session: this.endpoints.session(), head }, did, aliases);
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
      call,
      ...given,
      proofs: facts.head.proofs,
      bounds: facts.head.metadata.bounds,
    });
    return isRefusal(outcome) ? faultOfRefusal(outcome) : null;
  }

  /**
   * Whether a state shows that a call took effect. A proof is used up by its call, so its counter shows it; what the
   * operator signs shows in the content.
   */
  async showsEffect(call: LedgerCall, { head, account }: Facts, operator: Uint8Array): Promise<boolean> {
    const { record } = account;
    const counter = counterOf(call);
    if (counter !== null) return account.counters[counter.domain] > counter.nonce;
    switch (call.name) {
      case "register_with_document_proof_signed":
        return isEqual(record?.rootPubkey, call.pubkey) && isEqual(record?.owner, operator);
      case "set_document_with_proof":
        return record?.document != null && isEqual(encodeDidDocument(record.document), call.docBlob);
      case "set_alias":
        return record?.aliases.length === 1 && record.aliases[0] === normalizeAlias(call.alias);
      case "set_delivery_policy_links": {
        const { recipientPolicy, tagPolicies, personaPolicies } = call;
        return isSame(record?.links ?? null, { recipientPolicy, tagPolicies, personaPolicies });
      }
      case "set_delivery_policy":
        return isSame(await this.policyAt(head, "recipient", call.did), call.policy);
      case "set_tag_policy":
        return isSame(await this.policyAt(head, "tag", call.did), call.policy);
      case "set_persona_policy":
        return isSame(await this.policyAt(head, "persona", call.did), call.policy);
      default:
        return false;
    }
  }

  private async policyAt(head: Head, scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null> {
    const entry = storageKeys(head.metadata).entry(policyMaps[scope], key);
    const bytes = (await this.endpoints.session().values([entry], head.hash))[0] ?? null;
    if (bytes === null) return null;
    return (
      (scope === "persona" ? decodeWith(personaPolicyCodec, bytes) : decodeWith(deliveryPolicyCodec, bytes)) ??
      corrupt("policy")
    );
  }

  private cached<T>(name: string, read: (session: OpenSession) => Promise<T>): Promise<T> {
    let session: ReturnType<Endpoints["session"]>;
    try {
      session = this.endpoints.session();
    } catch (error) {
      return Promise.reject(error);
    }
    if (this.memoHead !== session.head.hash || this.memo.size >= memoMax) this.memo.clear();
    this.memoHead = session.head.hash;
    const known = this.memo.get(name);
    if (known !== undefined) return known as Promise<T>;
    const answer = read(session);
    this.memo.set(name, answer);
    // A failure is for those who waited for it, and not cached.
    answer.catch(() => {
      if (this.memo.get(name) === answer) this.memo.delete(name);
    });
    return answer;
  }
}

/**
 * What the chain does not accept yet, because the DID has made many calls with a proof in a short time; `null` when it
 * takes the call. Law: docs/ledger.md 1.7, "Allowance".
 */
export function beyondAllowance(call: LedgerCall, { head, allowanceWholeAt }: Facts): Fault | null {
  const { proofLimit, blockTimeMs } = head.metadata;
  if (proofLimit === null || isOwned(call)) return null;
  const { atOnce, inReserve, intervalBlocks } = proofLimit;
  const calls = drawsOnReserve(call) ? atOnce + inReserve : atOnce;
  const usedBlocks = allowanceWholeAt > head.number ? allowanceWholeAt - head.number : 0n;
  const waitBlocks = Number(usedBlocks + intervalBlocks - calls * intervalBlocks);
  if (waitBlocks <= 0) return null;
  const retryAfterSeconds = Math.ceil((waitBlocks * (blockTimeMs ?? blockTimeMsDefault)) / 1_000);
  const { detail } = faultOfRefusal(refuse("TooManyProofs"));
  return fault("rate_limited", detail, { retryAfterSeconds });
}

/** What saves a DID from a thief, or ends it. */
function drawsOnReserve(call: LedgerCall): boolean {
  if (call.name === "update_root_pubkey") return true;
  if (call.name !== "apply_control_with_proof") return false;
  const intent = intentOfCall(call);
  return !isRefusal(intent) && (intent.action === "deactivate_did" || intent.action === "delete_did");
}

async function readFacts(
  { session, head }: { readonly session: Session; readonly head: Head },
  did: Did,
  aliases: readonly string[],
): Promise<Facts> {
  const { entry, optionalEntry } = storageKeys(head.metadata);
  const own = accountMaps.map((map) => entry(map, did));
  const optional = optionalMaps.map((map) => optionalEntry(map, did));
  const keys = [...own, ...aliases.map((alias) => entry("AliasIndex", alias))];
  const all = await session.values([...keys, ...optional.filter((key) => key !== null)], head.hash);
  const values = all.slice(0, keys.length);
  const rest = all.slice(keys.length);
  // A chain of the family need not have them.
  const [life, wholeAt] = optional.map((key) => {
    const bytes = key === null ? null : rest.shift();
    return bytes == null ? 0 : u32Of(bytes);
  }) as [number, number];
  const [record, ...counts] = values.slice(0, accountMaps.length);
  const [alias, document, rootPubkey, control, documentTimeMs, registrationExpiryMs] = counts.map((bytes) =>
    bytes === null ? 0n : u64Of(bytes),
  ) as [bigint, bigint, bigint, bigint, bigint, bigint];
  const holders = aliases.flatMap((name, i) => {
    const holder = holderOf(values[accountMaps.length + i] ?? null);
    return holder === null ? [] : [[name, holder] as const];
  });
  return {
    head,
    account: {
      record: record === null || record === undefined ? null : (decodeWith(recordCodec, record) ?? corrupt("record")),
      counters: { alias, document, rootPubkey, control },
      documentTimeMs,
      registrationExpiryMs,
      life,
    },
    holders: new Map(holders),
    allowanceWholeAt: BigInt(wholeAt),
  };
}

/**
 * The value is a byte string: a compact length of one or two bytes, then the DID. A chain may hold DIDs of
 * other services as well; an alias of theirs is as taken as any.
 */
function holderOf(bytes: Uint8Array | null): Did | null {
  if (bytes === null) return null;
  const text = decodeUtf8(bytes.subarray((bytes[0] ?? 0) % 4 === 0 ? 1 : 2));
  return text === null ? corrupt("alias") : (text as Did);
}

const isEqual = (a: Uint8Array | null | undefined, b: Uint8Array): boolean => a != null && equalBytes(a, b);

/** Of plain records; members in any order. */
function isSame(a: unknown, b: unknown): boolean {
  return canonical(a) === canonical(b);
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => {
    if (typeof one === "bigint") return one.toString();
    if (typeof one !== "object" || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).sort(([x], [y]) => (x < y ? -1 : 1)));
  });
}

function corrupt(what: string): never {
  throw new StoreError("corrupt", `the chain has a ${what} that can't be read`);
}
