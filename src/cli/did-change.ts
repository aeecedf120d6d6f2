/**
 * `waypost did rotate|rotate-agreement|add-key|remove-key|add-service|remove-service|alias|deactivate|delete`: changes of
 * an identity, signed with a key of this machine. New secrets are on disk before a change that needs them is submitted.
 * Commands that receive messages rotate the agreement key when that is due.
 * Source: interface "Signed DID-document updates", rules section 4, docs/client.md "Forward secrecy".
 */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { type Command, InvalidArgumentError, Option } from "commander";
import { failed } from "../app/failure.ts";
import {
  type Changed,
  change,
  changeAsOwner,
  type OwnerUpdate,
  type Rotated,
  replaceDocument,
  rotateAgreement,
} from "../client/change.ts";
import { activeDocument, rootKeyOf } from "../client/client.ts";
import type { Signer } from "../client/crypto.ts";
import { waitingDefault } from "../client/directory.ts";
import { ClientError } from "../client/http.ts";
import {
  heldSeed,
  type Identity,
  isRotationDue,
  rootSignerId,
  rotationMsDefault,
  signingSeed,
} from "../client/keys.ts";
import {
  equalBytes,
  parseAgreementKey,
  parsePublicKey,
  renderAgreementKey,
  renderPublicKey,
} from "../core/codec/bytes.ts";
import { type DidUrl, normalizeAlias, parseDidUrl } from "../core/codec/did.ts";
import type { DidDocument } from "../core/ledger/account.ts";
import type { Intent } from "../core/ledger/actions.ts";
import { keyOfMethod } from "../core/ledger/document.ts";
import { isSelfCertifying } from "../core/trust/names.ts";
import {
  addIdentityFlag,
  addWaitFlags,
  type ConnectionFlags,
  chooseIdentity,
  clientCommand,
  collectUrls,
  parseCount,
  parseWait,
  type Session,
  type WaitFlags,
  waitingOf,
} from "./command.ts";
import { forgetIdentity, saveIdentity } from "./files/files.ts";

export type ChangeFlags = ConnectionFlags & WaitFlags & { readonly as?: string; readonly signer?: string };

function addChangeFlags(command: Command): Command {
  return addWaitFlags(addIdentityFlag(command)).option(
    "--signer <id>",
    "the key that signs: root, or the id of a method whose key is on this machine",
    rootSignerId,
  );
}

export function registerChangeCommands(did: Command): void {
  registerKeyCommands(did);
  registerServiceCommands(did);
  registerAliasCommands(did);
  registerEndCommands(did);
}

/** The key that `--signer` names. */
function signerOf(identity: Identity, flags: ChangeFlags): Signer {
  const named = flags.signer ?? rootSignerId;
  const keyId = named === rootSignerId ? named : ownId(identity, named);
  return { keyId, seed: signingSeed(identity, keyId) };
}

function ownId(identity: Identity, text: string): DidUrl {
  const id = parseDidUrl(text, identity.did);
  // Routes name a component in their path, which can't hold a slash: the component could never be changed or removed.
  if (id === null || id.includes("/")) throw failed(`not an id of ${identity.did}: ${text}; write #name`);
  return id;
}

/** A change under way: the session, the identity that is changed, and the flags. */
type Changing<F extends ChangeFlags = ChangeFlags> = {
  readonly session: Session;
  readonly identity: Identity;
  readonly flags: F;
};

async function apply({ session, identity, flags }: Changing, intent: Intent): Promise<Changed> {
  session.report.progress(`submitting ${intent.action}`);
  const waiting = waitingOf(session, flags, `waiting for ${intent.action}`);
  return change(session.client, intent, { signer: signerOf(identity, flags), waiting });
}

async function applyAndReport(changing: Changing, intent: Intent, text: string): Promise<void> {
  reportChange(changing.session, await apply(changing, intent), text);
}

export async function applyAsOwner({ session, identity, flags }: Changing, update: OwnerUpdate, text: string) {
  const waiting = waitingOf(session, flags, `waiting for ${update.extrinsic}`);
  const changed = await changeAsOwner(session.client, update, { signer: signerOf(identity, flags), waiting });
  reportChange(session, changed, text);
}

