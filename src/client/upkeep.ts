/**
 * What an identity does for its keys by itself: it replaces the one that others seal to, follows
 * other own devices, and looks whether somebody else has changed its record.
 * Source: docs/client.md "Forward secrecy", docs/trust.md "The own record".
 */
import { attempt, ClientError, insist, localError } from "./base/failure.ts";
import type { WaypostOptions } from "./identity/opening.ts";
import { deviceName } from "./keys/key-stores.ts";
import { isRotationDue, renderIdentity, rotationMsDefault } from "./keys/keys.ts";
import type { EditIdentity } from "./keys/stored.ts";
import type { OwnIdentity } from "./mail/own-identity.ts";
import { timeAt } from "./net/http.ts";
import type { StoreSession } from "./session.ts";

type UpkeepHost = {
  /** `null` without a local store. */
  readonly session: () => StoreSession | null;
  /** Aborted when the identity is closed. */
  readonly signal: AbortSignal;
};

export class Upkeep {
  readonly #identity: OwnIdentity;
  readonly #options: WaypostOptions;
  readonly #host: UpkeepHost;
  /** What goes on of an earlier call ends with the next one. */
  #turn = 0;

  constructor(identity: OwnIdentity, options: WaypostOptions, host: UpkeepHost) {
    this.#identity = identity;
    this.#options = options;
    this.#host = host;
  }

