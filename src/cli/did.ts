/**
 * `waypost did`: identities of this machine. This file makes and shows them, and compares keys with
 * a correspondent; their changes are in `did-change.ts`.
 * Source: interface "Recipient delivery policy", docs/trust.md.
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { ClientError, orNull } from "../client/base/failure.ts";
import type { WaypostOptions } from "../client/identity/opening.ts";
import { checkHomes } from "../client/identity/registration.ts";
import { activeDocument, type Client, trustIn } from "../client/trust/client.ts";
import { type Fingerprint, fingerprintBetween, setCompared } from "../client/trust/fingerprint.ts";
import { forget } from "../client/trust/own.ts";
import { Waypost } from "../client/waypost.ts";
import type { Did } from "../core/codec/did.ts";
import { addIdentityFlag, addWaitFlag, clientCommand, parseName } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { registerChangeCommands } from "./did-change.ts";
import { listIdentities, loadIdentity } from "./files/files.ts";

export function registerDidCommand(program: Command): void {
  const did = program.command("did").description("create, show and change identities");
  registerCreate(did);
  registerReads(did);
  registerChangeCommands(did);
  registerTrust(did);
}

// ------------------------------------------------------------------------------------------ create

type CreateFlags = { readonly name: string; readonly random?: boolean } & Pick<
  WaypostOptions,
  "alias" | "invitation"
>;

function registerCreate(did: Command): void {
  const command = did
    .command("create")
    .description("create keys on this machine and register a DID for them")
    .requiredOption("--name <name>", "name of the identity on this machine", parseName)
    .option("--alias <alias>", "a public alias to register with it")
    .option("--invitation <link>", "link or code, where the Directory registers who is invited")
    .option("--random", "also a random DID, whose keys nothing can prove");
  clientCommand(addWaitFlag(command), createDid);
}

/**
 * Keys are saved before they are registered: after a failure the same command goes on with them.
 */
async function createDid(
  session: CommandSession,
  { name, alias, invitation, random }: CreateFlags,
): Promise<void> {
  const { client, keysFolder, report } = session;
  if ((await listIdentities(keysFolder)).includes(name)) {
    const { did } = await session.identity(name);
    const { registration_status: status } = await client.directory.registrationStatus(did);
    if (status === "confirmed") throw failed(`${name} already exists: ${did}`);
  }
  // An identity whose document names an address where no such node answers could never
  // receive: no keys for it.
  await checkHomes(client, session);
  report.progress(`registering ${name}`);
  const waiting = session.waiting("waiting for the ledger");
  const chosen = {
    ...(alias === undefined ? {} : { alias }),
    ...(invitation === undefined ? {} : { invitation }),
    ...(random === true ? { allowRandom: true } : {}),
  };
  const me = await Waypost.open({ ...session.options(name), ...chosen, waiting });
  await me.close();
  await session.rememberHome(name);
  report.result({ ok: true, name, did: me.did }, `${name} is ${me.did} (confirmed)`);
}

// -------------------------------------------------------------------------------------------- show

function registerReads(did: Command): void {
  const named = "(default: the one that --as names)";
  const show = did
    .command("show [target]")
    .description(
      `show record and policy of a DID, an alias, or an identity of this machine ${named}`,
    );
  clientCommand(addIdentityFlag(show), showDid);
  clientCommand(did.command("list").description("list the identities of this machine"), listNames);
}

async function targetDid(session: CommandSession, target: string | undefined): Promise<Did> {
  if (target === undefined) return (await session.identity()).did;
  await session.recall();
  return session.find(target);
}

/**
 * What shows that the keys are those of the DID; or why the Directory is not believed,
 * such as `proof_invalid`.
 */
async function levelOf(client: Client, did: Did): Promise<string> {
  try {
    await activeDocument(client, did);
    return await trustIn(client, did);
  } catch (error) {
    if (error instanceof ClientError && error.kind === "distrusted") return error.code;
    throw error;
  }
}

async function showDid(
  session: CommandSession,
  _: object,
  target: string | undefined,
): Promise<void> {
  const { client, report } = session;
  const did = await targetDid(session, target);
  const record = await client.directory.resolve(did);
  const trust = record.deactivated ? null : await levelOf(client, did);
  const policy =
    (await orNull(client.directory.recipientPolicy(did), "policy_not_found"))?.policy ?? null;
  const text = `${did} (${trust ?? "deactivated"})\n${JSON.stringify({ ...record, policy }, null, 2)}`;
  report.result({ ...record, policy, trust }, text);
}

async function listNames({ keysFolder, report }: CommandSession): Promise<void> {
  const identities: { name: string; did: string | null; problem?: string }[] = [];
  for (const name of await listIdentities(keysFolder)) {
    try {
      identities.push({ name, did: (await loadIdentity(keysFolder, name)).did });
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      identities.push({ name, did: null, problem: error.message });
    }
  }
  const lines = identities.map(({ name, did, problem }) => `${name} ${did ?? problem}`);
  report.result({ identities }, lines.join("\n") || `no identity in ${keysFolder}`);
}

// ---------------------------------------------------------------------------------- correspondents

function registerTrust(did: Command): void {
  const fingerprint = did
    .command("fingerprint <target>")
    .description("show a text to compare with a correspondent: both see the same")
    .option("--compared <text>", "both saw this text: remember it, and believe the keys again");
  clientCommand(addIdentityFlag(fingerprint), showFingerprint);
  const forget = did
    .command("forget <target>")
    .description(
      "forget what a DID or an alias was, and believe the next proof (after identity_changed)",
    );
  clientCommand(addIdentityFlag(forget), forgetTarget);
}

async function showFingerprint(
  session: CommandSession,
  { compared }: { readonly compared?: string },
  target = "",
): Promise<void> {
  const { client, report } = session;
  const [{ did }, to] = [await session.identity(), await session.find(target)];
  if (compared !== undefined) await setCompared(client, did, to, compared);
  const shown = await fingerprintBetween(client, did, to);
  const { is, was, isCompared, distrusted } = shown;
  const result = {
    ok: true,
    did,
    with: to,
    fingerprint: is,
    was,
    compared: isCompared,
    distrusted,
  };
  report.result(result, fingerprintText(shown));
}

function fingerprintText({ is, was, isCompared, distrusted }: Fingerprint): string {
  const lines = was === null ? [is] : [`was ${was}`, `is  ${is}`];
  if (isCompared) lines.push("compared");
  if (distrusted !== null) lines.push(`distrusted: ${distrusted}`);
  return lines.join("\n");
}

async function forgetTarget(session: CommandSession, _: object, target = "") {
  const { client, report } = session;
  const { name, did } = await session.identity();
  await forget(client, did, await session.named(target));
  report.result({ ok: true, forgotten: target }, `${name} has forgotten ${target}`);
}
