/**
 * Passes in messages: what a message to somebody gives and shows, and what comes in one. By them
 * the Caches of an identity know whom its user has accepted, without names. Secrets and ids come
 * from the root key, so all own devices make the same, and nothing survives new keys: the next
 * message to each person brings a new pass. What those Caches know is in `own-passes.ts`.
 * Source: docs/interface.md "Passes", docs/protocol.md "Content", docs/client.md "Sending".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs } from "../../core/codec/time.ts";
import {
  lastDayOf,
  makePass,
  type Pass,
  parsePass,
  passPeriod,
  renderPass,
  showPass,
} from "../../core/message/pass.ts";
import { attempt } from "../base/failure.ts";
import { array, keptDid, object, renderKept, text, truth } from "../base/shapes.ts";
import { hkdf } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { parseMediaType } from "../mail/content.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import type { ReadMessage } from "../mail/retrieve.ts";
import type { ShowPass } from "../mail/send.ts";
import { knowsPasses } from "../net/about.ts";
import type { Endpoint } from "../net/http.ts";
import { recall } from "../trust/trust.ts";
import { keyOfPass, keyOfPerson, passesKey } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import type { Batch, Table } from "./table.ts";

/** What a program that only sends shows and gives. */
const keptPassesShape = object({
  areGiven: truth,
  passes: array(object({ did: keptDid, pass: text })),
});

const handedKeptMs = 5 * minuteMs;
/**
 * Longer than any quarter: a pass may be of the next one, since the clock of
 * who gives it may be ahead.
 */
const quarterMs = 92 * dayMs;

/** A pass that somebody gave, as text. */
export type PassRow = { readonly did: Did; readonly pass: string };

/** The own secrets, from the root key: new keys end all passes. */
export function passKeysOf(rootSeed: Uint8Array): {
  readonly secret: Uint8Array;
  readonly namingKey: Uint8Array;
} {
  const derive = (purpose: string) => hkdf(rootSeed, null, utf8(`waypost:passes:${purpose}`), 32);
  return { secret: derive("secret"), namingKey: derive("name") };
}

/** Whether a Relay hands passes on, as it last said. */
class PassRelay {
  #isKnown = false;
  #untilMs = 0;

  async handsOn(relay: Endpoint): Promise<boolean> {
    if (this.#untilMs < Date.now()) {
      this.#isKnown = (await attempt(() => knowsPasses(relay))) === true;
      this.#untilMs = Date.now() + handedKeptMs;
    }
    return this.#isKnown;
  }
}

/** With a local store. */
export class Passes {
  readonly #own: OwnStore;
  readonly #table: Table;
  readonly #relay = new PassRelay();

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  /**
   * What a message to somebody brings: a pass to the own mailbox, for people who were accepted and
   * for members of groups. `null` as long as no own Cache knows the secret.
   */
  async given(to: Did, mediaType: string): Promise<string | null> {
    if ((await this.#table.get(passesKey)) === null) return null;
    const person = await this.#table.get<Person>(keyOfPerson(this.#table, to));
    const isAccepted = person?.isKnown === true || parseMediaType(mediaType).group !== null;
    if (!isAccepted || person?.isBlocked === true) return null;
    const keys = passKeysOf(this.#own.identity.secrets.rootSeed);
    return renderPass(makePass(keys, to, passPeriod(this.#own.nowMs())));
  }

  /**
   * By what a person's mailbox knows this identity; `null` without a pass, or where
   * the Relay hands none on.
   */
  async shownTo(to: Did): Promise<ShowPass | null> {
    const row = await this.#table.get<PassRow>(keyOfPass(this.#table, to));
    const pass = row === null ? null : parsePass(row.pass);
    if (pass === null || !(await this.#relay.handsOn(this.#own.identity.client.relay))) return null;
    return (envelope) => showPass(pass, envelope);
  }
}

/** Keeps the pass that came in a message of a proven author. */
export async function takePass(
  table: Table,
  batch: Batch,
  { from, verified, pass }: Pick<ReadMessage, "from" | "verified" | "pass">,
  nowMs: number,
): Promise<void> {
  if (from !== null && verified === true && typeof pass === "string")
    await putPass(table, batch, { did: from, pass }, nowMs);
}

/**
 * Of two, the one that counts for longer; of two of one quarter, as after new keys, the one
 * that came last. One that counts for longer than any that is given now is none: another
 * device may have made it up.
 */
export async function putPass(
  table: Table,
  batch: Batch,
  given: PassRow,
  nowMs: number,
): Promise<void> {
  const latestDay = passPeriod(nowMs + quarterMs).lastDay;
  const key = keyOfPass(table, given.did);
  const pass = parsePass(given.pass);
  const before = await batch.get<PassRow>(key);
  const held = before === null ? null : parsePass(before.pass);
  if (pass === null || before?.pass === given.pass || lastDayOf(pass) > latestDay) return;
  const heldDay = held === null ? 0 : lastDayOf(held);
  if (heldDay > lastDayOf(pass) && heldDay <= latestDay) return;
  batch.put(key, given);
  batch.log(key);
}

// --------------------------------------------------------------------------- without a local store

/**
 * Next to the keys: what the store of the identity last had of people's passes, and
 * whether its own are given.
 */
const keptKey = "passes";
/** 90 bytes each. */
const keptMax = 1_024;

/**
 * For a command that only sends. `areGiven`: the own Caches know the secret. Of more passes than
 * are kept, the first ones.
 */
export async function keepPasses(
  memory: TextStore,
  { areGiven, passes }: { readonly areGiven: boolean; readonly passes: readonly PassRow[] },
): Promise<void> {
  const isEmpty = !areGiven && passes.length === 0;
  const next = isEmpty ? null : renderKept({ areGiven, passes: passes.slice(0, keptMax) });
  if ((await memory.load(keptKey)) !== next) await memory.save(keptKey, next);
}

/** Without a local store: what `Passing` gives and shows. */
export class KeptPasses {
  readonly #identity: OwnIdentity;
  readonly #relay = new PassRelay();

  constructor(identity: OwnIdentity) {
    this.#identity = identity;
  }

  /** Who is written to is accepted. */
  async given(to: Did): Promise<string | null> {
    if ((await this.#kept())?.areGiven !== true) return null;
    const keys = passKeysOf(this.#identity.secrets.rootSeed);
    return renderPass(makePass(keys, to, passPeriod(this.#identity.nowMs())));
  }

  async shownTo(to: Did): Promise<ShowPass | null> {
    const { passes = [] } = (await this.#kept()) ?? {};
    const pass: Pass | null = parsePass(passes.find(({ did }) => did === to)?.pass ?? "");
    if (pass === null || !(await this.#relay.handsOn(this.#identity.client.relay))) return null;
    return (envelope) => showPass(pass, envelope);
  }

  #kept() {
    return recall(this.#identity.client.known.memory, keptKey, keptPassesShape);
  }
}
