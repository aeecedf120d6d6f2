/**
 * A new device of an identity, from its code to the identity in its key store; and the mail between
 * the DIDs of devices. Loaded by those alone that have devices.
 * Source: docs/client.md "Devices".
 */
import { abortedError, localError } from "../base/failure.ts";
import type { WaypostOptions } from "../identity/opening.ts";
import { randomUuid } from "../keys/crypto.ts";
import { deviceName, reliable } from "../keys/key-stores.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import { readChunks, type readMessage } from "../mail/retrieve.ts";
import type { StoreDriver } from "../store/driver.ts";
import { type Inbox, Receiver } from "../store/receiver.ts";
import { unkeptInbox } from "../store/unkept.ts";
import { beginLink, type OwnDid } from "./codes.ts";
import type { DeviceLink, DeviceMail } from "./sync.ts";

/**
 * Of the DID of a device: in the same key store, of the same nodes and demands,
 * and without alias or store.
 */
export function deviceOptions(options: WaypostOptions): WaypostOptions {
  const own = [
    "store",
    "alias",
    "acknowledge",
    "receipts",
    "acceptRequests",
    "onEvent",
    "name",
    "signal",
  ];
  const same = Object.entries(options).filter(([name]) => !own.includes(name));
  const { keys, name = "default" } = options;
  return { ...Object.fromEntries(same), keys, name: deviceName(name) };
}

type Linking<T> = {
  readonly code: string;
  readonly opened: Promise<T>;
  readonly cancel: () => Promise<void>;
};

/**
 * Shows a code, and opens the identity when another device has accepted it. Throws `aborted`, and
 * `no_store` where the history would have no place.
 */
export async function link<T extends OwnDid>(
  options: WaypostOptions & { readonly store: StoreDriver },
  open: (options: WaypostOptions) => Promise<T>,
): Promise<Linking<T>> {
  const { signal, name = "default", store: driver, nowMs = Date.now } = options;
  if (driver === undefined) throw localError("no_store", "a device needs a local store");
  const place = { keys: reliable(options.keys), name, driver, nowMs };
  const { code, accepted, cancel } = await beginLink(() => open(deviceOptions(options)), place);
  signal?.addEventListener("abort", () => void cancel(), { once: true });
  const opened = accepted
    .catch((error: unknown) => {
      throw signal?.aborted === true ? abortedError() : error;
    })
    .then(() => open(options));
  opened.catch(() => undefined);
  if (signal?.aborted === true) await cancel();
  return { code, opened, cancel };
}

/** The DID of a device, opened: how it speaks with others. */
export function linkOf(
  me: Pick<DeviceLink, "send" | "close" | "lock">,
  identity: OwnIdentity,
  options: WaypostOptions,
): DeviceLink {
  const { did, client, secrets } = identity;
  const send: DeviceLink["send"] = (...given) => me.send(...given);
  return {
    ...{ did, client, send, identity: secrets },
    onBundle: (call) => {
      identity.onBundle = call;
    },
    receive: (take, signal) => receiveWith(identity, send, options)(take, signal),
    close: () => me.close(),
    lock: () => me.lock(),
  };
}

/** What `take` has stored is acknowledged. */
function receiveWith(
  identity: OwnIdentity,
  send: Inbox["send"],
  { device = randomUuid().slice(0, 8), pollMs }: Pick<WaypostOptions, "device" | "pollMs">,
): DeviceMail["receive"] {
  return async (take, signal) => {
    const read: typeof readMessage = async (version, recipient) => {
      const facts = await take((write) => readChunks(version, recipient, write));
      return { ...facts, data: new Uint8Array(0) };
    };
    const inbox = { ...unkeptInbox(send), isSaved: true, read };
    const receiver = new Receiver(identity, inbox, { device, pollMs });
    signal.addEventListener("abort", () => void receiver.stop());
    receiver.start();
    if (!signal.aborted) await receiver.next();
  };
}
