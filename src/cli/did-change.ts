/**
 * `waypost did change|alias|rotate|deactivate|delete`: changes of an identity, signed with a key of
 * this machine. New secrets are on disk before a change that needs them is submitted.
 * Source: interface "Signed DID-document updates" and "Recipient delivery policy", rules section 4,
 * docs/client.md "Forward secrecy".
 */
import { Argument, type Command, InvalidArgumentError } from "commander";
import { failed } from "../app/failure.ts";
import { attempt, ClientError } from "../client/base/failure.ts";
import { parseRecord } from "../client/base/shapes.ts";
import {
  change,
  changeAsOwner,
  type OwnerUpdate,
  ownerUpdates,
} from "../client/identity/change.ts";
import { move } from "../client/identity/moving.ts";
import { beginReplacing, inForce, publishKeys } from "../client/identity/new-keys.ts";
import { keepBundles } from "../client/identity/own-bundles.ts";
import { keepPushes } from "../client/identity/push.ts";
import {
  type KeptRecord,
  keptParts,
  type RecordReplacement,
  recordReplacement,
} from "../client/identity/replacement.ts";
import { alone } from "../client/identity/sharing.ts";
import type { Signer } from "../client/keys/crypto.ts";
import { type Identity, rootSignerId } from "../client/keys/keys.ts";
import { changeIdentity, type EditIdentity } from "../client/keys/stored.ts";
import type { Accepted } from "../client/net/answers.ts";
import { timeAt } from "../client/net/http.ts";
import { type Did, normalizeAlias } from "../core/codec/did.ts";
import { isFault } from "../core/fault.ts";
import type { ActionName, Intent } from "../core/ledger/actions.ts";
import { parseIntent, subjectOf } from "../core/ledger/intents.ts";
import { prepareUpdateBody } from "../core/schema/directory.ts";
import { compileShape } from "../core/schema/schema.ts";
import { addIdentityFlag, addWaitFlag, clientCommand } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { fileKeys } from "./files/files.ts";

/** A change under way: the session, the identity that is changed, and the flags. */
type Changing<F extends object = object> = {
  readonly session: CommandSession;
  readonly identity: Identity;
  readonly flags: F;
};

/** Registers a command whose work is one change of the chosen identity. */
function changeCommand<F extends object = object, A extends string[] = []>(
  command: Command,
  work: (changing: Changing<F>, ...values: A) => Promise<void>,
): void {
  addWaitFlag(addIdentityFlag(command));
  clientCommand<F, A>(command, async (session, flags, ...values) =>
    work({ session, identity: await session.identity(), flags }, ...values),
  );
}

export function registerChangeCommands(did: Command): void {
  registerRotate(did);
  registerMove(did);
  registerChange(did);
  registerAliasCommands(did);
  registerEndCommands(did);
}

const signerOf = ({ rootSeed }: Identity): Signer => ({ keyId: rootSignerId, seed: rootSeed });

function apply({ session, identity }: Changing, intent: Intent): Promise<Accepted> {
  session.report.progress(`submitting ${intent.action}`);
  const waiting = session.waiting(`waiting for ${intent.action}`);
  return change(session.client, intent, { signer: signerOf(identity), waiting });
}

async function applyAndReport(changing: Changing, intent: Intent, text: string): Promise<void> {
  await reportChange(changing, await apply(changing, intent), text);
}

async function applyAsOwner(changing: Changing, update: OwnerUpdate, text: string): Promise<void> {
  const { session, identity } = changing;
  const waiting = session.waiting(`waiting for ${update.extrinsic}`);
  const accepted = await changeAsOwner(session.client, update, {
    signer: signerOf(identity),
    waiting,
  });
  await reportChange(changing, accepted, text);
}

async function reportChange(
  { session, identity }: Changing,
  accepted: Accepted,
  text: string,
): Promise<void> {
  const { version } = await session.client.directory.resolve(identity.did);
  const shown = `${text} (${accepted.tx_hash.slice(0, 14)}…, version ${version})`;
  session.report.result({ ok: true, ...accepted, version }, shown);
}

// -------------------------------------------------------------------------------------------- keys

function registerRotate(did: Command): void {
  const command = did
    .command("rotate")
    .description(
      "replace every key of an identity: root key, methods, and the key that others seal to",
    )
    .option(
      "--method <id...>",
      "a method in its document that stays, though its secret is elsewhere",
    )
    .option(
      "--service <id...>",
      "a service in its document that stays, though it was named elsewhere",
    );
  clientCommand(addIdentityFlag(command), rotateKeys);
}

export type KeptFlags = {
  readonly method?: readonly string[];
  readonly service?: readonly string[];
};

/**
 * Says what the new document won't have, and counts it. Without `--method` those stay
 * that this machine has added.
 */
export function noteKept(
  report: Pick<CommandSession["report"], "note">,
  { methods, agreements, services }: RecordReplacement,
  { method, service = [] }: KeptFlags,
): { readonly goes: number; readonly kept: KeptRecord } {
  let goes = agreements.length;
  for (const { id, stays } of methods) {
    const isKept = method === undefined ? stays : method.includes(id);
    goes += isKept ? 0 : 1;
    report.note(`${isKept ? "stays" : "goes"}: method ${id}`);
  }
  for (const { id } of agreements) report.note(`goes: key agreement ${id}`);
  for (const { id, stays, endpoints } of services) {
    if (stays || service.includes(id)) continue;
    goes++;
    report.note(`goes: service ${id} at ${endpoints.join(", ")}`);
  }
  return {
    goes,
    kept: method === undefined ? { services: service } : { services: service, methods: method },
  };
}

/**
 * The new keys are saved before they are submitted. After a crash, the same
 * command continues with those.
 */
