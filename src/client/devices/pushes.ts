/**
 * Which push subscriptions the identity's Caches keep: those of listed devices.
 * Source: docs/trust.md ("Own devices").
 */
import type { Did } from "../../core/codec/did.ts";
import { keepingKey } from "../identity/sharing.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";

type Listing = {
  /** `rest`: where an earlier call could not end the others. */
  readonly how: "all" | "rest";
  readonly devices: () => Promise<readonly { readonly did: Did }[]>;
};

/** No Cache wakes a device that isn't listed. */
export async function keepListed(
  { client, secrets: identity }: OwnIdentity,
  { how, devices }: Listing,
): Promise<void> {
  const isDue = how === "all" || (await client.known.memory.load(keepingKey)) !== null;
  if (!isDue) return;
  const listed = (await devices()).map(({ did }) => did);
  const { keepPushes, finishKeeping } = await import("../identity/push.ts");
  await (how === "all" ? keepPushes : finishKeeping)({ client, identity }, listed);
}
