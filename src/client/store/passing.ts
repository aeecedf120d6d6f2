/**
 * Sending without a local store: the same outbox over memory, which keeps
 * nothing of what it has sent.
 * Source: docs/client.md "Sending".
 */
import type { Did } from "../../core/codec/did.ts";
import { inOrder, Mutex } from "../../core/std/order.ts";
import { localError, retriesDefault, retryTemporary } from "../base/failure.ts";
import { randomUuid } from "../keys/crypto.ts";
import { freshSeed } from "../keys/keys.ts";
import { type Content, sourceOf } from "../mail/content.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import type { MessageOptions, Sent } from "../mail/send.ts";
import { askDid, findName } from "../trust/client.ts";
import { memoryStore } from "./driver.ts";
import { Outbox } from "./outbox.ts";
import { OwnStore, soleTab } from "./own-store.ts";
import { Table } from "./table.ts";

export class Passing {
  readonly #own: OwnStore;
  readonly #outbox: Outbox;
  readonly #finding = new Mutex();
  readonly #adding = inOrder<Did>();
  #isClosed = false;

  private constructor(own: OwnStore, outbox: Outbox) {
    this.#own = own;
    this.#outbox = outbox;
  }

  static async open(identity: OwnIdentity): Promise<Passing> {
    const driver = memoryStore();
    const table = await Table.open(driver, freshSeed(), identity.nowMs);
    const own = new OwnStore(identity, table, { ...soleTab });
    const outbox = new Outbox(own);
    // Most programs without a store have none, and a page that only sends does not load it.
    if ((await identity.client.known.memory.load("passes")) !== null)
      outbox.passes = new (await import("./passes.ts")).KeptPasses(identity);
    await outbox.lead();
    return new Passing(own, outbox);
  }

  /**
   * Resolves when the Relay has it. Names are resolved in the order of the calls, so that an alias
   * waits for what is sent to its DID, and messages to one recipient leave in that order.
   */
  async send(to: string, content: Content, options: MessageOptions): Promise<Sent> {
    const did = await this.#finding.run(() => askDid(this.#own.identity.client, to));
    const { delivered } = await this.#adding(did, () => this.#add(to, content, options));
    return delivered;
  }

  async #add(to: string, content: Content, options: MessageOptions) {
    const { client, trust } = this.#own.identity;
    const { retries = retriesDefault, onProgress, signal } = options;
    const { replyTo = null, replyFrom = null, group = null } = options;
    const id = randomUuid();
    const relations = {
      id,
      replyTo,
      replyFrom,
      group,
      wantsReceipt: options.receipt ?? false,
      mentions: options.mentions ?? [],
      isForwarded: options.isForwarded ?? false,
    };
    const source = await sourceOf(content, options, relations);
    const looked = () => findName(client, to, options.trust ?? trust);
    const { did, name } = await retryTemporary(looked, { retries, signal });
    if (this.#isClosed) throw localError("closed", "close() was called");
    const place = await this.#outbox.addGiven(did, source, { ...options, id });
    const delivered = this.#outbox.follow(place, {
      source,
      name,
      retries,
      ...(onProgress === undefined ? {} : { onProgress }),
      ...(signal === undefined ? {} : { signal }),
    });
    return { delivered };
  }

  /** A connection is back. */
  retry(): void {
    this.#outbox.retry();
  }

  /** What is still to be sent has one attempt, for which nothing waits. */
  close(): void {
    this.#isClosed = true;
    const closeAll = async () => {
      await this.#outbox.close();
      this.#own.stop();
      await this.#own.close();
    };
    void closeAll();
  }
}
