/**
 * `waypost send`: one file, sealed to a recipient's key and given to the Relay, in chunks when it
 * is large. The same command continues an interrupted chunk set, because the SDK does.
 * Source: rules sections 2 and 5.
 */
import { type Command, Option } from "commander";
import { attempt, ClientError, pause, retriesDefault } from "../client/base/failure.ts";
import { memoryKeys } from "../client/keys/key-stores.ts";
import { createIdentity } from "../client/keys/keys.ts";
import type { Source } from "../client/mail/content.ts";
import { OwnIdentity } from "../client/mail/own-identity.ts";
import type { MessageOptions, Sent } from "../client/mail/send.ts";
import { about as askAbout } from "../client/net/about.ts";
import { Passing } from "../client/store/passing.ts";
import type { TrustDemand } from "../client/trust/trust.ts";
import {
  addIdentityFlag,
  clientCommand,
  describeTrust,
  maintenanceText,
  parseBetween,
  parseCount,
  parseTtl,
  parseWait,
  printable,
  renderBytes,
} from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { fileSource } from "./files/source.ts";

type SendFlags = {
  readonly to: string;
  readonly file: string;
  readonly anonymous?: boolean;
  readonly ttl: string;
  readonly tag?: string;
  readonly hint?: "direct" | "cache";
  readonly retries: number;
  /** Milliseconds. */
  readonly timeout?: number;
  readonly chunkBytes?: number;
  readonly trust?: TrustDemand;
};

export function registerSendCommand(program: Command): void {
  const command = program
    .command("send")
    .description("send a file, end-to-end encrypted")
    .requiredOption(
      "--to <target>",
      "a DID, an alias, either @ its Directory, or an identity of this machine",
    )
    .requiredOption("--file <path>", "the file")
    .option("--anonymous", "do not sign")
    .addOption(
      new Option("--trust <level>", "the least that must show the recipient's keys").choices([
        "proven",
        "logged",
      ]),
    )
    .option(
      "--ttl <duration>",
      "how long the message may wait for the recipient: 24h, 1d12h",
      parseTtl,
      "24h",
    )
    .option("--tag <text>", "a public tag, for the recipient's policies")
    .addOption(
      new Option("--hint <hint>", "deliver only directly, or straight to a Cache").choices([
        "direct",
        "cache",
      ]),
    )
    .option("--retries <number>", "retries for each chunk", parseCount, retriesDefault)
    .option(
      "--timeout <duration>",
      "how long to try: 30s, 5m (default: until the retries are over)",
      parseWait,
    )
    .option(
      "--chunk-bytes <number>",
      "bytes of the file in one envelope (default: 1 MiB)",
      parseBetween(1, 16_777_216),
    );
  clientCommand(addIdentityFlag(command), sendFile);
}

async function sendFile(
  session: CommandSession,
  { to: target, file: path, ...flags }: SendFlags,
): Promise<void> {
  const { report } = session;
  report.progress(`reading ${path}`);
  const source = await fileSource(
    path,
    Bun.file(path).type.split(";")[0] || "application/octet-stream",
  );
  const { name, sizeBytes, sha256 } = source.file;
  const { ttl, tag, hint, trust, chunkBytes, retries, anonymous, timeout } = flags;
  const signal = timeout === undefined ? undefined : AbortSignal.timeout(timeout);
  const chosen = Object.entries({ ttl, tag, hint, trust, chunkBytes, retries, anonymous, signal });
  const options: MessageOptions = Object.fromEntries(
    chosen.filter(([, value]) => value !== undefined),
  );
  const to = await session.named(target);
  const send = anonymous === true ? sendUnsigned : sendSigned;
  const sent = await explained(session, timeout, () =>
    send(session, to, source, {
      ...options,
      onProgress: ({ sentBytes }) =>
        report.progress(`sending ${renderBytes(sentBytes)} of ${renderBytes(sizeBytes)}`),
    }),
  );
  const { did, ...recipient } = sent.recipient;
  const { code = "delivered", delivery_mode = null } = sent.last ?? {};
  const outcome = `${outcomes[delivery_mode ?? ""] ?? code} ${did}${describeTrust(recipient.trust)}`;
  report.result(
    {
      ok: true,
      to: did,
      recipient,
      file: name,
      size_bytes: sizeBytes,
      sha256: sha256.toHex(),
      chunks: sent.chunks,
      message_group_id: sent.groupId,
      message_ids: sent.messageIds,
      code,
      delivery_mode,
    },
    `${printable(name)} (${renderBytes(sizeBytes)}) ${outcome}`,
  );
}

/** The wait before the node is asked why it takes long, and from then on between two questions. */
const [slowMs, askAgainMs] = [2_000, 30_000];

/** Says once that maintenance holds the work up. An end by the timeout is exit code 2. */
async function explained(
  session: CommandSession,
  timeoutMs: number | undefined,
  work: () => Promise<Sent>,
): Promise<Sent> {
  const done = new AbortController();
  const reason = untilMaintenance(session, done.signal).then((text) => {
    if (text !== null) session.report.warn({ type: "maintenance", text: `${text}; waiting` });
    return text;
  });
  const sent = await attempt(work);
  done.abort();
  const text = await reason;
  if (!(sent instanceof ClientError)) return sent;
  if (sent.code !== "aborted" || timeoutMs === undefined) throw sent;
  const late = `not sent within ${timeoutMs / 1_000} s`;
  const words = text === null ? late : `${late}: ${text}`;
  throw new ClientError("timed_out", "timed_out", words);
}

/**
 * What the Relay says of its maintenance, once there is one; `null` when the work is done before.
 */
async function untilMaintenance(
  { client }: CommandSession,
  done: AbortSignal,
): Promise<string | null> {
  for (let waitMs = slowMs; ; waitMs = askAgainMs) {
    await pause(waitMs, done);
    if (done.aborted) return null;
    const about = await attempt(() => askAbout(client.relay));
    if (about instanceof ClientError) continue;
    const { maintenance = null } = about;
    if (maintenance !== null) return maintenanceText(maintenance.message);
  }
}

async function sendSigned(
  session: CommandSession,
  to: string,
  source: Source,
  options: MessageOptions,
): Promise<Sent> {
  const { signal } = options;
  const me = await session.open(signal === undefined ? {} : { signal });
  return me.send(to, source, options);
}

/**
 * Opens no identity: that asks the Directory for its DID. What is remembered of the
 * recipient lies on this machine.
 */
async function sendUnsigned(
  session: CommandSession,
  to: string,
  source: Source,
  options: MessageOptions,
): Promise<Sent> {
  await session.recallChosen();
  const unsigned = new OwnIdentity(session.client, createIdentity("unsigned"), {
    keys: memoryKeys(),
  });
  const passing = await Passing.open(unsigned);
  return passing.send(to, source, options).finally(() => passing.close());
}

/** The result in words, by the delivery mode of the last chunk. */
const outcomes: Readonly<Record<string, string>> = {
  direct: "was delivered to",
  forwarded: "was forwarded towards",
  cache: "waits in the Cache of",
};
