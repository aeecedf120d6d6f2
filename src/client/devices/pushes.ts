/**
 * Which push subscriptions the identity's Caches keep: those of listed devices.
 * Source: docs/trust.md ("Own devices").
 */
import type { Did } from "../../core/codec/did.ts";
import { keepingKey, renewingKey } from "../identity/sharing.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";

/**
 * No Cache wakes a device that isn't listed. What this device has subscribed it knows itself.
 * `rest`: where an earlier call could not end the others.
 */
export async function keepListed(
  { client, secrets: identity }: OwnIdentity,
  how: "all" | "rest",
  devices: () => Promise<readonly { readonly did: Did; readonly isThis: boolean }[]>,
): Promise<void> {
  const isDue = how === "all" || (await client.known.memory.load(keepingKey)) !== null;
  if (!isDue) return;
  const others = (await devices()).filter(({ isThis }) => !isThis).map(({ did }) => did);
  const { keepPushes, finishKeeping } = await import("../identity/push.ts");
  await (how === "all" ? keepPushes : finishKeeping)({ client, identity }, others);
}

/**
 * After new keys: what a removed device has subscribed under the id of this one gives way, or ends
 * where there is nothing. At a start (`rest`), where an earlier run could not do it.
 */
export async function renewPush(
  { client, secrets: identity }: OwnIdentity,
  devices: { readonly ownIdentity: () => Promise<{ readonly did: Did } | null> },
  { how, pushAgain }: { readonly how: "all" | "rest"; readonly pushAgain: () => Promise<void> },
): Promise<void> {
  const { memory } = client.known;
  if (how === "rest" && (await memory.load(renewingKey)) === null) return;
  await memory.save(renewingKey, "due");
  await pushAgain();
  const device = await devices.ownIdentity();
  if (device !== null) {
    const { endUnasked } = await import("../identity/push.ts");
    await endUnasked({ client, identity }, device.did);
  }
  await memory.save(renewingKey, null);
}
