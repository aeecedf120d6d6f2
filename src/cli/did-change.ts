/**
 * `waypost did rotate|add-key|remove-key|add-service|remove-service|alias|deactivate|delete`: changes of
 * an identity, signed with a key of this machine. New secrets are on disk before a change that needs them is submitted.
 * Source: interface "Signed DID-document updates", rules section 4, docs/client.md "Forward secrecy".
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { type Command, InvalidArgumentError } from "commander";
import { failed } from "../app/failure.ts";
import {
  type Changed,
  change,
  changeAsOwner,
  inForce,
  nextIdentity,
  type OwnerUpdate,
  publishKeys,
} from "../client/change.ts";
import { activeDocument } from "../client/client.ts";
import type { Signer } from "../client/crypto.ts";
import { type Identity, rootSignerId } from "../client/keys.ts";
import { changeIdentity } from "../client/opening.ts";
import { parsePublicKey, renderPublicKey } from "../core/codec/bytes.ts";
import { type DidUrl, normalizeAlias, parseDidUrl } from "../core/codec/did.ts";
import type { Intent } from "../core/ledger/actions.ts";
import { homeServiceType } from "../core/trust/home.ts";
import { addIdentityFlag, addWaitFlag, clientCommand, collectUrls, parseCount, type Session } from "./command.ts";
import { fileKeys } from "./files/files.ts";

/** A change under way: the session, the identity that is changed, and the flags. */
type Changing<F extends object = object> = {
  readonly session: Session;
  readonly identity: Identity;
  readonly flags: F;
};

/** Registers a command whose work is one change of the chosen identity. */
export function changeCommand<F extends object = object, A extends string[] = []>(
  command: Command,
  work: (changing: Changing<F>, ...values: A) => Promise<void>,
): void {
  addWaitFlag(addIdentityFlag(command));
  clientCommand<F, A>(command, async (session, flags, ...values) =>
    work({ session, identity: await session.identity(), flags }, ...values),
  );
}

export function registerChangeCommands(did: Command): void {
  registerKeyCommands(did);
  registerServiceCommands(did);
  registerAliasCommands(did);
  registerEndCommands(did);
}

const signerOf = ({ rootSeed }: Identity): Signer => ({ keyId: rootSignerId, seed: rootSeed });

function ownId(identity: Identity, text: string): DidUrl {
  const id = parseDidUrl(text, identity.did);
  // Routes name a component in their path, which can't hold a slash: the component could never be changed or removed.
  if (id === null || id.includes("/")) throw failed(`not an id of ${identity.did}: ${text}; write #name`);
  return id;
}

async function apply({ session, identity }: Changing, intent: Intent): Promise<Changed> {
  session.report.progress(`submitting ${intent.action}`);
  const waiting = session.waiting(`waiting for ${intent.action}`);
  return change(session.client, intent, { signer: signerOf(identity), waiting });
}

async function applyAndReport(changing: Changing, intent: Intent, text: string): Promise<void> {
  reportChange(changing.session, await apply(changing, intent), text);
}

export async function applyAsOwner({ session, identity }: Changing, update: OwnerUpdate, text: string) {
  const waiting = session.waiting(`waiting for ${update.extrinsic}`);
  reportChange(session, await changeAsOwner(session.client, update, { signer: signerOf(identity), waiting }), text);
}

function reportChange({ report }: Session, { accepted, record }: Changed, text: string): void {
  const version = record?.version ?? null;
  report.result({ ok: true, ...accepted, version }, `${text} (${accepted.tx_hash.slice(0, 14)}…, version ${version})`);
}

// ------------------------------------------------------------------------------------------------- keys

type AddKeyFlags = { readonly public?: string; readonly auth?: boolean };

