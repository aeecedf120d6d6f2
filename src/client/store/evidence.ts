/**
 * What was learned of people, for other own devices and for backups: key proofs of those who are
 * known, and heads of logs. They travel as evidence, never as a verdict: each device examines them
 * as if a Directory had answered and keeps its own memory. Of two that contradict each other
 * neither is believed, and both are kept: a device that is linked later examines both.
 * Source: docs/trust.md "Memory", D562.
 */
import { sha256 } from "#sha256";
import { decodeBase64, encodeBase64, encodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { hourMs } from "../../core/codec/time.ts";
import { findContradiction, rememberedOf } from "../../core/ledger/follow.ts";
import { decodeKeyProof, type KeyState, replayKeyProof } from "../../core/ledger/key-proof.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt, ClientError } from "../base/failure.ts";
import { renderKept } from "../base/shapes.ts";
import type { TextStore } from "../keys/key-stores.ts";
import type { Evidence } from "../trust/client.ts";
import { Trust } from "../trust/trust.ts";
import { keyOfEvidence, keyOfPerson, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import type { EvidenceRow } from "./rows.ts";
import type { Batch, Table } from "./table.ts";

const keptMax = 1_000;
/** A log has a new head with each block: others get one an hour. */
const headEveryMs = hourMs;

type ProofRow = Extract<EvidenceRow, { is: "proof" }>;

/** Where the proof is that contradicts the one of a person. */
const otherOf = (did: Did): string => `${did} other`;

const proofRow = (did: Did, bytes: Uint8Array): ProofRow => {
  return { is: "proof", did, proof: encodeBase64(bytes) };
};

type Pair = { readonly held: ProofRow | null; readonly other: ProofRow | null };

/**
 * Where a proof belongs that was verified, while two contradict each other.
 * `null`: it says nothing new.
 */
function placeOf(row: ProofRow, { held, other }: Pair): "held" | "other" | null {
  if (held === null) return "held";
  const relation = relationOf(held, row);
  if (relation !== "contradicts") return relation === "later" ? "held" : null;
  const isNews = other === null || relationOf(other, row) === "later";
  return isNews ? "other" : null;
}

function relationOf(before: ProofRow, row: ProofRow): "later" | "older" | "contradicts" {
  const [first, second] = [before, row].map(provenIn);
  if (first === null || first === undefined) return "later";
  if (second === null || second === undefined) return "older";
  const found = findContradiction(rememberedOf(first), second);
  if (found === null) return "later";
  return found.code === "record_went_back" ? "older" : "contradicts";
}

function provenIn({ proof }: ProofRow): KeyState | null {
  const decoded = decodeKeyProof(decodeBase64(proof) ?? new Uint8Array(0));
  return decoded === null ? null : replayKeyProof(decoded);
}

/** Keeps what this device proves, and examines what others have. */
export class EvidenceKeeper {
  readonly #own: OwnStore;
  /** SHA-256 of the proof of a person, or when a head of a log was kept. */
  readonly #kept = new BoundedMap<string, string | number>(keptMax);

  constructor(own: OwnStore) {
    this.#own = own;
    own.identity.client.known.keep = (found) => void this.#keep(found).catch(() => undefined);
    own.onEvidence = (row) => this.#take(row);
    own.onPerson = (did) => void this.#keepKnown(did).catch(() => undefined);
  }

  async #keep(found: Evidence): Promise<void> {
    if (found.is === "proof") return this.#keepProof(found.did, found.proof);
    const nowMs = this.#own.nowMs();
    if (nowMs - Number(this.#kept.get(found.at) ?? 0) < headEveryMs) return;
    this.#kept.set(found.at, nowMs);
    await this.#put(found.at, found, true);
  }

  /** What was proven of somebody while they were a stranger. */
  async #keepKnown(did: string): Promise<void> {
    const proven = isDid(did) ? this.#own.identity.client.trust.provenOf(did) : null;
    if (isDid(did) && proven !== null) await this.#keepProof(did, proven.bytes);
  }

  async #keepProof(did: Did, bytes: Uint8Array): Promise<void> {
    const hash = encodeHex(sha256(bytes));
    if (did === this.#own.did || this.#kept.get(did) === hash) return;
    const person = await this.#own.table.get<Person>(keyOfPerson(this.#own.table, did));
    if (person?.isKnown !== true) return;
    this.#kept.set(did, hash);
    await this.#putProof(proofRow(did, bytes), true);
  }

  /**
   * What is believed here now is the only proof that is kept of a person: what was verified
   * a moment before may be older, or another branch. While two contradict each other both
   * stay, each as it is later.
   */
  async #putProof(row: ProofRow, isNews: boolean): Promise<void> {
    const { table, identity } = this.#own;
    const { trust } = identity.client;
    const key = keyOfEvidence(table, row.did);
    const otherKey = keyOfEvidence(table, otherOf(row.did));
    const put = async (batch: Batch, at: string, given: ProofRow) => {
      if ((await batch.get<ProofRow>(at))?.proof === given.proof) return;
      batch.put(at, given);
      if (isNews) batch.log(at);
    };
    await table.change(async (batch) => {
      const held = await batch.get<ProofRow>(key);
      if (await trust.isContradicted(row.did)) {
        const other = await batch.get<ProofRow>(otherKey);
        const place = placeOf(row, { held, other });
        if (place !== null) await put(batch, place === "held" ? key : otherKey, row);
        return;
      }
      const believed = trust.provenOf(row.did)?.bytes;
      await put(batch, key, believed === undefined ? row : proofRow(row.did, believed));
      batch.delete(otherKey);
    });
  }

  /** `isNews`: for the others too. */
  async #put(name: string, row: EvidenceRow, isNews: boolean): Promise<void> {
    const { table } = this.#own;
    const key = keyOfEvidence(table, name);
    await table.change(async (batch) => {
      const before = await batch.get<EvidenceRow>(key);
      if (JSON.stringify(before) === JSON.stringify(row)) return;
      batch.put(key, row);
      if (isNews) batch.log(key);
    });
  }

  async #take(row: EvidenceRow): Promise<void> {
    const { identity } = this.#own;
    const { client } = identity;
    if (row.is === "head") {
      const { hearHead } = await import("../trust/log.ts");
      return hearHead(client, row);
    }
    const bytes = decodeBase64(String(row.proof));
    if (!isDid(row.did) || bytes === null || bytes.length === 0) return;
    const state = await attempt(() => client.trust.hear(row.did, bytes));
    if (!(state instanceof ClientError)) {
      this.#kept.set(row.did, encodeHex(sha256(bytes)));
      return this.#putProof(row, false);
    }
    // An older one: this device has told of the later one.
    if (state.code !== "identity_changed") return;
    const believed = await this.#unkeptProof(row.did);
    await client.trust.contradict(row.did);
    this.#kept.delete(row.did);
    // Of a stranger none is kept: the later device has to learn of both.
    if (believed !== null) await this.#putProof(proofRow(row.did, believed), true);
    await this.#putProof(row, true);
    identity.emit({ type: "failed", what: "person", error: state });
  }

  /**
   * The proof of what this device has remembered; `null` where it is kept,
   * or can't be had any more.
   */
  async #unkeptProof(did: Did): Promise<Uint8Array | null> {
    const { table, identity } = this.#own;
    const { trust } = identity.client;
    if ((await table.get(keyOfEvidence(table, did))) !== null) return null;
    const proven = trust.provenOf(did);
    if (proven !== null) return proven.bytes;
    const shown = await attempt(() => trust.view(did));
    return shown instanceof ClientError || shown.refusal !== null ? null : shown.bytes;
  }
}

/** On a device that was restored: what the backup has of others, into a memory that is empty. */
export async function recallEvidence(table: Table, memory: TextStore): Promise<void> {
  const trust = new Trust(
    async () => null,
    () => memory,
  );
  for (const row of await table.values<EvidenceRow>(rowsOf.evidence)) {
    if (row.is === "head") {
      const { at, logKey, note } = row;
      if ((await memory.load(at)) === null) await memory.save(at, renderKept({ logKey, note }));
      continue;
    }
    const bytes = decodeBase64(row.proof);
    if (bytes === null || bytes.length === 0) continue;
    const found = await attempt(() => trust.hear(row.did, bytes));
    const isContradicted = found instanceof ClientError && found.code === "identity_changed";
    if (isContradicted) await trust.contradict(row.did);
  }
}