  /** Work in the background: its failure is an event. */
  async orFailed(
    what: "rotation" | "watch" | "devices",
    work: () => Promise<unknown>,
  ): Promise<void> {
    const result = await attempt(work);
    if (result instanceof ClientError && !this.#host.signal.aborted)
      this.#identity.emit({ type: "failed", what, error: result });
  }

  /**
   * Where no store has devices that would do it: ends a replacement of the keys that was
   * interrupted, since who had the former ones has their rights until then. The first try is
   * awaited; another one's keys end it with `root_replaced`.
   */
  async endReplacing(): Promise<void> {
    const { keys, secrets } = this.#identity;
    if (secrets.nextRootSeed === null || this.#host.session() !== null) return;
    // A removal, which the store of the devices has.
    if ((await keys.load(deviceName(secrets.name))) !== null) return;
    const { signal } = this.#host;
    await new Promise<void>((resolve) => {
      const report = (error: ClientError) => {
        if (!signal.aborted) this.#identity.emit({ type: "failed", what: "rotation", error });
        resolve();
      };
      const isFinal = async ({ code }: ClientError) => code === "root_replaced";
      const publishNext = () => this.#identity.inOrder(() => this.#publishNext());
      void insist(publishNext, { signal, report, isFinal }).finally(resolve);
    });
  }

  async #publishNext(): Promise<void> {
    const { client, waiting } = this.#identity;
    const next = await this.#identity.change((stored) => stored);
    if (next.nextRootSeed === null) return;
    const { inForce, publishKeys } = await import("./identity/new-keys.ts");
    const renewed = await publishKeys(client, next, { waiting });
    const identity = await this.#identity.change((stored) => inForce(stored, renewed));
    this.#identity.forgetAuthor();
    const { keepPushes } = await import("./identity/push.ts");
    await this.orFailed("rotation", () => keepPushes({ client, identity }, []));
    void this.keepBundles();
  }

  /** Replaces the key that others seal to when it is due. */
  async rotate(): Promise<void> {
    const everyMs = this.#everyMs;
    if (everyMs !== Number.POSITIVE_INFINITY) await this.#followSealingKey(everyMs);
  }

  async rotateIfDue(): Promise<void> {
    const everyMs = this.#everyMs;
    const { secrets, nowMs } = this.#identity;
    const { rank = 0 } = (await this.#host.session()?.devices.others()) ?? {};
    if (isRotationDue(secrets, { nowMs: nowMs(), everyMs, rank })) await this.rotate();
  }

  /**
   * Publishes key bundles: makes the next one when it is due, and puts it where a Cache lacks it.
   * Where one takes none now, it goes on in the background.
   */
  async keepBundles(): Promise<void> {
    const { client, did, waiting } = this.#identity;
    const { announce } = this.#options;
    const turn = ++this.#turn;
    await this.orFailed("rotation", async () => {
      const { keepBundles, keepTrying } = await import("./identity/own-bundles.ts");
      const keep = async () => {
        // Without the former secrets, as after a restoration, the former bundle
        // would look like a stranger's.
        if (this.#identity.secrets.nextRootSeed !== null) return "none";
        const devices = await this.#host.session()?.devices.others();
        const change = (edit: EditIdentity) => this.#identity.change(edit);
        // Senders compare its times with the nodes' clock.
        const nowMs = await timeAt(client.relay);
        const announces = announce ?? null;
        const onStranger = (sinceMs: number) => this.#sayLost(sinceMs);
        const keeping = { nowMs, waiting, change, announces, onStranger };
        const all = devices === undefined ? keeping : { ...keeping, devices };
        const kept = await keepBundles(client, did, all);
        if (kept === "renewed") this.#identity.onBundle();
        return kept;
      };
      const isLast = () => turn === this.#turn;
      await keepTrying(() => this.#identity.inOrder(keep), isLast, this.#host.signal);
    });
  }

  /** Infinite for never. */
  get #everyMs(): number {
    const { rotateMs = rotationMsDefault } = this.#options;
    return rotateMs === false ? Number.POSITIVE_INFINITY : rotateMs;
  }

  async #followSealingKey(everyMs: number): Promise<void> {
    const { client, did, nowMs, waiting } = this.#identity;
    const rotate = async () => {
      const devices = this.#host.session()?.devices;
      await devices?.look();
      // A replacement of all keys has the next one, and a second change of the
      // document would hold it up.
      const { isReplacing } = await import("./identity/new-keys.ts");
      if (await isReplacing(client.known.memory, this.#identity.secrets)) return;
      // Once a week, and loaded then.
      const { rotateAgreement } = await import("./identity/rotation.ts");
      const change = (edit: EditIdentity) => this.#identity.change(edit);
      const others = await devices?.others();
      const turn = { nowMs: nowMs(), everyMs, waiting, change };
      const options = others === undefined ? turn : { ...turn, devices: others };
      const { rotated, lostSinceMs } = await rotateAgreement(client, did, options);
      if (lostSinceMs !== null) this.#sayLost(lostSinceMs);
      if (rotated) this.#identity.emit({ type: "rotated" });
    };
    // After a failure the old key still works, and the next run tries again.
    await this.#identity.inOrder(() => this.orFailed("rotation", rotate));
  }

  /** Somebody has published a key whose secret no own device has given. */
  #sayLost(sinceMs: number): void {
    if (this.#identity.isLocked) return;
    this.#identity.emit({ type: "stranger_change", what: "sealing_key" });
    const since = new Date(sinceMs).toISOString();
    const problem = `a key is published whose secret no own device has, seen since ${since}: what was sealed to it can't be read`;
    this.#identity.emit({
      type: "failed",
      what: "rotation",
      error: localError("key_lost", problem),
    });
  }

  /** Looks whether somebody else has changed this identity. */
  watch(): Promise<void> {
    return this.orFailed("watch", async () => {
      const { client } = this.#identity;
      const { watchOwn } = await import("./trust/own.ts");
      const session = this.#host.session();
      // Keys that another process or tab has made are no stranger's; the session
      // proves with them from now on.
      const before = renderIdentity(this.#identity.secrets);
      if (renderIdentity(await this.#identity.change((stored) => stored)) !== before)
        session?.reconnect();
      // Keys of another own device may be in force.
      await session?.devices.look();
      const shared = (await session?.devices.methods()) ?? [];
      const { alias = null } = this.#options;
      const changed = await watchOwn(client, this.#identity.secrets, { alias, shared });
      // Without its secrets every key looks like a stranger's.
      if (this.#identity.isLocked) return;
      // Own devices are asked for its secret first.
      for (const what of changed)
        if (what === "sealing_key") await this.#followSealingKey(this.#everyMs);
        else this.#identity.emit({ type: "stranger_change", what });
    });
  }
}
