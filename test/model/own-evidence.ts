/**
 * A world without sockets of what own devices have seen of a person, over the real memory and rows:
 * a Directory shows each device what it likes, at once with what another device passes on; rows are
 * late, or come again; the person is accepted after the first looks; devices are linked from one of
 * the others, restored from a backup, and lost.
 */
import { attempt, ClientError, localError } from "../../src/client/base/failure.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { EvidenceKeeper, recallEvidence } from "../../src/client/store/evidence.ts";
import { rowsOf } from "../../src/client/store/keys.ts";
import { type EvidenceRow, putPerson } from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import { Trust } from "../../src/client/trust/trust.ts";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import { keepKeyProof } from "../../src/core/ledger/keep.ts";
import { encodeKeyProof, type KeyProof } from "../../src/core/ledger/key-proof.ts";
import { forgeDocument, seedOf } from "../support/forged-proofs.ts";
import { certifiedOf, identityOf, keyOf, registrationOf } from "../support/identity.ts";
import { ownStoreOf } from "../support/own-store.ts";
import { everyProof, operatorAccount } from "../support/world.ts";
import { randomOf } from "./own-world.ts";

const { genesisHash } = everyProof;
const carol = certifiedOf("carol", genesisHash);
const binding = { genesisHash, submitter: operatorAccount };
const registration = registrationOf(carol, { timestamp: "v3:0:1893456000000", binding });
const first = keepKeyProof(null, registration, binding) as KeyProof;
const seed = seedOf("carol");
/** Of one person: two branches by a root key that was stolen, and what came before either. */
const shown = {
  older: encodeKeyProof(first),
  newer: encodeKeyProof(forgeDocument(first, { seed, nonce: 60n, next: keyOf("true") })),
  thief: encodeKeyProof(forgeDocument(first, { seed, nonce: 70n, next: keyOf("thief") })),
};
type Shown = keyof typeof shown;
const all = Object.keys(shown) as Shown[];

/** What a device makes of each record that a Directory could show it now. */
export type Verdicts = Readonly<Record<Shown, string>>;

/** What the world runs on. A canary replaces one of them by a rule with a defect. */
export const realRules = {
  /** What of a device's rows another one gets. */
  passes: (rows: readonly EvidenceRow[]): readonly EvidenceRow[] => rows,
  /** What a backup has of them. */
  saves: (rows: readonly EvidenceRow[]): readonly EvidenceRow[] => rows,
  /** Of two that contradict each other. */
  contradict: (trust: Trust, did: typeof carol.did): Promise<void> => trust.contradict(did),
  /** A row of another device. */
  hear: (trust: Trust, did: typeof carol.did, bytes: Uint8Array) => trust.hear(did, bytes),
  /** Whether a row is examined as if a Directory had answered. Else it is a verdict. */
  examines: true,
  /** Whether the proof of who was a stranger can be had when they are accepted or contradicted. */
  recalls: true,
};
export type Rules = typeof realRules;

class Device {
  readonly #rules: Rules;
  readonly #trust: Trust;
  readonly #take: (row: EvidenceRow) => Promise<void>;
  readonly #onPerson: () => void;
  readonly table: Table;
  readonly believed: Set<Shown>;
  #shown: Shown = "older";

