/**
 * `waypost did`: identities of this machine. This file makes and shows them; compares keys with a correspondent; sets
 * policies (`did policy`); and submits changes that a key elsewhere signs: the Directory prepares the bytes (`did prepare`),
 * another machine or a hardware key signs them (`waypost key sign`), and `did submit` adds the signature. Changes with keys
 * of this machine are in `did-change.ts`.
 * Source: rules section 4 ("Preparation"), interface "Recipient delivery policy", docs/trust.md.
 */
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { isRecord, parseRecord } from "../client/answers.ts";
import type { OwnerUpdate } from "../client/change.ts";
import { activeDocument, type Client, normalizeName, rootKeyOf, trustIn } from "../client/client.ts";
import { identityFor, type Submission, settleRegistration } from "../client/directory.ts";
import { ClientError, jsonBody, orNull } from "../client/http.ts";
import type { Identity } from "../client/keys.ts";
import { firstDocument, homeAt, register } from "../client/registration.ts";
import { fingerprintOf } from "../client/trust/fingerprint.ts";
import { decodeBase64, decodeHex, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { type Did, parseDidUrl } from "../core/codec/did.ts";
import { type ExpirationBehavior, expirationBehaviors } from "../core/ledger/account.ts";
import { routedActions } from "../core/ledger/actions.ts";
import { ownerUpdates } from "../nodes/directory/policy.ts";
import {
  addIdentityFlag,
  addWaitFlags,
  checkEndpoint,
  clientCommand,
  parseAmount,
  parseCount,
  parseName,
  printable,
  type Session,
} from "./command.ts";
import { applyAsOwner, changeCommand, registerChangeCommands } from "./did-change.ts";
import { listIdentities, loadIdentity, saveIdentity, saveNewIdentity } from "./files/files.ts";

export function registerDidCommand(program: Command): void {
  const did = program.command("did").description("create, show and change identities");
  registerCreate(did);
  registerReads(did);
  registerChangeCommands(did);
  registerTrust(did);
  registerPolicies(did.command("policy").description("manage what may be delivered, how large, and for how long"));
  registerExternalCommands(did);
}

// ------------------------------------------------------------------------------------------------- create

type CreateFlags = { readonly name: string; readonly alias?: string | null; readonly invitation?: string | null };

function registerCreate(did: Command): void {
  const command = did
    .command("create")
    .description("create keys on this machine and register a DID for them")
    .requiredOption("--name <name>", "name of the identity on this machine", parseName)
    .option("--alias <alias>", "a public alias to register with it")
    .option("--invitation <link>", "link or code, where the Directory registers who is invited");
  clientCommand(addWaitFlags(command), createDid);
}

async function createDid(session: Session, { name, alias = null, invitation = null }: CreateFlags): Promise<void> {
  const { client, relayUrl, cacheUrl, keysFolder, report } = session;
  // An identity whose document names an address where no such node answers could never receive.
  for (const [role, url] of [["relay", relayUrl] as const, ["cache", cacheUrl] as const]) {
    const check = await checkEndpoint(url, role);
    if (check.state === "wrong")
      throw failed(`${url}: ${check.reason}; give the address that the ${role} publishes: --${role} <url>`);
  }
  const identity = await claimIdentity(session, name);
  const { did } = identity;
  const document = await firstDocument(identity, { relayUrl, cacheUrl, home: await homeAt(client) });
  report.progress(`registering ${did}`);
  const registered = await register(client, identity, { document, alias, invitation });
  await saveIdentity(keysFolder, { ...identity, ledger: client.known.ledger });
  const waiting = session.waiting("waiting for the ledger");
  const settled = waiting === null ? null : await settleRegistration(client, registered, waiting);
  const { registration_status, did_document } = settled ?? registered;
  const { version = null } = settled ?? {};
  const result = { ok: true, name, did, registration_status, version, tx_id: registered.tx_id, did_document };
  report.result(result, `${name} is ${did} (${registration_status})`);
}

/**
 * Saves the keys before anything is registered. If the name belongs to an identity that the Directory does not know, an
 * earlier registration failed, and its keys are used again.
 */
async function claimIdentity({ keysFolder, client, ...session }: Session, name: string): Promise<Identity> {
  if (!(await listIdentities(keysFolder)).includes(name)) {
    const identity = await identityFor(client, name);
    await saveNewIdentity(keysFolder, identity);
    return identity;
  }
  const identity = await session.identity(name);
  const status = await client.directory.registrationStatus(identity.did);
  if (status.registration_status === "confirmed") throw failed(`${name} already exists: ${identity.did}`);
  return identity;
}

// ------------------------------------------------------------------------------------------------- show

function registerReads(did: Command): void {
  const named = "(default: the one that --as names)";
  const show = did
    .command("show [target]")
    .description(`show the record of a DID, an alias, or an identity of this machine ${named}`);
  clientCommand(addIdentityFlag(show), showDid);
  const status = did
    .command("status [target]")
    .description(`show whether a DID is registered, and its counters ${named}`);
  clientCommand(addIdentityFlag(status), showStatus);
  clientCommand(did.command("list").description("list the identities of this machine"), listNames);
}

async function didOf(session: Session, target: string | undefined): Promise<Did> {
  if (target === undefined) return (await session.identity()).did;
  await session.recall();
  return (await session.find(target)).did;
}

/** What shows that the keys are those of the DID; or why the Directory is not believed, such as `proof_invalid`. */
async function levelOf(client: Client, did: Did): Promise<string> {
  try {
    await activeDocument(client, did);
    return await trustIn(client, did);
  } catch (error) {
    if (error instanceof ClientError && error.kind === "distrusted") return error.code;
    throw error;
  }
}

async function showDid({ client, report, ...session }: Session, _: object, target: string | undefined): Promise<void> {
  const did = await didOf({ client, report, ...session }, target);
  const record = await client.directory.resolve(did);
  const trust = record.deactivated ? null : await levelOf(client, did);
  const { document } = record;
  const section = (title: string, lines: readonly string[] = []) => [
    title,
    ...lines.map((line) => `  ${printable(line)}`),
  ];
  const text = [
    `${record.did} (${trust ?? "deactivated"})`,
    `version ${record.version}, changed ${record.updated_at}`,
    `root key ${record.root_pubkey ?? "none"}`,
    ...(record.aliases.length === 0 ? [] : [`aliases ${record.aliases.join(", ")}`]),
    ...section(
      "methods",
      document?.verificationMethod.map(({ id, type, publicKeyMultibase: key }) => `${id} ${type} ${key}`),
    ),
    ...section("authentication", document?.authentication),
    ...section(
      "key agreement",
      document?.keyAgreement.map(({ id, type, publicKeyMultibase: key }) => `${id} ${type} ${key}`),
    ),
    ...section(
      "services",
      document?.service.map(({ id, type, serviceEndpoint: at }) => `${id} ${type} ${[at].flat().join(" ")}`),
    ),
  ];
  report.result({ ...record, trust }, text.join("\n"));
}

async function showStatus(session: Session, _: object, target: string | undefined): Promise<void> {
  const did = await didOf(session, target);
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

async function listNames({ keysFolder, report }: Session): Promise<void> {
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

// ------------------------------------------------------------------------------------------------- correspondents

function registerTrust(did: Command): void {
  const fingerprint = did
    .command("fingerprint <target>")
    .description("show a text to compare with a correspondent: both see the same");
  clientCommand(addIdentityFlag(fingerprint), showFingerprint);
  const forget = did
    .command("forget <target>")
    .description("forget what a DID or an alias was, and believe the next proof (after identity_changed)");
  clientCommand(addIdentityFlag(forget), forgetTarget);
}

async function showFingerprint(session: Session, _: object, target = ""): Promise<void> {
  const [{ did }, { did: to }] = [await session.identity(), await session.find(target)];
  const subject = async (one: Did) => ({ did: one, rootKey: await rootKeyOf(session.client, one) });
  const fingerprint = fingerprintOf(await subject(did), await subject(to));
  session.report.result({ ok: true, did, with: to, fingerprint }, fingerprint);
}

async function forgetTarget({ keysFolder, client, report, ...session }: Session, _: object, target = "") {
  const { name } = await session.identity();
  const isHere = (await listIdentities(keysFolder)).includes(target);
  const known = isHere ? (await loadIdentity(keysFolder, target)).did : normalizeName(target);
  await client.trust.forget(known);
  report.result({ ok: true, forgotten: target }, `${name} has forgotten ${target}`);
}

// ------------------------------------------------------------------------------------------------- policies

function registerPolicies(policy: Command): void {
  const show = policy.command("show [target]").description("show the recipient policy of a DID, and its links");
  clientCommand(addIdentityFlag(show), showPolicy);
  registerRecipientPolicy(policy);
  registerLinks(policy);
  registerPersonaPolicy(policy);
}

async function showPolicy(session: Session, _: object, target: string | undefined): Promise<void> {
  const did = await didOf(session, target);
  const { directory } = session.client;
  const { delivery_policy_links } = await directory.resolve(did);
  const policy = (await orNull(directory.recipientPolicy(did), "policy_not_found"))?.policy ?? null;
  const lines = [
    policy === null ? `${did} has no policy: each node's own limits apply` : JSON.stringify(policy, null, 2),
    delivery_policy_links === null ? "no policy is linked" : `links ${JSON.stringify(delivery_policy_links, null, 2)}`,
  ];
  session.report.result({ did, policy, delivery_policy_links }, lines.join("\n"));
}

/** Registers a command that submits one owner update of the chosen identity. */
function ownerCommand<F extends object>(
  command: Command,
  text: string,
  updateOf: (did: Did, flags: F) => OwnerUpdate,
): void {
  changeCommand<F>(command, (changing) =>
    applyAsOwner(changing, updateOf(changing.identity.did, changing.flags), text),
  );
}

/** Without the members of options that are not given: the Directory has defaults for them. */
function given<T extends object>(members: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  const present = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as { [Name in keyof T]?: Exclude<T[Name], undefined> };
}

const expirationOption = (flag: string) =>
  new Option(`${flag} <behavior>`, "what remains after expiry").choices(expirationBehaviors);

type PolicyFlags = {
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
    .addOption(expirationOption("--expiration"))
    .option("--as-tag", "for envelopes that have this DID as their tag, not for envelopes to it");
  ownerCommand(command, "the policy is set", (did, flags: PolicyFlags) => {
    const { baseFee, perKibFee } = flags;
    const isPriced = baseFee !== undefined || perKibFee !== undefined;
    const optional = {
      replication: flags.replication,
      encrypted_header_preview_bytes: flags.preview,
      release_pricing: isPriced ? { base_fee: baseFee ?? "0", per_kib_fee: perKibFee ?? "0" } : undefined,
      expiration_behavior: flags.expiration,
    };
    const { ttlBlocks: effective_ttl, maxBytes: max_message_bytes, cacheEligible: cache_eligible } = flags;
    return {
      extrinsic: flags.asTag === true ? "set_tag_policy" : "set_delivery_policy",
      did,
      policy: { effective_ttl, max_message_bytes, cache_eligible, ...given(optional) },
    };
  });
}

type LinkFlags = { readonly recipient?: string; readonly tag?: string[]; readonly persona?: string[] };

function registerLinks(policy: Command): void {
  const command = policy
    .command("links")
    .description("set which policies apply; those not named are cleared")
    .option("--recipient <did>", "the DID whose recipient policy applies")
    .option("--tag <tag...>", "tags that envelopes may have")
    .option("--persona <did...>", "persona DIDs whose policies also apply");
  ownerCommand(command, "the links are set", (did, { recipient, tag = [], persona = [] }: LinkFlags) => ({
    extrinsic: "set_delivery_policy_links",
    did,
    links: { ...given({ recipient_policy: recipient }), tag_policies: tag, persona_policies: persona },
  }));
}

type PersonaFlags = {
  readonly allowRelay?: string[];
  readonly asset?: string;
  readonly amount?: string;
  readonly mode?: ExpirationBehavior;
  readonly retainUntil?: string;
};

function registerPersonaPolicy(policy: Command): void {
  const until = "with --mode: when the remainder is deleted, in milliseconds since 1970";
  const command = policy
    .command("persona")
    .description("set the policy of this identity as a persona")
    .option("--allow-relay <id...>", "Relays that may deliver")
    .option("--asset <name>", "asset in which a release is paid")
    .option("--amount <amount>", "amount of the asset", parseAmount)
    .addOption(expirationOption("--mode"))
    .option("--retain-until <ms>", until, parseAmount);
  ownerCommand(command, "the persona policy is set", (did, flags: PersonaFlags) => {
    const { asset, amount, mode, retainUntil: retain_until, allowRelay: allowed_relays } = flags;
    if (mode === undefined && retain_until !== undefined) throw failed("--retain-until belongs to a --mode");
    const isPriced = asset !== undefined || amount !== undefined;
    const release_pricing = isPriced ? { asset: asset ?? "", amount: amount ?? "0" } : undefined;
    const expiration_behavior = mode === undefined ? undefined : { mode, ...given({ retain_until }) };
    const policy = given({ release_pricing, expiration_behavior, allowed_relays });
    return { extrinsic: "set_persona_policy", did, policy };
  });
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
    .requiredOption("--signature <text>", "the 64 bytes as Base64 or hex")
    .option("--invitation <link>", "for a registration: link or code of an invitation");
  clientCommand(submit, submitPrepared);
}

type PrepareFlags = { readonly body: string; readonly signer?: string; readonly out?: string };

async function prepareChange(
  { client, report, ...session }: Session,
  { body, signer, out }: PrepareFlags,
  target: string,
  action: string,
): Promise<void> {
  const members = parseRecord(body);
  if (members === null) throw failed("--body must be a JSON object");
  const prepareUpdate = async () => {
    const { did } = await session.find(target);
    const signer_key_id = signer === undefined ? undefined : (parseDidUrl(signer, did) ?? signer);
    return client.directory.prepare(did, { did, ...members, action, signer_key_id });
  };
  const prepared =
    action === "register"
      ? await client.directory.prepareRegistration({ ...members, did: target })
      : await prepareUpdate();
  if (out !== undefined) await Bun.write(out, `${JSON.stringify(prepared, null, 2)}\n`);
  const text = [
    `sign these bytes: ${prepared.payload_to_sign}`,
    `before ${prepared.expires_at}`,
    ...(out === undefined ? [] : [`then: waypost did submit ${out} --signature <text>`]),
  ];
  report.result(prepared, text.join("\n"));
}

type SubmitFlags = { readonly signature: string; readonly invitation?: string };

async function submitPrepared({ client, report }: Session, flags: SubmitFlags, file: string): Promise<void> {
  const prepared = parseRecord(await Bun.file(file).text());
  const route = prepared?.["submit"];
  if (prepared === null || !isRecord(route)) throw failed(`${file} is not a preparation`);
  const { signature: text } = flags;
  const bytes = /^(0x)?[0-9a-fA-F]{128}$/.test(text) ? decodeHex(text) : decodeBase64(text);
  if (bytes?.length !== 64) throw failed("a signature is 64 bytes as Base64 or hex");
  const signature = encodeBase64(bytes);
  if (prepared["action"] === "register") {
    const registered = await client.directory.register({ ...requestOf(prepared), signature }, flags.invitation);
    report.result({ ok: true, ...registered }, `${registered.did} is ${registered.registration_status}`);
    return;
  }
  const accepted = await client.directory.submit(submissionOf(prepared, route, signature));
  report.result({ ok: true, ...accepted }, `${accepted.did}: accepted as ${accepted.tx_hash}`);
}

const methods = ["POST", "PUT", "PATCH", "DELETE"] as const;

/** The body that the Directory prepared, with the signature where the route wants it. */
function submissionOf(
  prepared: Record<string, unknown>,
  { method: named, path }: Record<string, unknown>,
  signature: string,
): Submission {
  const { headers, body } = prepared;
  const method = methods.find((name) => name === named);
  if (method === undefined || typeof path !== "string") throw failed("the preparation names no route");
  if (!isRecord(headers)) return { method, path, body: jsonBody({ ...requestOf(prepared), signature }) };
  const proof = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
  return { method, path, headers: { ...proof, "X-Signature": signature }, body: new Uint8Array(utf8(String(body))) };
}

function requestOf({ request }: Record<string, unknown>): Record<string, unknown> {
  if (isRecord(request)) return request;
  throw failed("the preparation has no request");
}
