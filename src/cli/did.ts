/**
 * `waypost did`: identities of this machine. Here: making one, and looking at one; changes are in
 * `did-change.ts`, policies in `did-policy.ts`, keys held elsewhere in `did-external.ts`.
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { ClientError, orNull } from "../client/http.ts";
import { createIdentity, type Identity } from "../client/keys.ts";
import { firstDocument, register, settleRegistration } from "../client/registration.ts";
import { isDid } from "../core/codec/did.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  addWaitFlags,
  type ConnectionFlags,
  chooseIdentity,
  runSession,
  type Session,
  targetDid,
  useIdentity,
  type WaitFlags,
  waitingOf,
} from "./connection.ts";
import { registerAgreementCommand, registerChangeCommands } from "./did-change.ts";
import { registerExternalCommands } from "./did-external.ts";
import { registerPolicyCommand } from "./did-policy.ts";
import { listIdentities, loadIdentity, saveIdentity, saveNewIdentity } from "./files/key-files.ts";
import { checkEndpoint } from "./health.ts";
import { printable } from "./report.ts";

export function registerDidCommand(program: Command): void {
  const did = program.command("did").description("make, look at and change identities");
  registerCreate(did);
  registerReads(did);
  registerChangeCommands(did);
  registerAgreementCommand(did);
  registerPolicyCommand(did);
  registerExternalCommands(did);
}

type CreateFlags = ConnectionFlags & WaitFlags & { readonly name: string; readonly alias?: string };

function registerCreate(did: Command): void {
  const command = did
    .command("create")
    .description("make keys on this machine and register a DID for them")
    .requiredOption("--name <name>", "what to call the identity here")
    .option("--alias <alias>", "a public alias to register along with it");
  addWaitFlags(addConnectionFlags(command)).action((flags: CreateFlags) =>
    runSession(flags, (session) => createDid(session, flags)),
  );
}

async function createDid(session: Session, flags: CreateFlags): Promise<void> {
  await refuseWrongEndpoints(session);
  const identity = await claimIdentity(session, flags.name);
  const document = await firstDocument(identity, { relayUrl: session.relayUrl, cacheUrl: session.cacheUrl });
  session.report.progress(`registering ${identity.did}`);
  const registered = await register(session.client, identity, { document, alias: flags.alias ?? null });
  await saveIdentity(session.keysFolder, { ...identity, ledger: session.client.learnt.ledger });
  const waiting = waitingOf(session, flags, "waiting for the ledger");
  const status = waiting === null ? null : await settleRegistration(session.client, registered, waiting);
  const state = status?.registration_status ?? registered.registration_status;
  session.report.result(
    {
      ok: true,
      name: identity.name,
      did: identity.did,
      registration_status: state,
      version: status?.version ?? null,
      tx_id: registered.tx_id,
      did_document: status?.did_document ?? registered.did_document,
    },
    `${identity.name} is ${identity.did} (${state})`,
  );
}

/** A document that names an address to which its node does not answer makes an identity that can never receive. */
async function refuseWrongEndpoints({ relayUrl, cacheUrl }: Session): Promise<void> {
  const published = [
    ["relay", relayUrl],
    ["cache", cacheUrl],
  ] as const;
  for (const [role, url] of published) {
    const check = await checkEndpoint(url, role);
    if (check.state === "wrong")
      throw failed(`${url}: ${check.reason}; give the address that the ${role} publishes: --${role} <url>`);
  }
}

/**
 * Keys on disk before anything is registered. Keys of a registration that did not come through are used
 * again: the name then stands for an identity that the Directory does not know.
 */
async function claimIdentity(session: Session, name: string): Promise<Identity> {
  const { keysFolder, client } = session;
  if (!(await listIdentities(keysFolder)).includes(name)) {
    const identity = createIdentity(name);
    await saveNewIdentity(keysFolder, identity);
    return identity;
  }
  const identity = await useIdentity(session, name);
  const status = await client.directory.registrationStatus(identity.did);
  if (status.registration_status === "confirmed") throw failed(`${name} already exists: ${identity.did}`);
  return identity;
}

type ReadFlags = ConnectionFlags & { readonly as?: string };

function registerReads(did: Command): void {
  const show = did
    .command("show [target]")
    .description("the record of a DID, an alias, or an identity of this machine");
  addIdentityFlag(addConnectionFlags(show)).action((target: string | undefined, flags: ReadFlags) =>
    runSession(flags, (session) => showDid(session, target, flags)),
  );
  const status = did.command("status [target]").description("registration state and counters");
  addIdentityFlag(addConnectionFlags(status)).action((target: string | undefined, flags: ReadFlags) =>
    runSession(flags, (session) => showStatus(session, target, flags)),
  );
  const list = did.command("list").description("the identities of this machine");
  addConnectionFlags(list).action((flags: ConnectionFlags) => runSession(flags, listNames));
}

async function didOf(session: Session, target: string | undefined, flags: ReadFlags): Promise<string> {
  return target === undefined ? (await chooseIdentity(session, flags.as)).did : targetDid(session, target);
}

async function showDid(session: Session, target: string | undefined, flags: ReadFlags): Promise<void> {
  const did = await didOf(session, target, flags);
  const record = await session.client.directory.resolve(did);
  const { document } = record;
  const section = (title: string, lines: readonly string[]) => [title, ...lines.map((line) => `  ${printable(line)}`)];
  const text = [
    `${record.did}${record.deactivated ? " (deactivated)" : ""}`,
    `version ${record.version}, changed ${record.updated_at}`,
    `root key ${record.root_pubkey ?? "none"}`,
    ...(record.aliases.length === 0 ? [] : [`aliases ${record.aliases.join(", ")}`]),
    ...section("methods", document?.verificationMethod.map((m) => `${m.id} ${m.type} ${m.publicKeyMultibase}`) ?? []),
    ...section("authentication", document?.authentication ?? []),
    ...section("key agreement", document?.keyAgreement.map((k) => `${k.id} ${k.type} ${k.publicKeyMultibase}`) ?? []),
    ...section(
      "services",
      document?.service.map((s) => `${s.id} ${s.type} ${[s.serviceEndpoint].flat().join(" ")}`) ?? [],
    ),
  ];
  session.report.result(record, text.join("\n"));
}

async function showStatus(session: Session, target: string | undefined, flags: ReadFlags): Promise<void> {
  const did = await didOf(session, target, flags);
  if (!isDid(did)) throw failed(`not a DID: ${did}`);
  const { directory } = session.client;
  const [status, nonces] = await Promise.all([
    directory.registrationStatus(did),
    orNull(directory.nonces(did), "did_not_found"),
  ]);
  const counters = Object.entries(nonces ?? {}).filter(([name]) => name.endsWith("_nonce"));
  const lines = [
    `${did} is ${status.registration_status}`,
    ...(status.version === undefined ? [] : [`version ${status.version}`]),
    ...counters.map(([name, value]) => `${name} ${value}`),
  ];
  session.report.result({ ...status, nonces }, lines.join("\n"));
}

async function listNames(session: Session): Promise<void> {
  const identities: { name: string; did: string | null; problem?: string }[] = [];
  for (const name of await listIdentities(session.keysFolder)) {
    try {
      identities.push({ name, did: (await loadIdentity(session.keysFolder, name)).did });
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      identities.push({ name, did: null, problem: error.message });
    }
  }
  const lines = identities.map(({ name, did, problem }) => `${name} ${did ?? problem}`);
  session.report.result({ identities }, lines.join("\n") || `no identity in ${session.keysFolder}`);
}
