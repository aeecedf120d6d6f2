/**
 * `waypost notice`: a text to everybody. It is signed where the operator's identity is, and
 * published on the running node over its Unix socket: the keys need not be on the server.
 */
import { readFile } from "node:fs/promises";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { signEd25519 } from "../client/keys/crypto.ts";
import { senderOf } from "../client/trust/client.ts";
import { encodeNoticeText, noticeCharsMax, renderNotice } from "../core/message/notice.ts";
import { addIdentityFlag, clientCommand, createReport } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { addNodeFlags, askNode, type NodeFlags } from "./operations.ts";

export function registerNoticeCommand(program: Command): void {
  const notice = program.command("notice").description("a text of the operator to everybody");
  clientCommand(
    addIdentityFlag(
      notice.command("sign <text>").description("print the text, signed, for `notice publish`"),
    ),
    sign,
  );
  addNodeFlags(
    notice
      .command("publish [file]")
      .description("show a signed notice to everybody; without a file, that of standard input"),
  ).action(publish);
  addNodeFlags(notice.command("remove").description("end the notice")).action(remove);
}

async function sign(session: CommandSession, _flags: object, text: string | undefined) {
  if (text === undefined || text === "" || text.length > noticeCharsMax)
    throw failed(`a notice has 1 to ${noticeCharsMax} characters`);
  const { client, identity } = await session.open();
  const { did, keyId: signer, seed } = await senderOf(client, identity);
  const unsigned = { did, text, issuedAtMs: Date.now() };
  const signature = await signEd25519(encodeNoticeText(unsigned), seed);
  const form = renderNotice({ ...unsigned, signer, signature });
  session.report.result(form, JSON.stringify(form));
}

async function publish(file: string | undefined, flags: NodeFlags): Promise<void> {
  const text = file === undefined ? await Bun.stdin.text() : await readFile(file, "utf8");
  const form = parseNotice(text);
  const answer = await askNode(flags, "/operations/notice", { notice: form });
  createReport(flags.json === true).result(answer, "everybody is shown the notice");
}

/** The node examines the members. `null` would have it remove the notice. */
function parseNotice(text: string): object {
  const form = parsedOrNull(text);
  if (typeof form === "object" && form !== null) return form;
  throw failed("this is not the output of `waypost notice sign`");
}

function parsedOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function remove(flags: NodeFlags): Promise<void> {
  const answer = await askNode(flags, "/operations/notice", { notice: null });
  createReport(flags.json === true).result(answer, "there is no notice");
}