function registerKeyCommands(did: Command): void {
  const rotateCommand = did
    .command("rotate")
    .description("replace every key of an identity: root key, methods, and the key that others seal to");
  clientCommand(addIdentityFlag(rotateCommand), rotate);
  changeCommand(
    did
      .command("add-key <id>")
      .description("add a key that signs")
      .option("--public <key>", "a public key whose secret is on another machine (default: create a key here)")
      .option("--auth", "list the method in authentication too"),
    addKey,
  );
  changeCommand(did.command("remove-key <id>").description("remove a key that signs"), removeKey);
}

/** The new keys are saved before they are submitted. After a crash, the same command continues with those. */
async function rotate(session: Session): Promise<void> {
  const { client, keysFolder, report } = session;
  const identity = await session.identity();
  const { name, did } = identity;
  const keys = fileKeys(keysFolder);
  if ((await keys.load(`${name}.device`)) !== null)
    throw failed(`other devices of ${name} would be locked out: replace its keys by waypost device remove`);
  const next = await changeIdentity(keys, identity, (stored) => nextIdentity(stored, Date.now()));
  const rotated = await publishKeys(client, next, session.waiting("waiting for the new keys"));
  await changeIdentity(keys, identity, (stored) => inForce(stored, rotated));
  const { version, root_pubkey } = await client.directory.resolve(did);
  report.result({ ok: true, did, root_pubkey, version }, `${name} has new keys, version ${version}`);
}

async function addKey(changing: Changing<AddKeyFlags>, text: string): Promise<void> {
  const { session, identity, flags } = changing;
  const { did } = identity;
  const id = ownId(identity, text);
  const secret = flags.public === undefined ? ed25519.utils.randomSecretKey() : null;
  const publicKey = secret === null ? parsePublicKey(flags.public ?? "") : ed25519.getPublicKey(secret);
  if (publicKey === null) throw failed(`not a public Ed25519 key: ${flags.public}`);
  const { verificationMethod, keyAgreement } = await activeDocument(session.client, did);
  // New secrets under the id would hide those in force.
  if ([...verificationMethod, ...keyAgreement].some((component) => component.id === id))
    throw failed(`the document already has ${id}`);
  if (secret !== null)
    await changeIdentity(fileKeys(session.keysFolder), identity, (stored) => ({
      ...stored,
      methods: [...stored.methods, { id, secret }],
    }));
  const method = { id, controller: did, type: "Multikey", publicKeyMultibase: renderPublicKey(publicKey) };
  const changed = await apply(changing, { action: "AddVerificationMethod", did, verificationMethod: method });
  const last = flags.auth === true ? await apply(changing, { action: "AddAuthentication", did, id }) : changed;
  reportChange(session, last, `${id} added`);
}

async function removeKey(changing: Changing, text: string): Promise<void> {
  const { session, identity } = changing;
  const id = ownId(identity, text);
  const { did } = identity;
  const { authentication } = await activeDocument(session.client, did);
  if (authentication.includes(id)) await apply(changing, { action: "RemoveAuthentication", did, id });
  await applyAndReport(changing, { action: "RemoveVerificationMethod", did, id }, `${id} removed`);
}

// ---------------------------------------------------------------------------------------------- services

const serviceTypes: Readonly<Record<string, string>> = {
  relay: "SvcRelayService",
  cache: "SvcCacheService",
  inbox: "SvcInboxService",
  directory: homeServiceType,
};

type ServiceFlags = {
  readonly type: string;
  readonly endpoint: string[];
  readonly authorize?: string[];
  readonly priority?: number;
};

function registerServiceCommands(did: Command): void {
  changeCommand(
    did
      .command("add-service <id>")
      .description("publish a service, or replace the one with this id")
      .requiredOption("--type <type>", "relay, cache, inbox, directory (the home), or a type name in full")
      .requiredOption("--endpoint <url...>", "1 to 5 addresses", collectUrls)
      .option("--authorize <key...>", "ids of the methods that may read there")
      .option("--priority <number>", "lower comes first", parseCount),
    addService,
  );
  changeCommand(did.command("remove-service <id>").description("withdraw a service"), (changing, text: string) => {
    const id = ownId(changing.identity, text);
    return applyAndReport(changing, { action: "RemoveService", did: changing.identity.did, id }, `${id} removed`);
  });
}

