/**
 * The rotation of the key that others seal to, by default once a week: fresh randomness, which
 * other own devices have before it is published (`keys/agreements.ts`). The old secret is destroyed
 * when everything that was sealed to it has expired. The new key has the same id, so that every
 * sender uses it from then on.
 * Source: docs/client.md "Forward secrecy", docs/trust.md "The sealing key".
 */
import { encodeHex, renderAgreementKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { type DidDocument, sealingKeyOf } from "../../core/ledger/account.ts";
import { type Of, renderKept } from "../base/shapes.ts";
import {
  decideLacking,
  decideSealing,
  lackingShape,
  pendingAfter,
  type SealingSituation,
} from "../keys/agreements.ts";
import { x25519PublicKey } from "../keys/crypto.ts";
import {
  freshAgreement,
  type HeldAgreement,
  heldSeed,
  type Identity,
  nameOfSeed,
} from "../keys/keys.ts";
import type { EditIdentity } from "../keys/stored.ts";
import { type Waiting, waitingDefault } from "../net/directory.ts";
import { activeDocument, type Client, rootKeyOf } from "../trust/client.ts";
import { reconcileAgreements } from "../trust/own.ts";
import { recall } from "../trust/trust.ts";
import { publishEdited } from "./change.ts";
import { alone, longestLifeMs, type OtherDevices, secretKeptMsMax } from "./sharing.ts";

const lackingKey = "sealing/lacking";

type RotationOptions = {
  readonly nowMs: number;
  /** How old the published key may become; 0 rotates now, and an infinite one only follows. */
  readonly everyMs: number;
  readonly waiting?: Waiting;
  /**
   * Changes the stored identity (`changeIdentity`): before the new key is submitted,
   * and after it is in force.
   */
  readonly change: (edit: EditIdentity) => Promise<Identity>;
  readonly devices?: OtherDevices;
};

type Rotated = {
  readonly rotated: boolean;
  /** `false`: the published key is one whose secret this device lacks. */
  readonly holdsPublished: boolean;
  /** Since when it lacks that, where no own device can have it; `null` otherwise. */
  readonly lostSinceMs: number | null;
};

type Published = NonNullable<ReturnType<typeof sealingKeyOf>>;

/** Follows what is published, and replaces it when it is due. */
export async function rotateAgreement(
  client: Client,
  did: Did,
  options: RotationOptions,
): Promise<Rotated> {
  const rotation = new Rotation(client, did, options);
  const document = await activeDocument(client, did);
  const shown = sealingKeyOf(document);
  if (shown === null) return { rotated: false, holdsPublished: false, lostSinceMs: null };
  const { identity, published } = await rotation.reconcile(document);
  return published === null
    ? rotation.recover(identity, shown)
    : rotation.renew({ identity, published, shown });
}

class Rotation {
  readonly #client: Client;
  readonly #did: Did;
  readonly #options: RotationOptions;
  readonly #devices: OtherDevices;
  #keptMs: number | null = null;

  constructor(client: Client, did: Did, options: RotationOptions) {
    this.#client = client;
    this.#did = did;
    this.#options = options;
    this.#devices = options.devices ?? alone;
  }

  async reconcile(document: DidDocument) {
    const { change, nowMs } = this.#options;
    const keptMs = await this.#keptMsOf(document);
    let published: HeldAgreement | null = null;
    const identity = await change(async (stored) => {
      const reconciled = await reconcileAgreements(stored, document, { nowMs, keptMs });
      ({ published } = reconciled);
      return reconciled.identity;
    });
    return { identity, published: published as HeldAgreement | null };
  }

  async #keptMsOf(document: DidDocument): Promise<number> {
    this.#keptMs ??= await longestLifeMs(document, this.#client.timeoutMs);
    return this.#keptMs;
  }

  /**
   * Makes the next secret, gives it to other devices, and publishes it: what an interruption
   * left undone is done then.
   */
  async renew({ identity, published, shown }: Renewing): Promise<Rotated> {
    const { nowMs, everyMs, change } = this.#options;
    const { rank, others } = this.#devices;
    const under = nameOfSeed(await this.#rootSeed(identity));
    let pending = pendingAfter(ofId(identity, shown.id), published, { under, nowMs });
    const turn = { nowMs, everyMs, rank, others, sinceMs: identity.sealingSinceMs };

    const decide = (more: Pick<SealingSituation, "isShared">) =>
      decideSealing({ ...turn, pending, ...more });
    if (decide({ isShared: false }) === "make") {
      const made = await change((stored) => withFresh(stored, shown.id, this.#madeAt(under)));
      pending = pendingAfter(ofId(made, shown.id), published, { under, nowMs });
    }

    const step = decide({ isShared: false });
    const isShared = step === "share" && (await this.#devices.share());
    const held = { rotated: false, holdsPublished: true, lostSinceMs: null };
    if (pending === null || decide({ isShared }) !== "publish") return held;
    await this.#publish(identity, shown, pending);
    return { ...held, rotated: true };
  }

  /**
   * The published secret isn't here: other devices are asked for it, and then
   * another one is published.
   */
  async recover(identity: Identity, shown: Published): Promise<Rotated> {
    const { nowMs, everyMs, change } = this.#options;
    const { others, share, ask } = this.#devices;
    const lacking = await this.#lacking(encodeHex(shown.publicKey));
    const { key, sinceMs, replacedMs } = lacking;
    const step = decideLacking({ nowMs, sinceMs, replacedMs, others });
    if (step === "ask") await ask(key);
    if (step === "ask") return { rotated: false, holdsPublished: false, lostSinceMs: null };
    const lost = { rotated: false, holdsPublished: false, lostSinceMs: sinceMs };
    // Another program's, which has the same DID.
    const isOwn = ofId(identity, shown.id).length > 0;
    if (step === "wait" || !isOwn || everyMs === Number.POSITIVE_INFINITY) return lost;
    const under = nameOfSeed(await this.#rootSeed(identity));
    const made = await change((stored) => withFresh(stored, shown.id, this.#madeAt(under)));
    if (others > 0) await share();
    await this.#publish(made, shown, ofId(made, shown.id).at(-1) as HeldAgreement);
    await this.#saveLacking({ ...lacking, replacedMs: nowMs });
    return { ...lost, rotated: true };
  }

  /** Remembered when it is met first. */
  async #lacking(key: string): Promise<Of<typeof lackingShape>> {
    const { nowMs } = this.#options;
    const saved = await recall(this.#client.known.memory, lackingKey, lackingShape);
    if (saved?.key === key) return saved;
    const met = { key, sinceMs: nowMs, replacedMs: saved?.replacedMs ?? 0 };
    await this.#saveLacking(met);
    return met;
  }

  #saveLacking(lacking: Of<typeof lackingShape>): Promise<void> {
    return this.#client.known.memory.save(lackingKey, renderKept(lacking));
  }

  /** The replacement of the root key may have been interrupted. */
  async #rootSeed(identity: Identity): Promise<Uint8Array> {
    const key = await rootKeyOf(this.#client, this.#did);
    return (await heldSeed({ ...identity, methods: [] }, key)) ?? identity.rootSeed;
  }

  /** Until it is published it may end. */
  #madeAt(under: string) {
    const { nowMs } = this.#options;
    return { under, nowMs, destroyAtMs: nowMs + (this.#keptMs ?? secretKeptMsMax) };
  }

  async #publish(identity: Identity, shown: Published, { secret }: HeldAgreement): Promise<void> {
    const { waiting = waitingDefault } = this.#options;
    const publicKeyMultibase = renderAgreementKey(await x25519PublicKey(secret));
    const edited = (one: DidDocument): DidDocument => ({
      ...one,
      keyAgreement: one.keyAgreement.map((held) =>
        held.id === shown.id ? { ...held, publicKeyMultibase } : held,
      ),
    });
    const rootSeed = await this.#rootSeed(identity);
    await publishEdited(this.#client, this.#did, { rootSeed, edited, waiting });
    await this.reconcile(await activeDocument(this.#client, this.#did));
  }
}

type Renewing = {
  readonly identity: Identity;
  readonly published: HeldAgreement;
  readonly shown: Published;
};

const ofId = ({ agreements }: Identity, id: string): HeldAgreement[] =>
  agreements.filter((one) => one.id === id);

type Making = {
  readonly under: string;
  readonly nowMs: number;
  readonly destroyAtMs: number;
};

/** Stored before anything of it is published. */
function withFresh(stored: Identity, id: string, { under, ...making }: Making): Identity {
  const fresh = { ...freshAgreement(stored, { id, ...making }), under };
  return { ...stored, agreements: [...stored.agreements, fresh] };
}
