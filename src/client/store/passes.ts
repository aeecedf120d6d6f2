/**
 * Passes: by them the Caches of this identity know whom its user has accepted, without names, and those people show theirs
 * with what they send. Secrets and ids come from the root key, so all own devices make the same, and nothing survives new
 * keys: the next message to each person brings a new pass.
 * Source: docs/interface.md "Passes", docs/protocol.md "Content".
 */
import { sha256 } from "#sha256";
import { encodeBase64Url, encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, hourMs } from "../../core/codec/time.ts";
import {
  lastDayOf,
  makePass,
  parsePass,
  passName,
  passPeriod,
  passPeriods,
  renderPass,
  showPass,
} from "../../core/message/pass.ts";
import { passesMax, revokedPassesMax } from "../../core/schema/passes.ts";
import { attempt } from "../base/failure.ts";
import { type GroupRow, upgradeRow } from "../groups/bundles.ts";
import { parseMediaType } from "../mail/content.ts";
import type { ReadMessage } from "../mail/retrieve.ts";
import type { ShowPass } from "../mail/send.ts";
import { knowsPasses } from "../net/about.ts";
import { passesShape } from "../net/answers.ts";
import { fetchChecked, jsonBody, path } from "../net/http.ts";
import { proofHeaders, type Reader } from "../net/reader.ts";
import { cachesOf } from "../trust/caches.ts";
import { factsOf } from "./group-rows.ts";
import { type GivenPass, keepPasses, PassRelay, passKeysOf } from "./kept-passes.ts";
import { keyOfPass, keyOfPerson, passesKey, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./rows.ts";
import type { Batch, Table } from "./table.ts";

export type PassRow = GivenPass;

/** What the Caches were last told. */
type PutRow = {
  readonly atMs: number;
  /** SHA-256 of the body in hex. */
  readonly digest: string;
  /** Addresses of the Caches; earlier programs kept none. */
  readonly at?: string;
};

/** A Cache forgets after 400 days. */
const againMs = 30 * dayMs;

export class Passes {
  readonly #own: OwnStore;
  readonly #table: Table;
  readonly #relay = new PassRelay();
  /** When the own document is read next, which may name other Caches. */
  #lookAtMs = 0;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  /**
   * What a message to somebody brings: a pass to the own mailbox, for people who were accepted and for members of groups.
   * `null` as long as no own Cache knows the secret.
   */
  async given(to: Did, mediaType: string): Promise<string | null> {
    if ((await this.#table.get<PutRow>(passesKey)) === null) return null;
    const person = await this.#table.get<Person>(keyOfPerson(this.#table, to));
    const isAccepted = person?.isKnown === true || parseMediaType(mediaType).group !== null;
    if (!isAccepted || person?.isBlocked === true) return null;
    return renderPass(makePass(this.#keys(), to, passPeriod(this.#own.nowMs())));
  }

  /** By what a person's mailbox knows this identity; `null` without a pass, or where the Relay hands none on. */
  async shownTo(to: Did): Promise<ShowPass | null> {
    const row = await this.#table.get<PassRow>(keyOfPass(this.#table, to));
    const pass = row === null ? null : parsePass(row.pass);
    if (pass === null || !(await this.#relay.handsOn(this.#own.identity.client.relay))) return null;
    return (envelope) => showPass(pass, envelope);
  }

  /**
   * For programs that have no store: keeps next to the keys what people gave, the passes of known people first, and
   * whether own ones are given. Where they are, reports to the Caches how many count by now.
   */
  async keep(): Promise<void> {
    const areGiven = (await this.#table.get<PutRow>(passesKey)) !== null;
    if (areGiven) await attempt(() => this.put());
    const [known, others]: [PassRow[], PassRow[]] = [[], []];
    for await (const [, row] of this.#table.all<PassRow>(rowsOf.passes)) {
      const person = await this.#table.get<Person>(keyOfPerson(this.#table, row.did));
      (person?.isKnown === true ? known : others).push(row);
    }
    const { memory } = this.#own.identity.client.known;
    await keepPasses(memory, { areGiven, passes: [...known, ...others] });
  }

  /**
   * Gives the Caches the secret, how many passes count, and which don't any more: when that has changed, and once a month;
   * when the document names others, within the hour, or at once after `moved`.
   * Throws when a Cache that checks passes could not be reached.
   */
  async put(): Promise<void> {
    const body = jsonBody(await this.#wanted());
    const digest = encodeHex(sha256(body));
    const before = await this.#table.get<PutRow>(passesKey);
    const nowMs = this.#own.nowMs();
    const isSame = before?.digest === digest && nowMs - before.atMs < againMs;
    if (isSame && Date.now() < this.#lookAtMs) return;
    const { client, secrets } = this.#own.identity;
    const caches = await cachesOf(client, secrets);
    const at = caches.map(({ reader }) => reader.at.url).join(" ");
    this.#lookAtMs = Date.now() + hourMs;
    if (isSame && before.at === at) return;
    let isChecked = false;
    for (const { reader } of caches) {
      if (!(await knowsPasses(reader.at))) continue;
      await putAt(reader, body);
      isChecked = true;
    }
    if (!isChecked) return;
    await this.#table.change(async (batch) =>
      batch.put(passesKey, { atMs: nowMs, digest, at } satisfies PutRow),
    );
  }

  /** The document may name other Caches by now. */
  moved(): void {
    this.#lookAtMs = 0;
  }

  async #wanted(): Promise<object> {
    const { did: own } = this.#own;
    const accepted = new Set<Did>();
    const [blocked, strangers]: [Did[], Did[]] = [[], []];
    for await (const [, { did, isKnown, isBlocked }] of this.#table.all<Person>(rowsOf.people)) {
      // Who was accepted before surely has a pass; a stranger may have one of a group.
      if (isBlocked) (isKnown ? blocked : strangers).push(did);
      else if (isKnown) accepted.add(did);
    }
    for await (const [, row] of this.#table.all<GroupRow>(rowsOf.groups)) {
      const { members, standing } = factsOf(upgradeRow(row), own);
      if (standing === "joined") for (const did of members) accepted.add(did);
    }
    accepted.delete(own);
    const keys = this.#keys();
    const revoked = [...blocked, ...strangers].flatMap((did) =>
      passPeriods(this.#own.nowMs()).map((period) => passName(makePass(keys, did, period).id)),
    );
    return {
      secret: encodeBase64Url(keys.secret),
      passes: Math.min(accepted.size, passesMax),
      revoked: revoked.slice(0, revokedPassesMax),
    };
  }

  #keys() {
    return passKeysOf(this.#own.identity.secrets.rootSeed);
  }
}

/** Keeps the pass that came in a message of a proven author. */
export async function takePass(
  table: Table,
  batch: Batch,
  { from, verified, pass }: Pick<ReadMessage, "from" | "verified" | "pass">,
): Promise<void> {
  if (from !== null && verified === true && typeof pass === "string")
    await putPass(table, batch, { did: from, pass });
}

/** Of two, the one that counts for longer; of two of one quarter, as after new keys, the one that came last. */
export async function putPass(table: Table, batch: Batch, given: PassRow): Promise<void> {
  const key = keyOfPass(table, given.did);
  const pass = parsePass(given.pass);
  const before = await batch.get<PassRow>(key);
  const held = before === null ? null : parsePass(before.pass);
  if (pass === null || before?.pass === given.pass) return;
  if (held !== null && lastDayOf(held) > lastDayOf(pass)) return;
  batch.put(key, given);
  batch.log(key);
}

async function putAt(reader: Reader, body: Uint8Array<ArrayBuffer>): Promise<void> {
  const headers = await proofHeaders(reader, "pass", encodeHex(sha256(body)));
  const where = path`/cache/pass/${reader.did}`;
  await fetchChecked(reader.at, { method: "PUT", path: where, headers, body }, passesShape);
}
