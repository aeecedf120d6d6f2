/**
 * `waypost did policy`: what a recipient permits, and which policies count for it. These updates carry
 * their proof in headers; the Directory's own account submits them.
 * Source: interface "Recipient delivery policy", rules section 4.
 */
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import {
  changeAsOwner,
  type DeliveryPolicyMembers,
  type OwnerUpdate,
  type PersonaPolicyMembers,
} from "../client/change.ts";
import { orNull } from "../client/http.ts";
import type { Identity } from "../client/keys.ts";
import { parseAmount, parseCount } from "./arguments.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  chooseIdentity,
  runSession,
  type Session,
  targetDid,
  waitingOf,
} from "./connection.ts";
import { addChangeFlags, type ChangeFlags, reportChange, signerOf } from "./did-change.ts";

const behaviors = ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"] as const;

export function registerPolicyCommand(did: Command): void {
  const policy = did.command("policy").description("manage what may be delivered, how large, and for how long");
  registerShow(policy);
  registerRecipientPolicy(policy);
  registerLinks(policy);
  registerPersonaPolicy(policy);
}

function registerShow(policy: Command): void {
  const show = policy.command("show [target]").description("the recipient policy of a DID, and its links");
  addIdentityFlag(addConnectionFlags(show)).action((target: string | undefined, flags: ChangeFlags) =>
    runSession(flags, async (session) => {
      const did =
        target === undefined ? (await chooseIdentity(session, flags.as)).did : await targetDid(session, target);
      const { directory } = session.client;
      const [record, answer] = await Promise.all([
        directory.resolve(did),
        orNull(directory.recipientPolicy(did), "policy_not_found"),
      ]);
      const lines = [
        answer === null ? `${did} has no policy: the limits of the nodes hold` : JSON.stringify(answer.policy, null, 2),
        record.delivery_policy_links === null
          ? "no policy is linked"
          : `links ${JSON.stringify(record.delivery_policy_links, null, 2)}`,
      ];
      const result = { did, policy: answer?.policy ?? null, delivery_policy_links: record.delivery_policy_links };
      session.report.result(result, lines.join("\n"));
    }),
  );
}

/** Registers a command that submits one owner update of the chosen identity. */
function ownerCommand<F extends ChangeFlags>(
  command: Command,
  text: string,
  updateOf: (identity: Identity, flags: F) => OwnerUpdate,
): void {
  addChangeFlags(command).action((flags: F) =>
    runSession(flags, async (session: Session) => {
      const identity = await chooseIdentity(session, flags.as);
      const update = updateOf(identity, flags);
      const waiting = waitingOf(session, flags, `waiting for ${update.extrinsic}`);
      const changed = await changeAsOwner(session.client, update, { signer: signerOf(identity, flags), waiting });
      reportChange(session, changed, text);
    }),
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
  readonly expiration?: (typeof behaviors)[number];
  readonly asTag?: boolean;
};

function registerRecipientPolicy(policy: Command): void {
  const command = policy
    .command("set")
    .description("set the recipient policy")
    .requiredOption("--ttl-blocks <number>", "how long messages may wait, in blocks of the ledger", parseCount)
    .requiredOption("--max-bytes <number>", "largest message", parseCount)
    .option("--no-cache-eligible", "never fall back to a Cache")
    .option("--replication <number>", "how many Caches keep a copy", parseCount)
    .option("--preview <number>", "bytes of the encrypted header to keep after expiry", parseCount)
    .option("--base-fee <amount>", "in the smallest unit", parseAmount)
    .option("--per-kib-fee <amount>", "in the smallest unit", parseAmount)
    .addOption(new Option("--expiration <behavior>", "what is left after expiry").choices(behaviors))
    .option("--as-tag", "for envelopes that carry this DID as their tag, instead of those to it");
  ownerCommand(command, "the policy is set", ({ did }, flags: PolicyFlags) => ({
    extrinsic: flags.asTag === true ? "set_tag_policy" : "set_delivery_policy",
    did,
    policy: policyOf(flags),
  }));
}

/** What was not said is not sent: the Directory has a default for it. */
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
    .option("--recipient <did>", "the DID whose recipient policy counts")
    .option("--tag <tag...>", "admitted tags")
    .option("--persona <did...>", "persona DIDs whose constraints are added");
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
  readonly mode?: (typeof behaviors)[number];
  readonly retainUntil?: string;
};

function registerPersonaPolicy(policy: Command): void {
  const command = policy
    .command("persona")
    .description("set the policy of this identity as a persona")
    .option("--allow-relay <id...>", "Relays that may deliver")
    .option("--asset <name>", "what a release costs")
    .option("--amount <amount>", "how much of it", parseAmount)
    .addOption(new Option("--mode <behavior>", "what is left after expiry").choices(behaviors))
    .option("--retain-until <ms>", "epoch milliseconds", parseAmount);
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
