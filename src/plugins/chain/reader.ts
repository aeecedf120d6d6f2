/**
 * Reading the chain's state at one block: every question is one request to the node, and its answer is cached for
 * as long as that block is the head. Bytes become records by the program's own codec; an unreadable value is
 * `corrupt`, never absent.
 */
import { decodeUtf8, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, didBytesMax, normalizeAlias } from "../../core/codec/did.ts";
import { decodeWith } from "../../core/codec/scale.ts";
import type { Fault } from "../../core/fault.ts";
import { type Account, longerThan } from "../../core/ledger/account.ts";
import { counterOf, type LedgerCall } from "../../core/ledger/calls.ts";
import { encodeDidDocument } from "../../core/ledger/document-codec.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../../core/ledger/policy.ts";
import { faultOfRefusal, isRefusal } from "../../core/ledger/refusals.ts";
import { applyCall } from "../../core/ledger/rules.ts";
import { deliveryPolicyCodec, personaPolicyCodec, recordCodec } from "../../core/ledger/structures.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Endpoints, OpenSession } from "./endpoints.ts";
import type { MapName } from "./layouts.ts";
import { storageKeys, u32Of, u64Of } from "./metadata.ts";
import type { Head, Session } from "./session.ts";

/** What decides over a call, all of one block. */
export type Facts = {
  readonly head: Head;
  readonly account: Account;
  readonly holders: ReadonlyMap<string, Did>;
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

const policyMaps = {
  recipient: "RecipientPolicies",
  tag: "TagPolicies",
  persona: "PersonaPolicies",
} as const satisfies Record<PolicyScope, MapName>;

export class Reader {
  private readonly memo = new Map<string, Promise<unknown>>();
  private memoHead = "";

  constructor(private readonly endpoints: Endpoints) {}

  account(did: Did): Promise<Account> {
    return this.cached(
      `account ${did}`,
      async (session) => (await readFacts({ session, head: session.head }, did, [])).account,
    );
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
    const session = this.endpoints.session();
    if (aliases.length > 0) return readFacts({ session, head: session.head }, did, aliases);
    const { head } = session;
    return { head, account: await this.account(did), holders: new Map() };
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

async function readFacts(
  { session, head }: { readonly session: Session; readonly head: Head },
  did: Did,
  aliases: readonly string[],
): Promise<Facts> {
  const { entry, life: lifeKey } = storageKeys(head.metadata);
  const lives = [lifeKey(did)].filter((key) => key !== null);
  const named = aliases.map((alias) => entry("AliasIndex", alias));
  const keys = [...accountMaps.map((map) => entry(map, did)), ...named, ...lives];
  const values = await session.values(keys, head.hash);
  const [record, ...counts] = values.slice(0, accountMaps.length);
  const [alias, document, rootPubkey, control, documentTimeMs, registrationExpiryMs] = counts.map((bytes) =>
    bytes === null ? 0n : u64Of(bytes),
  ) as [bigint, bigint, bigint, bigint, bigint, bigint];
  const life = lives.length === 0 ? null : values.at(-1);
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
      // A chain of the family that does not count deletions can't say.
      life: life === null || life === undefined ? 0 : u32Of(life),
    },
    holders: new Map(holders),
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
  throw new StoreError("corrupt", `the chain holds a ${what} that can't be read`);
}
