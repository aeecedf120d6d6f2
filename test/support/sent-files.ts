/**
 * Files from the disk, sealed and sent to a DID by the parts of the SDK that the commands use,
 * chunk by chunk.
 */

import { fileSource } from "../../src/cli/files/source.ts";
import { recipientKey, type SendPlan, sendPlan } from "../../src/client/mail/send.ts";
import { activeDocument, type Client } from "../../src/client/trust/client.ts";
import type { Did } from "../../src/core/codec/did.ts";

export type SentFile = {
  readonly client: Client;
  readonly to: Did;
  readonly path: string;
  readonly parts?: Partial<SendPlan>;
};

/** Unsigned, in chunks of 1 MB, unless `parts` says otherwise. */
export async function planOf({ client, to, path, parts = {} }: SentFile) {
  const source = await fileSource(path, "application/octet-stream");
  const plan: SendPlan = {
    id: crypto.randomUUID(),
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to,
    name: null,
    trust: "unproven",
    recipient: recipientKey(await activeDocument(client, to)),
    file: source.file,
    chunkBytes: 1_000_000,
    timestamp: new Date().toISOString(),
    ttl: "1h",
    tag: null,
    hint: null,
    sender: null,
    ...parts,
  };
  return { plan, source };
}

export async function sendFile(file: SentFile) {
  const { plan, source } = await planOf(file);
  return sendPlan(plan, source, { relay: file.client.relay });
}
