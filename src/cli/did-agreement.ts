/**
 * `waypost did rotate-agreement`, and the same when it is due before a command receives: the key that others
 * seal to is replaced, and old secrets are destroyed (docs/client.md "Forward secrecy").
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { ClientError } from "../client/http.ts";
import { type Identity, isRotationDue, rotationMsDefault } from "../client/keys.ts";
import { type Rotated, rotateAgreement } from "../client/rotation.ts";
import { parseWait } from "./arguments.ts";
import { chooseIdentity, runSession, type Session, waitingOf } from "./connection.ts";
import { addChangeFlags, type ChangeFlags, signerOf } from "./did-change.ts";
import { saveIdentity } from "./files/key-files.ts";

type RotateFlags = ChangeFlags & { readonly ifOlder?: number };

export function registerAgreementCommand(did: Command): void {
  const command = did
    .command("rotate-agreement")
    .description(
      "replace the key that others seal to; the old secret is destroyed once everything sealed to it has expired",
    )
    .option("--if-older <duration>", "only when the key is older: 7d", parseWait);
  addChangeFlags(command).action((flags: RotateFlags) =>
    runSession(flags, async (session) => {
      if (flags.wait === false) throw failed("a rotation must be waited for: it is finished when it is in force");
      const identity = await chooseIdentity(session, flags.as);
      const rotated = await rotate(session, identity, { flags, everyMs: flags.ifOlder ?? 0 });
      if (!rotated.holdsPublished) throw failed(missingText);
      const kept = rotated.identity.agreements.filter(({ destroyAtMs }) => destroyAtMs !== null);
      const until = kept.map(({ destroyAtMs }) => new Date(destroyAtMs ?? 0).toISOString()).sort();
      session.report.result(
        { ok: true, did: identity.did, rotated: rotated.rotated, old_secrets_kept_until: until },
        rotated.rotated
          ? `${identity.name} has a new agreement key; the old secret is destroyed at ${until.at(-1) ?? "once"}`
          : `${identity.name} keeps its agreement key: it is not old enough`,
      );
    }),
  );
}

const missingText =
  "another device has published an agreement key that can't be derived here: import the identity again";

/** Before receiving. What goes wrong is reported and holds nothing up: the old key goes on working. */
export async function rotateIfDue(session: Session, identity: Identity): Promise<Identity> {
  if (!isRotationDue(identity, Date.now(), rotationMsDefault)) return identity;
  try {
    const rotated = await rotate(session, identity, { flags: {}, everyMs: rotationMsDefault });
    if (!rotated.holdsPublished) session.report.note(missingText);
    else if (rotated.rotated) session.report.note(`${identity.name} has a new agreement key`);
    return rotated.identity;
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    session.report.note(`the agreement key could not be replaced: ${error.message} (${error.code})`);
    return identity;
  }
}

function rotate(
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
