/**
 * Delivery receipts of an identity without a local store, which has its outbox: to each sender one after the other, each
 * with all that was acknowledged since the one before. The same bytes go out until the Relay has them, their time is over,
 * or receiving ends.
 * Source: docs/protocol.md ("Content").
 */
import type { Did } from "../core/codec/did.ts";
import { backoffMs, pause } from "./connections.ts";
import { type Content, receiptType } from "./content.ts";
import { attempt, ClientError, isTemporary } from "./http.ts";
import type { MessageOptions } from "./send.ts";

type ReceiptsHost = {
  /** Each call of the result sends the same bytes. */
  readonly prepare: (to: Did, content: Content, options: MessageOptions) => Promise<() => Promise<unknown>>;
  readonly failed: (error: ClientError) => void;
};

/** Ids in one receipt (docs/protocol.md). */
const idsMax = 1_000;
/** Ids that wait for all senders; of those beyond, senders learn nothing. */
const dueMax = 100_000;

export class Receipts {
  readonly #host: ReceiptsHost;
  /** After it, each receipt that is due is tried once more. */
  readonly #end: AbortSignal;
  readonly #due = new Map<Did, string[]>();
  #count = 0;

  constructor(host: ReceiptsHost, end: AbortSignal) {
    this.#host = host;
    this.#end = end;
  }

  add(to: Did, messageId: string): void {
    if (this.#count >= dueMax) return;
    this.#count++;
    const due = this.#due.get(to);
    if (due !== undefined) {
      due.push(messageId);
      return;
    }
    this.#due.set(to, [messageId]);
    void this.#run(to);
  }

  async #run(to: Did): Promise<void> {
    for (let due = this.#due.get(to) ?? []; due.length > 0; ) {
      const delivered = due.splice(0, idsMax);
      await this.#deliver(to, delivered);
      this.#count -= delivered.length;
    }
    this.#due.delete(to);
  }

  async #deliver(to: Did, delivered: readonly string[]): Promise<void> {
    const once = { retries: 0, mediaType: receiptType, receipt: false };
    let send: (() => Promise<unknown>) | null = null;
    for (let failures = 0; ; failures++) {
      const isLast = this.#end.aborted;
      const result = await attempt(async () => {
        send ??= await this.#host.prepare(to, { v: 1, delivered }, once);
        await send();
      });
      if (!(result instanceof ClientError)) return;
      if (isLast || !isTemporary(result)) return this.#host.failed(result);
      await pause(backoffMs(failures), this.#end);
    }
  }
}
