/**
 * What the own Caches know of passes: the secret by which they check them, how many count, and
 * which don't any more; and what a program without a store finds of them next to the keys.
 * Source: docs/interface.md "Passes".
 */
import { sha256 } from "#sha256";
import { encodeBase64Url, encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, hourMs } from "../../core/codec/time.ts";
import { makePass, passName, passPeriods } from "../../core/message/pass.ts";
import { passesMax, revokedPassesMax } from "../../core/schema/passes.ts";
import { attempt } from "../base/failure.ts";
import { type GroupRow, upgradeRow } from "../groups/bundles.ts";
import { knowsPasses } from "../net/about.ts";
import { passesShape } from "../net/answers.ts";
import { fetchChecked, jsonBody, path } from "../net/http.ts";
import { proofHeaders, type Reader } from "../net/reader.ts";
import { cachesOf } from "../trust/caches.ts";
import { factsOf } from "./group-rows.ts";
import { keyOfPerson, passesKey, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import { keepPasses, type PassRow, passKeysOf } from "./passes.ts";
import type { Person } from "./person-shape.ts";
import type { Table } from "./table.ts";

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

export class OwnPasses {
  readonly #own: OwnStore;
  readonly #table: Table;
  /** When the own document is read next, which may name other Caches. */
  #lookAtMs = 0;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  /**
   * For programs that have no store: keeps next to the keys what people gave, the passes of
   * known people first, and whether own ones are given. Where they are, reports to the
   * Caches how many count by now.
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
   * Gives the Caches the secret, how many passes count, and which don't any more: when
   * that has changed, and once a month; when the document names others, within the hour,
   * or at once after `moved`.
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
    const keys = passKeysOf(this.#own.identity.secrets.rootSeed);
    const revoked = [...blocked, ...strangers].flatMap((did) =>
      passPeriods(this.#own.nowMs()).map((period) => passName(makePass(keys, did, period).id)),
    );
    return {
      secret: encodeBase64Url(keys.secret),
      passes: Math.min(accepted.size, passesMax),
      revoked: revoked.slice(0, revokedPassesMax),
    };
  }
}

async function putAt(reader: Reader, body: Uint8Array<ArrayBuffer>): Promise<void> {
  const headers = await proofHeaders(reader, "pass", encodeHex(sha256(body)));
  const where = path`/cache/pass/${reader.did}`;
  await fetchChecked(reader.at, { method: "PUT", path: where, headers, body }, passesShape);
}