function reportChange(session: Session, changed: Changed, text: string): void {
  const { accepted, record } = changed;
  const settled = record !== null;
  const version = settled ? `, version ${record.version}` : ", not yet settled";
  session.report.result(
    { ok: true, settled, ...accepted, version: record?.version ?? null },
    `${text} (${accepted.tx_hash.slice(0, 14)}…${version})`,
  );
}

/** Registers a command whose work is one change of the chosen identity. */
export function changeCommand<F extends ChangeFlags, A extends string[]>(
  command: Command,
  work: (changing: Changing<F>, ...values: A) => Promise<void>,
): void {
  clientCommand<F, A>(addChangeFlags(command), async (session, flags, ...values) =>
    work({ session, identity: await chooseIdentity(session, flags.as), flags }, ...values),
  );
}

// ------------------------------------------------------------------------------------------------- keys

type AddKeyFlags = ChangeFlags & {
  readonly type: "ed25519" | "x25519";
  readonly public?: string;
  readonly auth?: boolean;
};
type RotateFlags = ChangeFlags & { readonly rootOnly?: boolean };

function registerKeyCommands(did: Command): void {
  changeCommand(
    did
      .command("rotate")
      .description("replace the root key, and the key of the method #root if this machine holds it")
      .option("--root-only", "leave the document as it is"),
    rotate,
  );
  changeCommand(
    did
      .command("add-key <id>")
      .description("add a key: a verification method (ed25519) or a key agreement (x25519)")
      .addOption(new Option("--type <type>", "kind of key").choices(["ed25519", "x25519"]).default("ed25519"))
      .option("--public <key>", "a public key whose secret is on another machine (default: create a key here)")
      .option("--auth", "list the method in authentication too"),
    addKey,
  );
  changeCommand(did.command("remove-key <id>").description("remove a method or a key agreement"), removeKey);
}

/**
 * The new seed is saved as the next one before it is submitted. After a crash, the same command reads from the record
 * whether it is in force, and continues.
 */
async function rotate(changing: Changing<RotateFlags>): Promise<void> {
  const { session, identity, flags } = changing;
  if (flags.wait === false)
    throw failed("--no-wait is not possible: the old key is needed until the rotation is in force");
  const nextRootSeed = identity.nextRootSeed ?? ed25519.utils.randomSecretKey();
  await saveIdentity(session.keysFolder, { ...identity, nextRootSeed });
  const newRootPubkey = ed25519.getPublicKey(nextRootSeed);
  const before = await session.client.directory.resolve(identity.did);
  const inForce = await rootKeyOf(session.client, identity.did);
  const intent: Intent = { action: "UpdateRootPubkey", did: identity.did, newRootPubkey };
  const alreadyDone = equalBytes(inForce, newRootPubkey);
  const changed = alreadyDone ? null : await apply(changing, intent);
  const rotated = { ...identity, rootSeed: nextRootSeed, nextRootSeed: null };
  await saveIdentity(session.keysFolder, rotated);
  const method = flags.rootOnly === true ? null : await rotateRootMethod({ ...changing, identity: rotated });
  if (method === null) await signAnew({ ...changing, identity: rotated });
  const version = method?.record?.version ?? changed?.record?.version ?? before.version;
  session.report.result(
    { ok: true, settled: true, did: identity.did, root_pubkey: renderPublicKey(newRootPubkey), version },
    `${identity.name} has a new root key, version ${version}`,
  );
}

/**
 * An old root key that stays in the document as a method could still sign. The method's key is replaced if this machine
 * holds it, whichever it is: so the next rotation completes one that was interrupted.
 */
async function rotateRootMethod(changing: Changing): Promise<Changed | null> {
  const { session, identity, flags } = changing;
  const document = await activeDocument(session.client, identity.did);
  const method = document.verificationMethod.find(({ id }) => id === `${identity.did}#root`);
  const key = method === undefined ? null : keyOfMethod(method);
  if (method === undefined || key === null || (await heldSeed(identity, key)) === null) return null;
  if (equalBytes(key, ed25519.getPublicKey(identity.rootSeed))) return null;
  const methods = [...identity.methods, { id: method.id, secret: identity.rootSeed }];
  const publicKeyMultibase = renderPublicKey(ed25519.getPublicKey(identity.rootSeed));
  const intent: Intent = {
    action: "UpdateVerificationMethod",
    did: identity.did,
    verificationMethod: { ...method, publicKeyMultibase },
  };
  await saveIdentity(session.keysFolder, { ...identity, methods });
  return apply({ ...changing, flags: { ...flags, signer: rootSignerId } }, intent);
}

