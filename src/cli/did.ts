/**
 * `waypost did`: identities of this machine. This file makes and shows them; sets policies (`did policy`); and submits
 * changes that a key elsewhere signs: the Directory prepares the bytes (`did prepare`), another machine or a hardware key
 * signs them (`waypost key sign`), and `did submit` adds the signature. Changes with keys of this machine are in
 * `did-change.ts`.
 * Source: rules section 4 ("Preparation"), interface "Recipient delivery policy".
 */
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { isRecord, parseRecord } from "../client/answers.ts";
import type { DeliveryPolicyMembers, OwnerUpdate, PersonaPolicyMembers } from "../client/change.ts";
import { identityFor, type Submission } from "../client/directory.ts";
import { ClientError, jsonBody, orNull } from "../client/http.ts";
import type { Identity } from "../client/keys.ts";
import { firstDocument, register, settleRegistration } from "../client/registration.ts";
import { decodeBase64, decodeHex, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { isDid, parseDidUrl } from "../core/codec/did.ts";
import { type ExpirationBehavior, expirationBehaviors } from "../core/ledger/account.ts";
import { routedActions } from "../core/ledger/actions.ts";
import { ownerUpdates } from "../nodes/directory/policy.ts";
import {
  addIdentityFlag,
  addWaitFlags,
  type ConnectionFlags,
  checkEndpoint,
  chooseIdentity,
  clientCommand,
  parseAmount,
  parseCount,
  printable,
  type Session,
  targetDid,
  useIdentity,
  type WaitFlags,
  waitingOf,
} from "./command.ts";
import {
  applyAsOwner,
  type ChangeFlags,
  changeCommand,
  registerAgreementCommand,
  registerChangeCommands,
} from "./did-change.ts";
import { registerTrustCommands } from "./did-trust.ts";
import { listIdentities, loadIdentity, saveIdentity, saveNewIdentity } from "./files/files.ts";

export function registerDidCommand(program: Command): void {
  const did = program.command("did").description("create, show and change identities");
  registerCreate(did);
  registerReads(did);
  registerChangeCommands(did);
  registerAgreementCommand(did);
  registerTrustCommands(did);
  registerPolicyCommand(did);
  registerExternalCommands(did);
}

type CreateFlags = ConnectionFlags & WaitFlags & { readonly name: string; readonly alias?: string };

function registerCreate(did: Command): void {
  const command = did
    .command("create")
    .description("create keys on this machine and register a DID for them")
    .requiredOption("--name <name>", "name of the identity on this machine")
    .option("--alias <alias>", "a public alias to register with it");
  clientCommand(addWaitFlags(command), createDid);
}

async function createDid(session: Session, flags: CreateFlags): Promise<void> {
  await refuseWrongEndpoints(session);
  const identity = await claimIdentity(session, flags.name);
  const document = await firstDocument(identity, { relayUrl: session.relayUrl, cacheUrl: session.cacheUrl });
  session.report.progress(`registering ${identity.did}`);
  const registered = await register(session.client, identity, { document, alias: flags.alias ?? null });
  await saveIdentity(session.keysFolder, { ...identity, ledger: session.client.known.ledger });
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

/** An identity whose document names an address where no such node answers could never receive. */
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
 * Saves the keys before anything is registered. If the name belongs to an identity that the Directory does not know, an
 * earlier registration failed, and its keys are used again.
 */
async function claimIdentity(session: Session, name: string): Promise<Identity> {
  const { keysFolder, client } = session;
  if (!(await listIdentities(keysFolder)).includes(name)) {
    const identity = await identityFor(client, name);
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
    .description(
      "show the record of a DID, an alias, or an identity of this machine (default: the one that --as names)",
    );
  clientCommand(addIdentityFlag(show), showDid);
  const status = did
    .command("status [target]")
    .description("show whether a DID is registered, and its counters (default: the identity that --as names)");
  clientCommand(addIdentityFlag(status), showStatus);
  clientCommand(did.command("list").description("list the identities of this machine"), listNames);
}

async function didOf(session: Session, flags: ReadFlags, target: string | undefined): Promise<string> {
  return target === undefined ? (await chooseIdentity(session, flags.as)).did : targetDid(session, target);
}

async function showDid(session: Session, flags: ReadFlags, target: string | undefined): Promise<void> {
  const did = await didOf(session, flags, target);
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

async function showStatus(session: Session, flags: ReadFlags, target: string | undefined): Promise<void> {
  const did = await didOf(session, flags, target);
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

// ------------------------------------------------------------------------------------------------- keys held elsewhere

const preparedActions = [
  ...["register", "replace_document"],
  ...routedActions.map(({ action }) => action),
  ...ownerUpdates.map(({ extrinsic }) => extrinsic),
];

function registerExternalCommands(did: Command): void {
  const prepare = did
    .command("prepare")
    .argument("<target>", "a DID, an alias, or an identity of this machine")
    .argument("<action>", preparedActions.join(", "))
    .description("ask the Directory for the bytes that a key on another machine must sign")
    .option("--body <json>", 'the members of the action, such as {"id":"#k1"}', "{}")
    .option("--signer <id>", "root, or the id of a method, such as #k1")
    .option("--out <file>", "keep the preparation in a file for submit");
  clientCommand(prepare, prepareChange);
  const submit = did
    .command("submit <file>")
    .description("submit a preparation with its signature")
    .requiredOption("--signature <text>", "the 64 bytes as Base64 or hex");
  clientCommand(submit, submitPrepared);
}

type PrepareFlags = ConnectionFlags & { readonly body: string; readonly signer?: string; readonly out?: string };
type SubmitFlags = ConnectionFlags & { readonly signature: string };

async function prepareChange(session: Session, flags: PrepareFlags, target: string, action: string): Promise<void> {
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

async function submitPrepared(session: Session, flags: SubmitFlags, file: string): Promise<void> {
  const prepared = parseRecord(await Bun.file(file).text());
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
  const accepted = await directory.submit(submission);
  session.report.result({ ok: true, ...accepted }, `${accepted.did}: accepted as ${accepted.tx_hash}`);
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
  if (!isRecord(request)) throw failed("the preparation has no request");
  return request;
}

/** A signature in Base64 or hex as Base64; `null` unless it has 64 bytes. */
function parseSignature(text: string): string | null {
  const bytes = /^(0x)?[0-9a-fA-F]{128}$/.test(text) ? decodeHex(text) : decodeBase64(text);
  return bytes?.length === 64 ? encodeBase64(bytes) : null;
}

function registerPolicyCommand(did: Command): void {
  const policy = did.command("policy").description("manage what may be delivered, how large, and for how long");
  registerShow(policy);
  registerRecipientPolicy(policy);
  registerLinks(policy);
  registerPersonaPolicy(policy);
}

function registerShow(policy: Command): void {
  const show = policy.command("show [target]").description("show the recipient policy of a DID, and its links");
  clientCommand(addIdentityFlag(show), showPolicy);
}

async function showPolicy(session: Session, flags: ReadFlags, target: string | undefined): Promise<void> {
  const did = await didOf(session, flags, target);
  const { directory } = session.client;
  const [{ delivery_policy_links }, answer] = await Promise.all([
    directory.resolve(did),
    orNull(directory.recipientPolicy(did), "policy_not_found"),
  ]);
  const policy = answer?.policy ?? null;
  const lines = [
    policy === null ? `${did} has no policy: each node's own limits apply` : JSON.stringify(policy, null, 2),
    delivery_policy_links === null ? "no policy is linked" : `links ${JSON.stringify(delivery_policy_links, null, 2)}`,
  ];
  session.report.result({ did, policy, delivery_policy_links }, lines.join("\n"));
}

/** Registers a command that submits one owner update of the chosen identity. */
function ownerCommand<F extends ChangeFlags>(
  command: Command,
  text: string,
  updateOf: (identity: Identity, flags: F) => OwnerUpdate,
): void {
  changeCommand<F, []>(command, (changing) =>
    applyAsOwner(changing, updateOf(changing.identity, changing.flags), text),
  );
}

type PolicyFlags = ChangeFlags & {
  readonly ttlBlocks: number;
  readonly maxBytes: number;
  readonly cacheEligible: boolean;
  readonly replication?: number;
  readonly preview?: number;
  readonly baseFee?: string;
  readonly perKibFee?: string;
  readonly expiration?: ExpirationBehavior;
  readonly asTag?: boolean;
};

function registerRecipientPolicy(policy: Command): void {
  const command = policy
    .command("set")
    .description(
      "set the policy for messages to this identity; options that are not given get the Directory's defaults",
    )
    .requiredOption("--ttl-blocks <number>", "how long messages may wait, in blocks of the ledger", parseCount)
    .requiredOption("--max-bytes <number>", "largest message, in bytes", parseCount)
    .option("--no-cache-eligible", "never fall back to a Cache")
    .option("--replication <number>", "how many Caches store a copy", parseCount)
    .option("--preview <number>", "bytes of the encrypted header to keep after expiry", parseCount)
    .option("--base-fee <amount>", "fee for each message, in the smallest unit of the ledger (default: 0)", parseAmount)
    .option("--per-kib-fee <amount>", "fee for each KiB of it, in the same unit (default: 0)", parseAmount)
    .addOption(new Option("--expiration <behavior>", "what remains after expiry").choices(expirationBehaviors))
    .option("--as-tag", "for envelopes that have this DID as their tag, not for envelopes to it");
  ownerCommand(command, "the policy is set", ({ did }, flags: PolicyFlags) => ({
    extrinsic: flags.asTag === true ? "set_tag_policy" : "set_delivery_policy",
    did,
    policy: policyOf(flags),
  }));
}

/** An option that is not given is not sent: the Directory has its default. */
function policyOf(flags: PolicyFlags): DeliveryPolicyMembers {
  const fees = { base_fee: flags.baseFee ?? "0", per_kib_fee: flags.perKibFee ?? "0" };
  const priced = flags.baseFee !== undefined || flags.perKibFee !== undefined;
  return {
    effective_ttl: flags.ttlBlocks,
    max_message_bytes: flags.maxBytes,
    cache_eligible: flags.cacheEligible,
    ...(flags.replication === undefined ? {} : { replication: flags.replication }),
    ...(flags.preview === undefined ? {} : { encrypted_header_preview_bytes: flags.preview }),
    ...(priced ? { release_pricing: fees } : {}),
    ...(flags.expiration === undefined ? {} : { expiration_behavior: flags.expiration }),
  };
}

type LinkFlags = ChangeFlags & { readonly recipient?: string; readonly tag?: string[]; readonly persona?: string[] };

function registerLinks(policy: Command): void {
  const command = policy
    .command("links")
    .description("set which policies apply; those not named are cleared")
    .option("--recipient <did>", "the DID whose recipient policy applies")
    .option("--tag <tag...>", "tags that envelopes may have")
    .option("--persona <did...>", "persona DIDs whose policies also apply");
  ownerCommand(command, "the links are set", ({ did }, flags: LinkFlags) => ({
    extrinsic: "set_delivery_policy_links",
    did,
    links: {
      ...(flags.recipient === undefined ? {} : { recipient_policy: flags.recipient }),
      tag_policies: flags.tag ?? [],
      persona_policies: flags.persona ?? [],
    },
  }));
}

type PersonaFlags = ChangeFlags & {
  readonly allowRelay?: string[];
  readonly asset?: string;
  readonly amount?: string;
  readonly mode?: ExpirationBehavior;
  readonly retainUntil?: string;
};

function registerPersonaPolicy(policy: Command): void {
  const command = policy
    .command("persona")
    .description("set the policy of this identity as a persona")
    .option("--allow-relay <id...>", "Relays that may deliver")
    .option("--asset <name>", "asset in which a release is paid")
    .option("--amount <amount>", "amount of the asset", parseAmount)
    .addOption(new Option("--mode <behavior>", "what remains after expiry").choices(expirationBehaviors))
    .option(
      "--retain-until <ms>",
      "with --mode: when the remainder is deleted, in milliseconds since 1970",
      parseAmount,
    );
  ownerCommand(command, "the persona policy is set", ({ did }, flags: PersonaFlags) => {
    const { asset, amount, mode, retainUntil, allowRelay } = flags;
    if (mode === undefined && retainUntil !== undefined) throw failed("--retain-until belongs to a --mode");
    const priced = asset !== undefined || amount !== undefined;
    const policy: PersonaPolicyMembers = {
      ...(priced ? { release_pricing: { asset: asset ?? "", amount: amount ?? "0" } } : {}),
      ...(mode === undefined
        ? {}
        : { expiration_behavior: { mode, ...(retainUntil === undefined ? {} : { retain_until: retainUntil }) } }),
      ...(allowRelay === undefined ? {} : { allowed_relays: allowRelay }),
    };
    return { extrinsic: "set_persona_policy", did, policy };
  });
}
