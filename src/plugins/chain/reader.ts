/**
 * Reading the chain's state at one block: every question is one request to the node, and what it answered
 * is remembered for as long as that block is the head. Bytes become records by the program's own codec;
 * a value that can't be read is `corrupt`, never absent.
 */

import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, didBytesMax, normalizeAlias } from "../../core/codec/did.ts";
import { decodeWith } from "../../core/codec/scale.ts";
import type { Account } from "../../core/ledger/account.ts";
import { longerThan } from "../../core/ledger/bounds.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../../core/ledger/policy.ts";
import { deliveryPolicyCodec, personaPolicyCodec, recordCodec } from "../../core/ledger/structures.ts";
import { StoreError } from "../../storage/contract.ts";
import { storageKeys, u64Of } from "./keys.ts";
import type { MapName } from "./layouts.ts";
import type { Link } from "./link.ts";
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

  constructor(private readonly link: Link) {}

  account(did: Did): Promise<Account> {
    return this.remembered(`account ${did}`, async (session) => (await readFacts(session, did, [])).account);
  }

  async aliasHolder(alias: string): Promise<Did | null> {
    if (normalizeAlias(alias) !== alias) return null;
    return this.remembered(`alias ${alias}`, async (session) => {
      const key = storageKeys(session.head.surface).entry("AliasIndex", alias);
      return holderOf((await session.values([key], session.head.hash))[0] ?? null);
    });
  }

  async policy(scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null> {
    if (longerThan(key, didBytesMax) || !key.isWellFormed()) return null;
    return this.remembered(`${scope} ${key}`, async (session) => {
      const entry = storageKeys(session.head.surface).entry(policyMaps[scope], key);
      const bytes = (await session.values([entry], session.head.hash))[0] ?? null;
      if (bytes === null) return null;
      return (
        (scope === "persona" ? decodeWith(personaPolicyCodec, bytes) : decodeWith(deliveryPolicyCodec, bytes)) ??
        corrupt("policy")
      );
    });
  }

  /** The account and the holders of some aliases, of one block and in one question. */
  async facts(did: Did, aliases: readonly string[]): Promise<Facts> {
    const session = this.link.session();
    if (aliases.length > 0) return readFacts(session, did, aliases);
    const { head } = session;
    return { head, account: await this.account(did), holders: new Map() };
  }

  private remembered<T>(name: string, read: (session: Session & { readonly head: Head }) => Promise<T>): Promise<T> {
    let session: ReturnType<Link["session"]>;
    try {
      session = this.link.session();
    } catch (error) {
      return Promise.reject(error);
    }
    if (this.memoHead !== session.head.hash || this.memo.size >= memoMax) this.memo.clear();
    this.memoHead = session.head.hash;
    const known = this.memo.get(name);
    if (known !== undefined) return known as Promise<T>;
    const answer = read(session);
    this.memo.set(name, answer);
    // A failure is for those who waited for it, and not remembered.
    answer.catch(() => {
      if (this.memo.get(name) === answer) this.memo.delete(name);
    });
    return answer;
  }
}

async function readFacts(
  session: Session & { readonly head: Head },
  did: Did,
  aliases: readonly string[],
): Promise<Facts> {
  const { head } = session;
  const { entry } = storageKeys(head.surface);
  const keys = [...accountMaps.map((map) => entry(map, did)), ...aliases.map((alias) => entry("AliasIndex", alias))];
  const values = await session.values(keys, head.hash);
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
      // The chain does not count deletions.
      life: 0,
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

function corrupt(what: string): never {
  throw new StoreError("corrupt", `the chain holds a ${what} that can't be read`);
}
