/**
 * `waypost did prepare` and `submit`: changes signed by a key that is not on this machine. The Directory
 * prepares the bytes, something else signs them (`waypost key sign` on another machine, or hardware),
 * and the signature is added here. Neither needs an identity.
 * Source: rules section 4 ("Preparation").
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import type { Submission } from "../client/directory.ts";
import { jsonBody } from "../client/http.ts";
import { isRecord } from "../client/shape.ts";
import { decodeBase64, decodeHex, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { parseDidUrl } from "../core/codec/did.ts";
import { addConnectionFlags, type ConnectionFlags, runSession, type Session, targetDid } from "./connection.ts";

const actionsText =
  "register, replace_document, Add-, Update- or Remove- before VerificationMethod, KeyAgreement or Service, " +
  "AddAuthentication, RemoveAuthentication, UpdateRootPubkey, add_alias, update_alias, remove_alias, " +
  "deactivate_did, delete_did, set_alias, set_delivery_policy_links, set_delivery_policy, set_tag_policy, set_persona_policy";

export function registerExternalCommands(did: Command): void {
  const prepare = did
    .command("prepare")
    .argument("<target>", "a DID, an alias, or an identity of this machine")
    .argument("<action>", actionsText)
    .description("ask the Directory for the bytes that a key held elsewhere must sign")
    .option("--body <json>", 'the members of the action, such as {"id":"#k1"}', "{}")
    .option("--signer <id>", "root, or the id of a method, such as #k1")
    .option("--out <file>", "keep the preparation in a file for submit");
  addConnectionFlags(prepare).action((target: string, action: string, flags: PrepareFlags) =>
    runSession(flags, (session) => prepareChange(session, target, action, flags)),
  );
  const submit = did
    .command("submit <file>")
    .description("submit a preparation with its signature")
    .requiredOption("--signature <text>", "the 64 bytes as Base64 or hex");
  addConnectionFlags(submit).action((file: string, flags: SubmitFlags) =>
    runSession(flags, (session) => submitPrepared(session, file, flags)),
  );
}

type PrepareFlags = ConnectionFlags & { readonly body: string; readonly signer?: string; readonly out?: string };
type SubmitFlags = ConnectionFlags & { readonly signature: string };

async function prepareChange(session: Session, target: string, action: string, flags: PrepareFlags): Promise<void> {
  const members = parseRecord(flags.body);
  if (members === null) throw failed("--body must be a JSON object");
  const { directory } = session.client;
  const prepared =
    action === "register"
      ? await directory.prepareRegistration({ ...members, did: target })
      : await prepareUpdate(session, target, { ...members, action, signer_key_id: flags.signer });
  if (flags.out !== undefined) await Bun.write(flags.out, `${JSON.stringify(prepared, null, 2)}\n`);
  const text = [
    `sign these bytes: ${prepared.payload_to_sign}`,
    `before ${prepared.expires_at}`,
    ...(flags.out === undefined ? [] : [`then: waypost did submit ${flags.out} --signature <text>`]),
  ];
  session.report.result(prepared, text.join("\n"));
}

async function prepareUpdate(session: Session, target: string, members: Record<string, unknown>) {
  const did = await targetDid(session, target);
  const { signer_key_id: signer } = members;
  const signerId = typeof signer === "string" ? (parseDidUrl(signer, did) ?? signer) : signer;
  return session.client.directory.prepare(did, { did, ...members, signer_key_id: signerId });
}

async function submitPrepared(session: Session, file: string, flags: SubmitFlags): Promise<void> {
  const prepared = parseRecord(
    await Bun.file(file)
      .text()
      .catch(() => ""),
  );
  if (prepared === null || !isRecord(prepared["submit"])) throw failed(`${file} is not a preparation`);
  const signature = parseSignature(flags.signature);
  if (signature === null) throw failed("a signature is 64 bytes as Base64 or hex");
  const { directory } = session.client;
  const submission = submissionOf(prepared, signature);
  if (prepared["action"] === "register") {
    const registered = await directory.register({ ...requestOf(prepared), signature });
    session.report.result({ ok: true, ...registered }, `${registered.did} is ${registered.registration_status}`);
    return;
  }
  const accepted = await sendPrepared(session, String(prepared["action"]), submission);
  session.report.result({ ok: true, ...accepted }, `${accepted.did}: accepted as ${accepted.tx_hash}`);
}

function sendPrepared(session: Session, action: string, submission: Submission) {
  const { directory } = session.client;
  if (action === "replace_document") return directory.replaceDocument(submission);
  if (submission.headers !== undefined) return directory.submitExtrinsic(submission);
  return action === "add_alias" || action === "remove_alias"
    ? directory.updateAlias(submission)
    : directory.update(submission);
}

const methods = ["POST", "PUT", "PATCH", "DELETE"] as const;

/** The body that the Directory prepared, with the signature where the route wants it. */
function submissionOf(prepared: Record<string, unknown>, signature: string): Submission {
  const { submit, headers, body } = prepared;
  const route = isRecord(submit) ? submit : {};
  const method = methods.find((name) => name === route["method"]);
  const where = route["path"];
  if (method === undefined || typeof where !== "string") throw failed("the preparation names no route");
  if (!isRecord(headers)) return { method, path: where, body: jsonBody({ ...requestOf(prepared), signature }) };
  const proof = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
  const bytes = new Uint8Array(utf8(String(body)));
  return { method, path: where, headers: { ...proof, "X-Signature": signature }, body: bytes };
}

function requestOf(prepared: Record<string, unknown>): Record<string, unknown> {
  const request = prepared["request"];
  if (!isRecord(request)) throw failed("the preparation holds no request");
  return request;
}

/** Base64 of 64 bytes from what a signer answered. */
function parseSignature(text: string): string | null {
  const bytes = /^(0x)?[0-9a-fA-F]{128}$/.test(text) ? decodeHex(text) : decodeBase64(text);
  return bytes?.length === 64 ? encodeBase64(bytes) : null;
}

function parseRecord(text: string): Record<string, unknown> | null {
  try {
    const json: unknown = JSON.parse(text);
    return isRecord(json) ? json : null;
  } catch {
    return null;
  }
}
