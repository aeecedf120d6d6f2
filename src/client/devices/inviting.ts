/**
 * Where the Directory registers who is invited, a device's DID needs an invitation like a person's,
 * and the identity makes it: for a new device, which the user takes it to, and for the own DID of
 * this one. Loaded when there is need for one.
 * Source: interface "Invitations for own devices", D657.
 */
import { deviceOperation } from "../../core/message/proof.ts";
import { attempt, ClientError } from "../base/failure.ts";
import { updateProofHeaders } from "../identity/change.ts";
import type { WaypostOptions } from "../identity/opening.ts";
import { type Identity, rootSignerId } from "../keys/keys.ts";
import { provingAt } from "../net/directory.ts";
import { jsonBody, path } from "../net/http.ts";
import type { Client } from "../trust/client.ts";
import { deviceOptions } from "./linking.ts";

export type DeviceInvitation = { readonly code: string; readonly expiresAt: Date };

type Inviting = { readonly client: Client; readonly identity: Identity };

/**
 * For one device; `null` where the Directory registers without. Throws `rate_limited` when the
 * identity has made as many as a day allows.
 */
export async function inviteDevice({
  client,
  identity,
}: Inviting): Promise<DeviceInvitation | null> {
  const { directory } = client;
  if ((await directory.limits()).registration !== "invite") return null;
  const { genesisHash } = await provingAt(client);
  const { did, rootSeed } = identity;
  const body = jsonBody({ did });
  const headers = await updateProofHeaders(
    { operation: deviceOperation, did, body },
    { keyId: rootSignerId, seed: rootSeed },
    { nowMs: Date.now() + directory.endpoint.clock.aheadMs, genesisHash },
  );
  const where = path`/dids/${did}/device-invitations`;
  const made = await directory.inviteDevice({ method: "POST", path: where, headers, body });
  return { code: made.invitation, expiresAt: new Date(made.expires_at) };
}

/**
 * Opens the DID of this device, by an invitation of the identity where that is needed:
 * once, when it registers.
 */
export async function openOwnDevice<T>(
  options: WaypostOptions,
  open: (options: WaypostOptions) => Promise<T>,
  own: Inviting,
): Promise<T> {
  // The invitation by which the person came is for people.
  const { invitation: _, ...ofDevice } = deviceOptions(options);
  const opened = await attempt(() => open(ofDevice));
  if (!(opened instanceof ClientError)) return opened;
  if (opened.code !== "invitation_required") throw opened;
  const made = await inviteDevice(own);
  if (made === null) throw opened;
  return open({ ...ofDevice, invitation: made.code });
}
