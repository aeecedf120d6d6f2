/**
 * `waypost did fingerprint` and `waypost did forget`: a text by which two people compare their keys, and what to do when a
 * correspondent's keys have changed for a good reason.
 */
import type { Command } from "commander";
import { rootKeyOf } from "../client/client.ts";
import { fingerprintOf } from "../client/trust/fingerprint.ts";
import { normalizeAlias } from "../core/codec/did.ts";
import {
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  clientCommand,
  type Session,
  targetDid,
} from "./command.ts";
import { listIdentities, loadIdentity } from "./files/files.ts";

type TrustFlags = ConnectionFlags & { readonly as?: string };

export function registerTrustCommands(did: Command): void {
  const fingerprint = did
    .command("fingerprint <target>")
    .description("show a text to compare with a correspondent: both see the same");
  clientCommand(addIdentityFlag(fingerprint), showFingerprint);
  const forget = did
    .command("forget <target>")
    .description("forget what a DID or an alias was, and believe the next proof (after identity_changed)");
  clientCommand(addIdentityFlag(forget), forgetTarget);
}

async function showFingerprint(session: Session, flags: TrustFlags, target = ""): Promise<void> {
  const identity = await chooseIdentity(session, flags.as);
  const to = await targetDid(session, target);
  const subject = async (did: typeof to) => ({ did, rootKey: await rootKeyOf(session.client, did) });
  const fingerprint = fingerprintOf(await subject(identity.did), await subject(to));
  session.report.result({ ok: true, did: identity.did, with: to, fingerprint }, fingerprint);
}

async function forgetTarget(session: Session, flags: TrustFlags, target = ""): Promise<void> {
  const identity = await chooseIdentity(session, flags.as);
  const isHere = (await listIdentities(session.keysFolder)).includes(target);
  const known = isHere ? (await loadIdentity(session.keysFolder, target)).did : (normalizeAlias(target) ?? target);
  await session.client.trust.forget(known);
  session.report.result({ ok: true, forgotten: target }, `${identity.name} has forgotten ${target}`);
}
