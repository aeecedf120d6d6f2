/**
 * The identity of this program: its secrets, the nodes that it uses, whom it trusts, its clock, and
 * what it reports. One object, which everything that sends, receives or changes is given.
 */
import type { Did } from "../../core/codec/did.ts";
import { Mutex } from "../../core/std/order.ts";
import { localError } from "../base/failure.ts";
import type { KeyStore } from "../keys/key-stores.ts";
import { type Identity, takeOver, wipe } from "../keys/keys.ts";
import { changeIdentity, type EditIdentity } from "../keys/stored.ts";
import { type Waiting, waitingDefault } from "../net/directory.ts";
import { type Author, type Client, senderOf } from "../trust/client.ts";
import type { TrustDemand } from "../trust/trust.ts";
import type { Listener, WaypostEvent } from "./message.ts";

type OwnOptions = {
  readonly keys: KeyStore;
  readonly trust?: TrustDemand;
  readonly policy?: string;
  readonly nowMs?: () => number;
  readonly waiting?: Waiting;
};

export class OwnIdentity {
  readonly client: Client;
  readonly keys: KeyStore;
  /** The least that must show the keys of everybody to whom anything is sent. */
  readonly trust: TrustDemand | null;
  readonly nowMs: () => number;
  /** For the settlement of changes. */
  readonly waiting: Waiting;
  /**
   * Replaces the published key when it is due; with `force` it also looks for
   * replacements by other devices.
   */
  renewKeys: (force: boolean) => Promise<void> = async () => undefined;
  /** Called when it has another key bundle: others may have waited for one. */
  onBundle: () => void = () => undefined;
  readonly #listeners = new Set<Listener>();
  /**
   * A rotation, a removal of a device, what another device says: each begins with the
   * keys that the last one left.
   */
  readonly #changing = new Mutex();
  /**
   * Each write of the key store begins with what is stored, and the last one is what
   * this instance goes on with.
   */
  readonly #storing = new Mutex();
  #secrets: Identity;
  #author: Promise<Author> | null = null;
  #isLocked = false;
  #isClosed = false;

  constructor(client: Client, secrets: Identity, options: OwnOptions) {
    this.client = client;
    this.keys = options.keys;
    // With witnesses named, nothing counts that they have not seen.
    this.trust = options.trust ?? (options.policy === undefined ? null : "logged");
    this.nowMs = options.nowMs ?? Date.now;
    this.waiting = options.waiting ?? waitingDefault;
    this.#secrets = takeOver(secrets, secrets);
  }

  get did(): Did {
    return this.#secrets.did;
  }

  /** The current ones. */
  get secrets(): Identity {
    return this.#secrets;
  }

  /** The secrets are zero: nothing is stored, or said of the identity, from then on. */
  get isLocked(): boolean {
    return this.#isLocked;
  }

  /** The program has closed it: what goes on ends, and it calls nothing more. */
  close(): void {
    this.#isClosed = true;
  }

  /** For what a program calls. Throws `closed`. */
  demandOpen(): this {
    if (!this.#isClosed) return this;
    throw localError("closed", "close() was called");
  }

  // ------------------------------------------------------------------------------------- reporting

  on(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit(event: WaypostEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  // --------------------------------------------------------------------------------------- signing

  /** The key that signs messages: looked up once, until it is forgotten. */
  author(): Promise<Author> {
    this.#author ??= senderOf(this.client, this.#secrets).catch((error: unknown) => {
      this.#author = null;
      throw error;
    });
    return this.#author;
  }

  /** After a Relay refused a signature, or when the keys were replaced. */
  forgetAuthor(): void {
    this.#author = null;
  }

  // -------------------------------------------------------------------------------------- changing

  /** After other changes of the keys, and before the next. */
  inOrder<T>(work: () => Promise<T>): Promise<T> {
    return this.#changing.run(work);
  }

  /** Changes what is stored (`changeIdentity`). Throws `locked`. */
  change(edit: EditIdentity): Promise<Identity> {
    return this.#storing.run(async () => {
      if (this.#isLocked) throw localError("locked", "this identity was locked: open it again");
      const changed = await changeIdentity(this.keys, this.#secrets, edit);
      this.#secrets = takeOver(this.#secrets, changed);
      return this.#secrets;
    });
  }

  /** Forgets all secrets, after the write that is under way. */
  async lock(): Promise<void> {
    this.#isLocked = true;
    this.keys.lock?.();
    await this.#storing.run(async () => wipe(this.#secrets));
  }
}