/** The new root key signs the whole document, so that the proof of a self-certifying DID rests on it. */
async function signAnew({ session, identity, flags }: Changing): Promise<void> {
  if (!isSelfCertifying(identity.did)) return;
  const waiting = waitingOf(session, flags, "waiting for the document") ?? waitingDefault;
  const options = { rootSeed: identity.rootSeed, edited: (document: DidDocument) => document, waiting };
  await replaceDocument(session.client, identity.did, options);
}

async function addKey(changing: Changing<AddKeyFlags>, text: string): Promise<void> {
  const { session, identity, flags } = changing;
  const id = ownId(identity, text);
  const { type } = flags;
  const { curve, parse, render } = keyKinds[type];
  const secret = flags.public === undefined ? curve.utils.randomSecretKey() : null;
  const publicKey = secret === null ? parse(flags.public ?? "") : curve.getPublicKey(secret);
  if (publicKey === null) throw failed(`not a public ${type} key: ${flags.public}`);
  const publicKeyMultibase = render(publicKey);
  const held = secret === null ? [] : [{ id, secret }];
  const kept: Identity =
    type === "ed25519"
      ? { ...identity, methods: [...identity.methods, ...held] }
      : { ...identity, agreements: [...identity.agreements, ...held.map((one) => ({ ...one, destroyAtMs: null }))] };
  if (flags.auth === true && flags.wait === false) throw failed("--auth needs the settled key: remove --no-wait");
  await refuseTaken(session, identity, id);
  await saveIdentity(session.keysFolder, kept);
  const component = { id, controller: identity.did, publicKeyMultibase };
  const { did } = identity;
  const intent: Intent =
    type === "ed25519"
      ? { action: "AddVerificationMethod", did, verificationMethod: { ...component, type: "Multikey" } }
      : { action: "AddKeyAgreement", did, keyAgreement: { ...component, type: "X25519KeyAgreementKey2020" } };
  let changed = await apply(changing, intent);
  if (flags.auth === true && type === "ed25519")
    changed = await apply(changing, { action: "AddAuthentication", did, id });
  reportChange(session, changed, `${id} added`);
}

/** Checked before new secrets are saved under the id: they must not hide those in force. */
async function refuseTaken(session: Session, identity: Identity, id: string): Promise<void> {
  const document = await activeDocument(session.client, identity.did);
  const components = [...document.verificationMethod, ...document.keyAgreement];
  if (components.some((component) => component.id === id)) throw failed(`the document already has ${id}`);
}

const keyKinds = {
  ed25519: { curve: ed25519, parse: parsePublicKey, render: renderPublicKey },
  x25519: { curve: x25519, parse: parseAgreementKey, render: renderAgreementKey },
} as const;

async function removeKey(changing: Changing, text: string): Promise<void> {
  const { session, identity, flags } = changing;
  const id = ownId(identity, text);
  const { did } = identity;
  const document = await activeDocument(session.client, did);
  if (document.keyAgreement.some((agreement) => agreement.id === id))
    return applyAndReport(changing, { action: "RemoveKeyAgreement", did, id }, `${id} removed`);
  if (document.authentication.includes(id)) {
    if (flags.wait === false) throw failed(`${id} must be removed from authentication first: remove --no-wait`);
    await apply(changing, { action: "RemoveAuthentication", did, id });
  }
  await applyAndReport(changing, { action: "RemoveVerificationMethod", did, id }, `${id} removed`);
}

// ---------------------------------------------------------------------------------------------- services

const serviceTypes: Readonly<Record<string, string>> = {
  relay: "SvcRelayService",
  cache: "SvcCacheService",
  inbox: "SvcInboxService",
};

type ServiceFlags = ChangeFlags & {
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
      .requiredOption("--type <type>", "relay, cache, inbox, or a type name in full")
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
  const id = ownId(identity, text);
  const document = await activeDocument(session.client, identity.did);
  const exists = document.service.some((service) => service.id === id);
  const service = {
    id,
    type: serviceTypes[flags.type] ?? flags.type,
    serviceEndpoint: flags.endpoint,
    authorization: flags.authorize?.map((key) => ownId(identity, key)) ?? null,
    priority: flags.priority ?? null,
  };
  const intent: Intent = { action: exists ? "UpdateService" : "AddService", did: identity.did, service };
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
  changeCommand(command("primary", "make this the only alias and release all others"), (changing, alias: string) =>
    applyAsOwner(changing, { extrinsic: "set_alias", did: changing.identity.did, alias }, `${alias} is the alias`),
  );
}

