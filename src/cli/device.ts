/**
 * `waypost device link|invite|accept|list|remove`: the devices of an identity. They share keys and
 * history, which lie in a local store next to the keys.
 * Source: docs/client.md "Devices".
 */
import type { Command } from "commander";
import { timedOut } from "../app/failure.ts";
import { attempt, ClientError } from "../client/base/failure.ts";
import { Waypost } from "../client/waypost.ts";
import { minuteMs } from "../core/codec/time.ts";
import { addIdentityFlag, clientCommand, parseName, printable } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { confirmed } from "./did-change.ts";
import { fileStore, storePath } from "./files/store.ts";

type NameFlags = { readonly name?: string };

export function registerDeviceCommand(program: Command): void {
  const device = program
    .command("device")
    .description("the devices of an identity, which share keys and history");
  const link = device
    .command("link")
    .description("show a code on a new device, and wait until another one accepts it");
  clientCommand(
    link
      .option("--as <name>", "what to call the identity here", parseName, "default")
      .option("--invitation <code>", "of `waypost device invite`, where the Directory invites"),
    linkDevice,
  );
  const invite = device
    .command("invite")
    .description(
      "make an invitation for a new device, where the Directory registers who is invited",
    );
  clientCommand(addIdentityFlag(invite), inviteDevice);
  const accept = device
    .command("accept <code>")
    .description("give the device that shows the code the keys and the history");
  clientCommand(
    addIdentityFlag(accept.option("--name <text>", "what to call the device", "device")),
    acceptDevice,
  );
  clientCommand(
    addIdentityFlag(device.command("list").description("list the devices")),
    listDevices,
  );
  const remove = device
    .command("remove <did>")
    .description("replace all keys: from then on that device can neither read nor sign")
    .option("--keep <did...>", "the other devices that stay, as `waypost device list` shows them")
    .option("--yes", "do not ask for confirmation; then --keep names each that stays");
  clientCommand(addIdentityFlag(remove), removeDevice);
}

/**
 * The store of an identity, which no other program may have open. Messages are
 * taken by `receive` alone.
 */
export function withStore({ keysFolder }: CommandSession, name: string) {
  return {
    store: fileStore(storePath(keysFolder, name), { bytesMax: Infinity }),
    acknowledge: "by-hand",
  } as const;
}

async function openDevice(session: CommandSession): Promise<Waypost> {
  return session.open(withStore(session, (await session.identity()).name));
}

async function inviteDevice(session: CommandSession): Promise<void> {
  const me = await openDevice(session);
  const made = await me.devices.invitation();
  if (made === null) {
    session.report.result({ ok: true, code: null }, "A new device needs no invitation here.");
    return;
  }
  const { code, expiresAt } = made;
  session.report.result(
    { ok: true, code, expires_at: expiresAt.toISOString() },
    `On the new device, within 15 minutes: waypost device link --invitation ${code}`,
  );
}

async function linkDevice(
  session: CommandSession,
  { as: name, invitation }: { readonly as: string; readonly invitation?: string },
): Promise<void> {
  const { report } = session;
  const { code, opened } = await Waypost.link({
    ...session.options(name),
    ...withStore(session, name),
    ...(invitation === undefined ? {} : { invitation }),
  });
  report.result({ code }, code);
  report.note("On the other device: waypost device accept <code>, within ten minutes.");
  const me = await opened;
  await session.rememberHome(name);
  try {
    const { fingerprint, text } = await shownOf(me);
    const result = { ok: true, did: me.did, name, fingerprint };
    report.result(result, `${name} is ${me.did} on this device too${text}`);
  } finally {
    await me.close();
  }
}

/**
 * Both devices show it, so that no one has given the new one an identity of theirs
 * own; none for a random DID.
 */
async function shownOf(me: Waypost) {
  const shown = await attempt(() => me.ownFingerprint());
  if (shown instanceof ClientError) return { fingerprint: null, text: "" };
  return { fingerprint: shown, text: `\nBoth devices show: ${shown}` };
}

/** Longest wait for the new device's Cache to have the history. */
const historyMs = 10 * minuteMs;
const lookMs = 200;

async function acceptDevice(
  session: CommandSession,
  { name = "device" }: NameFlags,
  code: string,
): Promise<void> {
  const me = await openDevice(session);
  await me.devices.acceptLink(code, name);
  const endMs = performance.now() + historyMs;
  while ((await me.devices.list()).some(({ isCurrent }) => !isCurrent)) {
    session.report.progress("sending the history");
    if (performance.now() > endMs)
      throw timedOut("the history is not there yet: it goes on when this store is opened");
    await Bun.sleep(lookMs);
  }
  const { fingerprint, text } = await shownOf(me);
  session.report.result(
    { ok: true, did: me.did, fingerprint },
    `${printable(name)} has the keys and the history${text}`,
  );
}

async function listDevices(session: CommandSession): Promise<void> {
  const me = await openDevice(session);
  const devices = (await me.devices.list()).map(({ did, name, isThis, addedAt, isCurrent }) => ({
    did,
    name,
    this: isThis,
    added_at: addedAt?.toISOString() ?? null,
    current: isCurrent,
  }));
  const lines = devices.map(
    ({ did, name, this: isThis }) => `${did} ${name}${isThis ? " (this one)" : ""}`,
  );
  session.report.result({ ok: true, devices }, lines.join("\n") || "This is the only device.");
}

type RemovalFlags = { readonly keep?: readonly string[]; readonly yes?: boolean };

async function removeDevice(
  session: CommandSession,
  flags: RemovalFlags,
  did: string,
): Promise<void> {
  const me = await openDevice(session);
  const others = (await me.devices.list()).filter(({ isThis }) => !isThis);
  const staying = others.filter((one) => one.did !== did);
  // Else it is none, or was removed before.
  if (staying.length < others.length) {
    demandNamed(staying, flags);
    for (const one of staying) session.report.note(`${one.did} ${printable(one.name)} stays.`);
    confirmed(`Replace all keys of ${me.did}, so that ${did} has none in force?`, flags);
    session.report.progress("replacing the keys");
  }
  await me.devices.remove(did);
  session.report.result({ ok: true, did }, `${did} has no key in force any more`);
}

/**
 * Each device that stays gets the new keys, also one that a thief's device has listed since the
 * user looked: the user sees it in the question, or names those that stay.
 */
function demandNamed(staying: readonly { readonly did: string }[], { keep, yes }: RemovalFlags) {
  const dids = staying.map(({ did }) => did);
  const isSeen = keep === undefined ? yes !== true || dids.length === 0 : sameDids(keep, dids);
  if (isSeen) return;
  const named = `--keep ${dids.join(" ")}`;
  const expected = dids.length === 0 ? "no other device would stay" : `those that stay: ${named}`;
  throw new ClientError("local", "devices_changed", expected);
}

function sameDids(some: readonly string[], others: readonly string[]): boolean {
  return new Set(some).symmetricDifference(new Set(others)).size === 0;
}
