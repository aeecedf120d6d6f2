/**
 * The signatures of what is said of a group. Each costs a look-up of its signer's root keys, and
 * who is not in a group, or was removed, may send bundles that name anybody: so only people of
 * the group are looked up.
 * Source: docs/protocol.md "Groups".
 */
import { decodeBase64, decodeHex, encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError, isTemporary } from "../base/failure.ts";
import {
  type Bundle,
  type BySignature,
  type GroupRow,
  parseBundle,
  type SignedHandOver,
  type SignedLeaving,
  type SignedStatement,
} from "../groups/bundles.ts";
import { namesOf } from "../groups/handing.ts";
import { leavingsAbout } from "../groups/relevant.ts";
import { handOverText, leavingText, statementText } from "../groups/statements.ts";
import { isOverruled, successorIdOf } from "../groups/witnesses.ts";
import { verifySignature } from "../keys/crypto.ts";
import { rootKeyOf } from "../trust/client.ts";
import { type Examined, type Judged, rowNamed } from "./group-hearing.ts";
import type { OwnStore } from "./own-store.ts";

/** What was found of whom, in one look at what members say: each of them is asked for once. */
export type RootsFound = Map<Did, string[] | "not believed" | ClientError>;
/** `from`: who shows it. */
type Looking = { readonly from: Did; readonly look: RootsFound };
/**
 * `from` is this identity where another own device shows it: then what
 * can't be looked up now waits.
 */
type Bringing = {
  readonly id: string;
  readonly from: Did;
  /** The group as far as it is known here. */
  readonly row: GroupRow | null;
  readonly sinceMs: number;
};

/**
 * A key that was replaced meanwhile counts so long while the Directory is away; after
 * that what it signed waits.
 */
const awayMs = 15 * minuteMs;

export class GroupJudging {
  readonly #own: OwnStore;

  constructor(own: OwnStore) {
    this.#own = own;
  }

  /**
   * Looks at the signatures of a bundle, without changing anything. Throws a temporary failure when
   * a key can't be looked up now: the message waits.
   */
  async examine(id: string, from: Did, json: unknown): Promise<Examined | null> {
    const bundle = parseBundle(json, id);
    if (bundle === null) return null;
    const row = await rowNamed(this.#own.table, [
      id,
      ...(bundle.handOvers ?? []).map((one) => one.id),
    ]);
    return this.judge(bundle, { id, from, row, sinceMs: this.#own.nowMs() });
  }

  async judge(
    { statements: said, leavings: gone, handOvers: next = [] }: Bundle,
    bringing: Bringing,
    look: RootsFound = new Map(),
  ): Promise<Examined> {
    const { id, from, row, sinceMs } = bringing;
    const statements = await this.#statements(said, { from, look });
    const isOwn = from === this.#own.did;
    const leavings = isOwn
      ? await this.#leavings(gone, { from, look })
      : await this.#membersLeavings(gone, statements, bringing, look);
    const handOvers = isOwn
      ? await this.#handOvers(next, { from, look })
      : await this.#handOversOnWay(next, row === null ? [id] : namesOf(row), { from, look });
    const counting = handOvers.map((said) => {
      const roots = look.get(said.one.maker);
      const isVoid = Array.isArray(roots) && isOverruled(said.one, row?.spoke, roots);
      return isVoid ? { ...said, by: "other" as const } : said;
    });
    const isNextOld =
      row !== null && namesOf(row).includes(id) && (await this.#isNextOld(row, look));
    return { from, statements, leavings, handOvers: counting, isNextOld, sinceMs };
  }

  // ----------------------------------------------------------------------------------------- parts

  #statements(all: readonly SignedStatement[], by: Looking): Promise<Examined["statements"]> {
    return this.#judgedAll(all, by, ({ statement }) => [statement.maker, statementText(statement)]);
  }

  #leavings(all: readonly SignedLeaving[], by: Looking): Promise<Examined["leavings"]> {
    return this.#judgedAll(all, by, (one) => [one.did, leavingText(one)]);
  }