  private constructor(rules: Rules, at: Awaited<ReturnType<typeof placeOf>>) {
    this.#rules = rules;
    this.table = at.table;
    this.#take = (row) => at.own.onEvidence(row);
    const { client } = at.own.identity;
    this.#trust = new Trust(
      async () => shown[this.#shown],
      () => at.memory,
      (did, proof) => client.known.keep({ is: "proof", did, proof }),
    );
    const contradict: Trust["contradict"] = (did) => rules.contradict(this.#trust, did);
    const hear: Trust["hear"] = (did, bytes) => rules.hear(this.#trust, did, bytes);
    const isContradicted: Trust["isContradicted"] = (did) => this.#trust.isContradicted(did);
    const provenOf: Trust["provenOf"] = (did) => (rules.recalls ? this.#trust.provenOf(did) : null);
    const view: Trust["view"] = async (did) => {
      if (!rules.recalls) throw localError("unreachable", "a canary");
      return this.#trust.view(did);
    };
    Object.assign(client, { trust: { contradict, hear, isContradicted, provenOf, view } });
    this.believed = new Set();
    new EvidenceKeeper(at.own);
    this.#onPerson = () => at.own.onPerson(carol.did);
  }

  /** Its user accepts the person, who was a stranger. */
  async accept(): Promise<void> {
    await this.table.change((batch) => putPerson(this.table, batch, carol.did, { isKnown: true }));
    this.#onPerson();
  }

  /** `saved`: the rows of a backup. */
  static async open(rules: Rules, saved: readonly EvidenceRow[] = []): Promise<Device> {
    const at = await placeOf(saved);
    await recallEvidence(at.table, at.memory);
    return new Device(rules, at);
  }

  rows(): Promise<readonly EvidenceRow[]> {
    return this.table.values<EvidenceRow>(rowsOf.evidence);
  }

  async take(row: EvidenceRow): Promise<void> {
    if (!this.#rules.examines) await this.#trust.forget(carol.did);
    await this.#take(row);
  }

  /** Its Directory shows this, and it writes to the person. */
  async look(at: Shown): Promise<void> {
    this.#shown = at;
    const found = await attempt(() => this.#trust.prove(carol.did, shown[at]));
    if (!(found instanceof ClientError)) this.believed.add(at);
  }

  /** Without learning from it. */
  async verdicts(): Promise<Verdicts> {
    const found: [string, string][] = [];
    for (const at of all) {
      this.#shown = at;
      const { refusal } = await this.#trust.view(carol.did);
      found.push([at, refusal?.code ?? "believed"]);
    }
    return Object.fromEntries(found) as Verdicts;
  }
}

async function placeOf(saved: readonly EvidenceRow[]) {
  const memory = memoryKeys();
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  await table.change(async (batch) => {
    for (const [i, row] of saved.entries()) batch.put(`${rowsOf.evidence}${i}`, row);
  });
  const own = await ownStoreOf(table, identityOf("own").did);
  return { memory, table, own };
}

const nameOf = (row: EvidenceRow): string =>
  all.find((at) => row.is === "proof" && row.proof === encodeBase64(shown[at])) ?? "a head";

class World {
  readonly #rules: Rules;
  readonly #random: () => number;
  readonly devices: Device[];

  constructor(rules: Rules, random: () => number, devices: Device[]) {
    this.#rules = rules;
    this.#random = random;
    this.devices = devices;
  }

  #pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random() * from.length)] as T;
  }

  /** The rows of one device, in any order, some of them twice. */
  async #passed(from: Device): Promise<readonly EvidenceRow[]> {
    const rows = this.#rules.passes(await from.rows());
    const again = rows.filter(() => this.#random() < 0.2);
    return this.#shuffled([...rows, ...again]);
  }

  #shuffled<T>(from: readonly T[]): T[] {
    const drawn = from.map((one): [number, T] => [this.#random(), one]);
    return drawn.sort(([a], [b]) => a - b).map(([, one]) => one);
  }

  async step(): Promise<void> {
    const drawn = this.#random();
    const [one, other] = [this.#pick(this.devices), this.#pick(this.devices)];
    if (this.#random() < 0.2) await one.accept();
    if (drawn < 0.4) await one.look(this.#pick(all));
    else if (drawn < 0.7) for (const row of await this.#passed(other)) await one.take(row);
    else if (drawn < 0.85) {
      const rows = await this.#passed(other);
      await Promise.all([one.look(this.#pick(all)), ...rows.map((row) => one.take(row))]);
    } else if (drawn < 0.95) this.devices.push(await this.#linked(one));
    else if (this.devices.length > 1) this.#lose(one);
  }

  #lose(lost: Device): void {
    this.devices.splice(this.devices.indexOf(lost), 1);
  }

  async #linked(from: Device): Promise<Device> {
    const device = await Device.open(this.#rules);
    await device.accept();
    for (const row of await this.#passed(from)) await device.take(row);
    return device;
  }

  async #restored(from: Device): Promise<Device> {
    return Device.open(this.#rules, this.#rules.saves(await from.rows()));
  }

  /** Everything comes to all devices, more than once. Returns what is wrong. */
  async calm(): Promise<string[]> {
    for (const one of this.devices) await one.accept();
    await settled(this.devices);
    for (let round = 0; round < 3; round++) {
      for (const from of this.devices)
        for (const to of this.devices)
          if (from !== to) for (const row of await this.#passed(from)) await to.take(row);
      await settled(this.devices);
    }
    const believed = new Set(this.devices.flatMap((one) => [...one.believed]));
    const isContradicted = believed.has("newer") && believed.has("thief");
    const [any] = this.devices as [Device];
    const ends = await Promise.all(this.devices.map((one) => one.verdicts()));
    const wrong: string[] = [];
    if (new Set(ends.map((end) => JSON.stringify(end))).size > 1)
      wrong.push("devices believe different keys");
    const isBelieved = ends.some((end) => Object.values(end).includes("believed"));
    if (isContradicted && isBelieved) wrong.push("one of two that contradict is believed");
    if (believed.size > 0 && !isContradicted && !isBelieved && !hasBoth(await any.rows()))
      wrong.push("what was seen once is believed no more");
    for (const from of this.devices) {
      const [same, linked, restored] = [
        await from.verdicts(),
        await (await this.#linked(from)).verdicts(),
        await (await this.#restored(from)).verdicts(),
      ].map((one) => JSON.stringify(one));
      if (linked !== same) wrong.push("a device that is linked believes others than the old one");
      if (restored !== same) wrong.push("a restored backup believes others than its device");
    }
    return wrong;
  }
}

/** A lost device had passed on what contradicts what the others have. */
const hasBoth = (rows: readonly EvidenceRow[]): boolean =>
  ["newer", "thief"].every((at) => rows.some((row) => nameOf(row) === at));

/** What was proven is put a moment later. */
async function settled(devices: readonly Device[]): Promise<void> {
  for (let before = ""; ; ) {
    await Bun.sleep(1);
    const now = JSON.stringify(await Promise.all(devices.map((one) => one.rows())));
    if (now === before) return;
    before = now;
  }
}

/** What is wrong at the end of a schedule: nothing, when all laws hold. */
export async function runSchedule(
  from: number,
  rules: Rules = realRules,
  steps = 14,
): Promise<string[]> {
  const devices = [await Device.open(rules), await Device.open(rules)];
  const world = new World(rules, randomOf(from), devices);
  for (let i = 0; i < steps; i++) await world.step();
  return [...new Set(await world.calm())];
}