async function rotateKeys(session: CommandSession, flags: KeptFlags): Promise<void> {
  const { client, keysFolder, report } = session;
  const identity = await session.identity();
  const { name, did } = identity;
  const keys = fileKeys(keysFolder);
  if ((await keys.load(`${name}.device`)) !== null)
    throw failed(
      `other devices of ${name} would be locked out: replace its keys by waypost device remove`,
    );
  const shown = await recordReplacement(client, identity);
  const { kept } = noteKept(report, shown, flags);
  const storeIdentity = (edit: EditIdentity) => changeIdentity(keys, identity, edit);
  const beginning = { nowMs: Date.now(), kept: keptParts(kept, shown) };
  const next = await beginReplacing(client.known.memory, storeIdentity, beginning);
  const waiting = session.waiting("waiting for the new keys");
  const rotated = await publishKeys(client, next, { waiting });
  const stored = await storeIdentity((now) => inForce(now, rotated));
  // No Cache wakes a device for who had the keys.
  const ended = await attempt(() => keepPushes({ client, identity: stored }, []));
  if (ended instanceof ClientError)
    report.note("push subscriptions could not be ended now: the identity's next opening does it");
  // No bundle counts that the former method has signed. The next command
  // tries again where this fails.
  const nowMs = await timeAt(client.relay);
  const bundles = { nowMs, devices: alone, waiting, change: storeIdentity, announces: false };
  await attempt(() => keepBundles(client, did, bundles));
  const { version, root_pubkey } = await client.directory.resolve(did);
  report.result(
    { ok: true, did, root_pubkey, version },
    `${name} has new keys, version ${version}`,
  );
}

// --------------------------------------------------------------------------------- another address

function registerMove(did: Command): void {
  const command = did
    .command("move")
    .description("receive at the addresses of --url, --relay and --cache, and remember them");
  clientCommand(addIdentityFlag(command), moveHere);
}

async function moveHere(session: CommandSession): Promise<void> {
  const { client, relayUrl, cacheUrl, report } = session;
  const identity = await session.identity();
  await move(client, identity, { relayUrl, cacheUrl }, session.waiting("waiting for the document"));
  await session.rememberHome(identity.name);
  const { name, did } = identity;
  report.result(
    { ok: true, did, relay: relayUrl, cache: cacheUrl },
    `${name} is at ${cacheUrl} now`,
  );
}

// -------------------------------------------------------------------------------------- any change

/** Those that no command of their own makes, and that replace no key to which others seal. */
const signedActions = [
  "AddService",
  "UpdateService",
  "RemoveService",
  "AddVerificationMethod",
  "UpdateVerificationMethod",
  "RemoveVerificationMethod",
  "AddAuthentication",
  "RemoveAuthentication",
  "update_alias",
] as const satisfies readonly ActionName[];

type SignedAction = (typeof signedActions)[number];
type OwnerAction = OwnerUpdate["extrinsic"];
const isOwnerAction = (action: string): action is OwnerAction =>
  Object.hasOwn(ownerUpdates, action);

function registerChange(did: Command): void {
  const action = new Argument("<action>", "what to change").choices([
    ...signedActions,
    ...Object.keys(ownerUpdates),
  ]);
  const command = did
    .command("change")
    .description("sign a change of services, signing keys, policies or aliases")
    .addArgument(action)
    .argument("<json>", "its members, as docs/interface.md names them; an id may be #name");
  changeCommand(command, async (changing, action: SignedAction | OwnerAction, text: string) => {
    const members = parseRecord(text);
    if (members === null) throw failed("the members must be a JSON object");
    const { did } = changing.identity;
    if (!isOwnerAction(action))
      return applyAndReport(changing, intentOf(action, did, members), `${action} is in force`);
    const value = action === "set_alias" ? members["alias"] : members;
    return applyAsOwner(changing, { extrinsic: action, did, value }, `${action} is in force`);
  });
}

function intentOf(
  action: SignedAction,
  did: Did,
  members: Readonly<Record<string, unknown>>,
): Intent {
  const body = { ...members, did, action, signer_key_id: rootSignerId };
  const checked = compileShape(prepareUpdateBody(action))(body);
  const intent = isFault(checked) ? checked : parseIntent(action, body, did);
  if (isFault(intent)) throw failed(intent.detail);
  // Routes name a component in their path, which can't hold a slash: the component could
  // never be changed or removed.
  if (subjectOf(intent)?.value.includes("/")) throw failed("an id holds no slash: write #name");
  return intent;
}

// ----------------------------------------------------------------------------------------- aliases

function parseAlias(text: string): string {
  const alias = normalizeAlias(text);
  if (alias === null) throw new InvalidArgumentError("It must be 1 to 64 of a-z 0-9 _ - .");
  return alias;
}

function registerAliasCommands(did: Command): void {
  const aliases = did
    .command("alias")
    .description("change the names by which others find an identity");
  const command = (name: string, description: string) =>
    aliases.command(name).description(description).argument("<alias>", "alias", parseAlias);
  changeCommand(command("add", "add an alias"), (changing, alias: string) =>
    applyAndReport(
      changing,
      { action: "add_alias", did: changing.identity.did, alias },
      `${alias} added`,
    ),
  );
  changeCommand(command("remove", "release an alias"), (changing, alias: string) =>
    applyAndReport(
      changing,
      { action: "remove_alias", did: changing.identity.did, alias },
      `${alias} removed`,
    ),
  );
}

// ----------------------------------------------------------------------------------------- the end

type EndFlags = { readonly yes?: boolean };

function registerEndCommands(did: Command): void {
  changeCommand(
    did
      .command("deactivate")
      .description(
        "deactivate an identity permanently: afterwards it can't be changed, reached or deleted",
      )
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
      const accepted = await apply(changing, { action: "delete_did", did });
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