// ------------------------------------------------------------------------------------------------ the end

type EndFlags = ChangeFlags & { readonly yes?: boolean; readonly keepKeys?: boolean };

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
      .option("--yes", "do not ask for confirmation")
      .option("--keep-keys", "leave the key file"),
    async (changing: Changing<EndFlags>) => {
      const { session, identity, flags } = changing;
      const { did, name } = identity;
      confirmed(`Delete ${name} (${did})?`, flags);
      const changed = await apply(changing, { action: "delete_did", did });
      const gone = flags.wait !== false;
      if (gone && flags.keepKeys !== true) await forgetIdentity(session.keysFolder, name);
      const text = gone ? "is deleted" : "will be deleted; its keys stay here";
      session.report.result({ ok: true, settled: gone, ...changed.accepted }, `${name} ${text}`);
    },
  );
}

/** Asks for confirmation on the terminal; without a terminal, `--yes` is required. */
export function confirmed(question: string, flags: { readonly yes?: boolean }): void {
  if (flags.yes === true) return;
  if (process.stdin.isTTY !== true) throw failed(`${question} Confirm with --yes.`);
  if (prompt(`${question} Type yes:`) !== "yes") throw failed("cancelled: nothing was changed");
}

// ------------------------------------------------------------------------------------------ agreement key

type RotateAgreementFlags = ChangeFlags & { readonly ifOlder?: number };

export function registerAgreementCommand(did: Command): void {
  changeCommand(
    did
      .command("rotate-agreement")
      .description(
        "replace the key that others seal to; the old secret is destroyed once everything sealed to it has expired",
      )
      .option("--if-older <duration>", "replace it only when it is older than this: 7d (default: always)", parseWait),
    rotateAgreementKey,
  );
}

async function rotateAgreementKey({ session, identity, flags }: Changing<RotateAgreementFlags>): Promise<void> {
  if (flags.wait === false) throw failed("--no-wait is not possible: the command must see the rotation in force");
  const rotated = await rotateIfOlder(session, identity, { flags, everyMs: flags.ifOlder ?? 0 });
  if (!rotated.holdsPublished) throw failed(missingText);
  const kept = rotated.identity.agreements.filter(({ destroyAtMs }) => destroyAtMs !== null);
  const until = kept.map(({ destroyAtMs }) => new Date(destroyAtMs ?? 0).toISOString()).sort();
  session.report.result(
    { ok: true, did: identity.did, rotated: rotated.rotated, old_secrets_kept_until: until },
    rotated.rotated
      ? `${identity.name} has a new agreement key; the old secret is destroyed at ${until.at(-1) ?? "once"}`
      : `${identity.name} keeps its agreement key: it is not old enough`,
  );
}

const missingText =
  "another device has published an agreement key that can't be derived here: import the identity again";

/** Runs before messages are received. A failure is only reported: the old key still works. */
export async function rotateIfDue(session: Session, identity: Identity): Promise<Identity> {
  if (!isRotationDue(identity, Date.now(), rotationMsDefault)) return identity;
  try {
    const rotated = await rotateIfOlder(session, identity, { flags: {}, everyMs: rotationMsDefault });
    if (!rotated.holdsPublished) session.report.note(missingText);
    else if (rotated.rotated) session.report.note(`${identity.name} has a new agreement key`);
    return rotated.identity;
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    session.report.note(`the agreement key could not be replaced: ${error.message} (${error.code})`);
    return identity;
  }
}

function rotateIfOlder(
  session: Session,
  identity: Identity,
  { flags, everyMs }: { readonly flags: ChangeFlags; readonly everyMs: number },
): Promise<Rotated> {
  const waiting = waitingOf(session, flags, "waiting for UpdateKeyAgreement");
  return rotateAgreement(session.client, identity, {
    nowMs: Date.now(),
    everyMs,
    signer: signerOf(identity, flags),
    ...(waiting === null ? {} : { waiting }),
    save: (next) => saveIdentity(session.keysFolder, next),
  });
}