async function addService(changing: Changing<ServiceFlags>, text: string): Promise<void> {
  const { session, identity, flags } = changing;
  const { did } = identity;
  const id = ownId(identity, text);
  const { service: services } = await activeDocument(session.client, did);
  const exists = services.some((service) => service.id === id);
  const service = {
    id,
    type: serviceTypes[flags.type] ?? flags.type,
    serviceEndpoint: flags.endpoint,
    authorization: flags.authorize?.map((key) => ownId(identity, key)) ?? null,
    priority: flags.priority ?? null,
  };
  const intent: Intent = { action: exists ? "UpdateService" : "AddService", did, service };
  await applyAndReport(changing, intent, `${id} ${exists ? "replaced" : "added"}`);
}

// ----------------------------------------------------------------------------------------------- aliases

function parseAlias(text: string): string {
  const alias = normalizeAlias(text);
  if (alias === null) throw new InvalidArgumentError("It must be 1 to 64 of a-z 0-9 _ - .");
  return alias;
}

function registerAliasCommands(did: Command): void {
  const aliases = did.command("alias").description("change the names by which others find an identity");
  const command = (name: string, description: string) =>
    aliases.command(name).description(description).argument("<alias>", "alias", parseAlias);
  changeCommand(command("add", "add an alias"), (changing, alias: string) =>
    applyAndReport(changing, { action: "add_alias", did: changing.identity.did, alias }, `${alias} added`),
  );
  changeCommand(command("remove", "release an alias"), (changing, alias: string) =>
    applyAndReport(changing, { action: "remove_alias", did: changing.identity.did, alias }, `${alias} removed`),
  );
  const rename = command("rename", "replace one alias by another").argument("<new>", "new alias", parseAlias);
  changeCommand(rename, (changing, oldAlias: string, newAlias: string) => {
    const intent: Intent = { action: "update_alias", did: changing.identity.did, oldAlias, newAlias };
    return applyAndReport(changing, intent, `${oldAlias} is now ${newAlias}`);
  });
  changeCommand(command("primary", "set the alias of an identity that has none"), (changing, alias: string) =>
    applyAsOwner(changing, { extrinsic: "set_alias", did: changing.identity.did, alias }, `${alias} is the alias`),
  );
}

// ------------------------------------------------------------------------------------------------ the end

type EndFlags = { readonly yes?: boolean };

function registerEndCommands(did: Command): void {
  changeCommand(
    did
      .command("deactivate")
      .description("deactivate an identity permanently: afterwards it can't be changed, reached or deleted")
      .option("--yes", "do not ask for confirmation"),
    async (changing: Changing<EndFlags>) => {
      const { did, name } = changing.identity;
      confirmed(`Deactivate ${name} (${did}) permanently?`, changing.flags);
      await applyAndReport(changing, { action: "deactivate_did", did }, `${name} is deactivated`);
    },
  );
  changeCommand(
    did
      .command("delete")
      .description("remove a DID and its aliases from the ledger, and its keys from this machine")
      .option("--yes", "do not ask for confirmation"),
    async (changing: Changing<EndFlags>) => {
      const { session, identity, flags } = changing;
      const { did, name } = identity;
      confirmed(`Delete ${name} (${did})?`, flags);
      const { accepted } = await apply(changing, { action: "delete_did", did });
      await fileKeys(session.keysFolder).save(name, null);
      session.report.result({ ok: true, ...accepted }, `${name} is deleted`);
    },
  );
}

/** Asks for confirmation on the terminal; without a terminal, `--yes` is required. */
export function confirmed(question: string, flags: { readonly yes?: boolean }): void {
  if (flags.yes === true) return;
  if (process.stdin.isTTY !== true) throw failed(`${question} Confirm with --yes.`);
  if (prompt(`${question} Type yes:`) !== "yes") throw failed("cancelled: nothing was changed");
}