  #handOvers(all: readonly SignedHandOver[], by: Looking): Promise<Examined["handOvers"]> {
    return this.#judgedAll(all, by, (one) => [one.maker, handOverText(one)]);
  }

  /** One after the other: what was found of a signer counts for all that they have signed. */
  async #judgedAll<T extends BySignature>(
    all: readonly T[],
    by: Looking,
    signedIn: (one: T) => readonly [signer: Did, text: Uint8Array],
  ): Promise<{ readonly one: T; readonly by: Judged }[]> {
    const judged: { readonly one: T; readonly by: Judged }[] = [];
    for (const one of all) {
      const [signer, text] = signedIn(one);
      judged.push({ one, by: await this.#judged({ ...by, signer }, text, one) });
    }
    return judged;
  }

  /**
   * Of who is in by what is known or counts here. With a statement that can't be
   * judged so far a leaving waits.
   */
  async #membersLeavings(
    all: readonly SignedLeaving[],
    statements: Examined["statements"],
    { from, row }: Bringing,
    look: RootsFound,
  ): Promise<Examined["leavings"]> {
    const said = (wanted: Judged) =>
      statements.filter(({ by }) => by === wanted).map(({ one }) => one.statement);
    const counting = leavingsAbout(all, { row, said: said("in_force"), from });
    const open = leavingsAbout(all, { row, said: said("unknown"), from });
    const judged = await this.#leavings(counting, { from, look });
    const waiting = open.filter((one) => !counting.includes(one));
    return [...judged, ...waiting.map((one) => ({ one, by: "unknown" as const }))];
  }

  /**
   * As far as they lead to or from the group by ones that may count; one behind a
   * doubtful one waits with that.
   */
  async #handOversOnWay(
    all: readonly SignedHandOver[],
    names: readonly string[],
    by: Looking,
  ): Promise<Examined["handOvers"]> {
    const [reached, doubtful] = [new Set(names), new Set<string>()];
    const touches = (ids: ReadonlySet<string>) => (one: SignedHandOver) =>
      ids.has(one.id) || ids.has(successorIdOf(one));
    const left = [...all];
    const judged: Examined["handOvers"][number][] = [];
    for (;;) {
      const near = left.find(touches(reached));
      const one = near ?? left.find(touches(doubtful));
      if (one === undefined) break;
      left.splice(left.indexOf(one), 1);
      const verdicts = near === undefined ? [] : await this.#handOvers([one], by);
      const verdict = verdicts[0] ?? { one, by: "unknown" as const };
      judged.push(verdict);
      const ids = [one.id, successorIdOf(one)];
      if (verdict.by === "in_force" || verdict.by === "earlier")
        for (const id of ids) reached.add(id);
      if (verdict.by === "unknown") for (const id of ids) doubtful.add(id);
    }
    // As they came: of two the first one counts.
    return judged.sort((a, b) => all.indexOf(a.one) - all.indexOf(b.one));
  }

  /** What was not followed so far counts no longer when its key is known to have been replaced. */
  async #isNextOld({ state, handOvers = [] }: GroupRow, look: RootsFound): Promise<boolean> {
    const { id, maker, next } = state;
    if (next === undefined || maker === this.#own.did || !isSelfCertifying(maker)) return false;
    const known = handOvers.filter((one) => one.id === id && one.next === next);
    const judged = await this.#handOvers(known, { from: maker, look });
    return !judged.some(({ by }) => by === "in_force");
  }

  // --------------------------------------------------------------------------------- one signature

  async #judged(
    { signer, from, look }: Looking & { readonly signer: Did },
    text: Uint8Array,
    { key, signature }: BySignature,
  ): Promise<Judged> {
    const publicKey = decodeHex(key) ?? new Uint8Array(32);
    const bytes = decodeBase64(signature) ?? new Uint8Array(0);
    if (bytes.length !== 64 || !(await verifySignature(bytes, text, publicKey))) return "other";
    const isOwn = from === this.#own.did;
    const roots = look.get(signer) ?? (await attempt(() => this.#rootsOf(signer)));
    look.set(signer, roots);
    if (roots instanceof ClientError && isOwn) return "unknown";
    if (roots instanceof ClientError) throw roots;
    if (roots === "not believed") return "other";
    const at = roots.indexOf(key);
    // Of a random DID nothing is proven: it counts from the signer only, or from an own device
    // that has heard it there.
    if (!isSelfCertifying(signer))
      return at >= 0 && (from === signer || isOwn) ? "in_force" : "other";
    if (at === -1) return "unknown";
    return at === roots.length - 1 ? "in_force" : "earlier";
  }

  /** The last one is in force. */
  async #rootsOf(did: Did): Promise<string[] | "not believed"> {
    const { client } = this.#own.identity;
    const asked = await attempt(async () =>
      isSelfCertifying(did)
        ? (await client.trust.prove(did, null)).rootKeys
        : [await rootKeyOf(client, did)],
    );
    if (!(asked instanceof ClientError)) return asked.map(encodeHex);
    if (!isTemporary(asked)) return "not believed";
    const known = client.trust.provenOf(did);
    const isFresh = known !== null && performance.now() - known.shownMs < awayMs;
    if (!isFresh) throw asked;
    return known.state.rootKeys.map(encodeHex);
  }
}
