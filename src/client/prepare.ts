/**
 * A message of an identity, or of nobody, from its recipient's name to the bytes that are sent.
 * Source: docs/client.md "Sending".
 */
import { type Client, find, planSend } from "./client.ts";
import type { Source } from "./content.ts";
import {
  type ChunkProgress,
  chunkCount,
  type MessageOptions,
  retryTemporary,
  type SendPlan,
  type Sent,
  sendPlan,
} from "./send.ts";
import type { TrustDemand } from "./trust/trust.ts";

type Prepared = Omit<MessageOptions, "trust"> & {
  readonly to: string;
  readonly source: Source;
  readonly trust: TrustDemand | null;
  /** Who signs; of an anonymous message `null`, and then no node is asked about an identity of this machine. */
  readonly sender: () => Promise<SendPlan["sender"]>;
  /** When it is aborted, nothing is tried again. */
  readonly signal?: AbortSignal;
};

/** Fixes everything about a message. Each call of the result sends the same bytes. */
export async function prepare(client: Client, options: Prepared): Promise<() => Promise<Sent>> {
  const { to, source, trust, sender, signal, retries, onProgress } = options;
  const planned = async () => {
    const { did, name } = await find(client, to, trust);
    return planSend(client, did, source.file, { ...options, name, sender: await sender() });
  };
  const wanted = await retryTemporary(planned, { retries, signal });
  const { relay, known } = client;
  const inChunks = chunkCount(wanted) > 1;
  const resumed = inChunks ? await (await import("./resume.ts")).resume(known.memory, wanted) : null;
  const onDelivered = async ({ chunk, sentBytes, totalBytes }: ChunkProgress) => {
    await resumed?.save(chunk + 1);
    await onProgress?.({ sentBytes, totalBytes });
  };
  const { plan, delivered: from } = resumed ?? { plan: wanted, delivered: 0 };
  return () => sendPlan(plan, source, { relay, retries, signal, from, onDelivered });
}
