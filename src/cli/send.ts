/**
 * `waypost send`: one file, sealed to a recipient's key and given to the Relay, in chunks when it is large. The same command
 * continues an interrupted chunk set.
 * Source: docs/ledger.md 3.2, rules sections 2 and 5.
 */
import { basename } from "node:path";
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { planSend, senderOf } from "../client/client.ts";
import type { Source } from "../client/content.ts";
import {
  buildEnvelope,
  chunkCount,
  Outgoing,
  retryingDefault,
  type SendPlan,
  type SendProgress,
  type Sent,
} from "../client/send.ts";
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
import { explainSending } from "./explain.ts";
import { removeIfThere } from "./files/files.ts";
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
  readonly explain?: boolean;
};

export function registerSendCommand(program: Command): void {
  const command = program
    .command("send")
    .description("send a file, end-to-end encrypted")
    .requiredOption("--to <target>", "a DID, an alias, or an identity of this machine")
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
    .option("--chunk-bytes <number>", "bytes of the file in one envelope (default: 1 MiB)", parseBetween(1, 16_777_216))
    .option("--explain", "send nothing; report whether the message would be accepted, and why (exit code 1 if not)");
  clientCommand(addIdentityFlag(command), (session, flags: SendFlags) =>
    (flags.explain === true ? explainFile : sendFile)(session, flags),
  );
}

function readSource({ report }: Session, { file }: SendFlags): Promise<Source> {
  report.progress(`reading ${file}`);
  return fileSource(file, Bun.file(file).type.split(";")[0] || "application/octet-stream");
}

/** What a correspondent was is remembered with the identity that writes to it. */
async function findRecipient(session: Session, flags: SendFlags) {
  const sender = flags.anonymous === true ? null : await session.identity();
  return { sender, ...(await session.find(flags.to, flags.trust)) };
}
type FoundRecipient = Awaited<ReturnType<typeof findRecipient>>;

async function planFile(
  session: Session,
  { did, name, sender: identity }: FoundRecipient,
  { file }: Source,
  flags: SendFlags,
): Promise<SendPlan> {
  const { client } = session;
  const sender = identity === null ? null : await senderOf(client, identity);
  const plan = await planSend(client, did, file, {
    name,
    trust: flags.trust ?? null,
    ttl: flags.ttl,
    tag: flags.tag ?? null,
    hint: flags.hint ?? null,
    sender,
    ...(flags.chunkBytes === undefined ? {} : { chunkBytes: flags.chunkBytes }),
  });
  if (plan.hint !== null && chunkCount(plan) > 1) throw failed("--hint is for files of one chunk");
  return plan;
}

async function explainFile(session: Session, flags: SendFlags): Promise<void> {
  const found = await findRecipient(session, flags);
  const to = found.did;
  const source = await readSource(session, flags);
  const build = async () => {
    const plan = await planFile(session, found, source, flags);
    const { sizeBytes } = plan.file;
    const { body } = await buildEnvelope(plan, 0, await source.read(0, Math.min(plan.chunkBytes, sizeBytes)));
    return { body, sizeBytes, chunks: chunkCount(plan) };
  };
  await explainSending(session, to, { build, hint: flags.hint ?? "standard", tag: flags.tag ?? null });
}

async function sendFile(session: Session, flags: SendFlags): Promise<void> {
  const found = await findRecipient(session, flags);
  const to = found.did;
  const source = await readSource(session, flags);
  const plan = await planFile(session, found, source, flags);
  const sent = await sendResumably(session, plan, source, flags.retries);
  const { file } = plan;
  const code = sent.last?.code ?? "delivered";
  session.report.result(
    {
      ok: true,
      to,
      recipient: { trust: sent.recipient.trust, name: sent.recipient.name },
      file: basename(file.name),
      size_bytes: file.sizeBytes,
      sha256: file.sha256.toHex(),
      chunks: sent.chunks,
      message_group_id: sent.groupId,
      message_ids: sent.messageIds,
      code,
      delivery_mode: sent.last?.delivery_mode ?? null,
    },
    `${printable(file.name)} (${renderBytes(file.sizeBytes)}) ${outcomes[sent.last?.delivery_mode ?? ""] ?? code} ${to}${describeTrust(sent.recipient.trust)}`,
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
  const outgoing = new Outgoing(client.relay, { plan, source, delivered });
  if (delivered > 0) report.note(`continuing after ${delivered} of ${chunkCount(plan)} chunks`);
  const show = (sentBytes: number) =>
    report.progress(`${printable(plan.file.name)} ${renderBar(sentBytes, plan.file.sizeBytes)}`);
  let state = chunked ? await saveOutgoing(folder, outgoing) : null;
  show(Math.min(delivered * plan.chunkBytes, plan.file.sizeBytes));
  const sent = await outgoing.send({
    retries,
    onProgress: async ({ sentBytes }: SendProgress) => {
      show(sentBytes);
      if (chunked) state = await saveOutgoing(folder, outgoing);
    },
    onRetry: (attempt, reason, delayMs) =>
      report.progress(`attempt ${attempt} failed (${reason}), again in ${delayMs / 1_000} s`),
  });
  if (state !== null) await removeIfThere(state);
  return sent;
}
