/**
 * `waypost send`: one file, sealed to a recipient's key and given to the Relay, in chunks when it is large. The same command
 * continues an interrupted chunk set.
 * Source: rules sections 2 and 5.
 */
import { basename } from "node:path";
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { removeIfThere } from "../app/files.ts";
import { planSend, senderOf } from "../client/client.ts";
import type { Source } from "../client/content.ts";
import { chunkCount, retryingDefault, type SendPlan, type Sent, sendPlan } from "../client/send.ts";
import type { TrustDemand } from "../client/trust/trust.ts";
import {
  addIdentityFlag,
  clientCommand,
  describeTrust,
  parseBetween,
  parseCount,
  parseTtl,
  printable,
  renderBar,
  renderBytes,
  type Session,
} from "./command.ts";
import { fileSource, findUnfinished, outboxFolder, saveOutgoing } from "./files/outbox.ts";

type SendFlags = {
  readonly to: string;
  readonly file: string;
  readonly anonymous?: boolean;
  readonly ttl: string;
  readonly tag?: string;
  readonly hint?: "direct" | "cache";
  readonly retries: number;
  readonly chunkBytes?: number;
  readonly trust?: TrustDemand;
};

export function registerSendCommand(program: Command): void {
  const command = program
    .command("send")
    .description("send a file, end-to-end encrypted")
    .requiredOption("--to <target>", "a DID, an alias, either @ its Directory, or an identity of this machine")
    .requiredOption("--file <path>", "the file")
    .option("--anonymous", "do not sign as any identity")
    .addOption(
      new Option("--trust <level>", "the least that must show the recipient's keys").choices(["proven", "logged"]),
    )
    .option("--ttl <duration>", "how long the message may wait for the recipient: 24h, 1d12h", parseTtl, "24h")
    .option("--tag <text>", "a public tag, for the recipient's policies")
    .addOption(
      new Option("--hint <hint>", "deliver only directly, or straight to a Cache").choices(["direct", "cache"]),
    )
    .option("--retries <number>", "retries for each chunk", parseCount, retryingDefault.retries)
    .option(
      "--chunk-bytes <number>",
      "bytes of the file in one envelope (default: 1 MiB)",
      parseBetween(1, 16_777_216),
    );
  clientCommand(addIdentityFlag(command), sendFile);
}

async function sendFile(session: Session, flags: SendFlags): Promise<void> {
  const { client, report } = session;
  // What a correspondent was is remembered with the identity that writes to it.
  const identity = flags.anonymous === true ? null : await session.identity();
  const { did: to, name: known } = await session.find(flags.to, flags.trust);
  report.progress(`reading ${flags.file}`);
  const source = await fileSource(flags.file, Bun.file(flags.file).type.split(";")[0] || "application/octet-stream");
  const { trust = null, ttl, tag = null, hint = null, chunkBytes } = flags;
  const sender = identity === null ? null : await senderOf(client, identity);
  const chunks = chunkBytes === undefined ? {} : { chunkBytes };
  const plan = await planSend(client, to, source.file, { name: known, trust, ttl, tag, hint, sender, ...chunks });
  if (plan.hint !== null && chunkCount(plan) > 1) throw failed("--hint is for files of one chunk");
  const { file } = source;
  const sent = await sendResumably(session, plan, source, flags.retries);
  const { name } = sent.recipient;
  const { code = "delivered", delivery_mode = null } = sent.last ?? {};
  const outcome = `${outcomes[delivery_mode ?? ""] ?? code} ${to}${describeTrust(sent.recipient.trust)}`;
  session.report.result(
    {
      ok: true,
      to,
      recipient: { trust: sent.recipient.trust, name },
      file: basename(file.name),
      size_bytes: file.sizeBytes,
      sha256: file.sha256.toHex(),
      chunks: sent.chunks,
      message_group_id: sent.groupId,
      message_ids: sent.messageIds,
      code,
      delivery_mode,
    },
    `${printable(file.name)} (${renderBytes(file.sizeBytes)}) ${outcome}`,
  );
}

/** The result in words, by the delivery mode of the last chunk. */
const outcomes: Readonly<Record<string, string>> = {
  direct: "was delivered to",
  forwarded: "was forwarded towards",
  cache: "waits in the Cache of",
};

async function sendResumably(session: Session, fresh: SendPlan, source: Source, retries: number): Promise<Sent> {
  const { report, keysFolder, client } = session;
  const folder = outboxFolder(keysFolder);
  const chunked = chunkCount(fresh) > 1;
  const unfinished = chunked ? await findUnfinished(folder, fresh, Date.now()) : null;
  const plan = unfinished === null ? fresh : { ...unfinished.plan, sender: fresh.sender };
  const delivered = unfinished?.delivered ?? 0;
  if (delivered > 0) report.note(`continuing after ${delivered} of ${chunkCount(plan)} chunks`);
  const show = (sentBytes: number) =>
    report.progress(`${printable(plan.file.name)} ${renderBar(sentBytes, plan.file.sizeBytes)}`);
  let state = chunked ? await saveOutgoing(folder, plan, delivered) : null;
  show(Math.min(delivered * plan.chunkBytes, plan.file.sizeBytes));
  const onRetry = (attempt: number, reason: string, delayMs: number) =>
    report.progress(`attempt ${attempt} failed (${reason}), again in ${delayMs / 1_000} s`);
  const sent = await sendPlan(plan, source, {
    relay: client.relay,
    retrying: { ...retryingDefault, retries, onRetry },
    from: delivered,
    onDelivered: async ({ sentBytes, chunk }) => {
      show(sentBytes);
      if (chunked) state = await saveOutgoing(folder, plan, chunk + 1);
    },
  });
  if (state !== null) await removeIfThere(state);
  return sent;
}
