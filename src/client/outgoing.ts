/**
 * A message on its way out. Everything about it is settled before the first byte is sent, so that a repeat,
 * also after a restart, sends identical bytes and the recipient gets the message once.
 */
import type { Did } from "../core/codec/did.ts";
import type { Client } from "./client.ts";
import { renderPlan } from "./plan-text.ts";
import { type Retrying, retryingDefault } from "./relay.ts";
import { chunkCount, groupIdOf, messageIdOf, type SendPlan, type Sent, type Source, sendPlan } from "./send.ts";

export type SendProgress = { readonly sentBytes: number; readonly totalBytes: number };

export type TransferOptions = {
  /** Called after each chunk. */
  readonly onProgress?: (progress: SendProgress) => void;
  /** Further attempts for each envelope after a passing failure; 3 unless given. */
  readonly retries?: number;
};

export class Outgoing {
  readonly to: Did;
  /** The id by which the recipient knows the message. */
  readonly id: string;
  readonly #client: Client;
  readonly #plan: SendPlan;
  readonly #source: Source;
  #delivered: number;

  constructor(
    client: Client,
    { plan, source, delivered }: { readonly plan: SendPlan; readonly source: Source; readonly delivered: number },
  ) {
    this.#client = client;
    this.#plan = plan;
    this.#source = source;
    this.#delivered = delivered;
    this.to = plan.to;
    this.id = chunkCount(plan) > 1 ? groupIdOf(plan) : messageIdOf(plan, 0);
  }

  /**
   * Text from which `resume` goes on with the same content, in another run too. Secret until all is sent.
   */
  save(): string {
    return renderPlan(this.#plan, this.#delivered);
  }

  /** Sends what is left. After a failure it may be called again. */
  async send({ onProgress, retries }: TransferOptions = {}): Promise<Sent> {
    const retrying: Retrying = retries === undefined ? retryingDefault : { ...retryingDefault, retries };
    const { chunkBytes, file } = this.#plan;
    return sendPlan(this.#plan, this.#source, {
      relay: this.#client.relay,
      retrying,
      from: this.#delivered,
      onDelivered: ({ chunk }) => {
        this.#delivered = chunk + 1;
        onProgress?.({ sentBytes: Math.min((chunk + 1) * chunkBytes, file.sizeBytes), totalBytes: file.sizeBytes });
      },
    });
  }
}
