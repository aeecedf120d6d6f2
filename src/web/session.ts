/**
 * The one identity of this origin, and what the app shows of its state. The SDK does the work: it
 * keeps people, messages and the outbox, receives, sends and retries. Here are only its opening,
 * and its events as one small state.
 */
import {
  type ClientError,
  indexedDbKeys,
  indexedDbStore,
  type KeyStore,
  type Lock,
  lockedKeys,
  passphraseLock,
  Waypost,
} from "../client/package.ts";
import { arrivedBy, forgetArrival } from "./place.ts";
import { oneLine } from "./text.ts";
import { t } from "./words/language.ts";

type NodeFacts = {
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly cacheUrl: string;
  readonly version: string;
};

export const node: NodeFacts = JSON.parse(
  document.querySelector<HTMLMetaElement>('meta[name="waypost-node"]')?.content ?? "{}",
);
/** Plain http from another machine: the browser gives no worker, push, passkey or camera. */
export const isTrial = !isSecureContext;

type Phase =
  | { readonly is: "opening"; readonly isSlow?: boolean }
  | { readonly is: "new" }
  | { readonly is: "locked"; readonly hasPasskey: boolean }
  | { readonly is: "ready" }
  | { readonly is: "failed"; readonly problem: string };

export type State = {
  readonly phase: Phase;
  readonly isConnected: boolean;
  /** The next version of the app, which waits to be taken. */
  readonly next: Pick<ServiceWorker, "postMessage" | "state"> | null;
  /** Lasting remarks, by what they are about. */
  readonly warnings: Readonly<Record<string, string>>;
  /** A short one, which goes by itself. */
  readonly toast: string | null;
  /**
   * How far files are that this tab sends, from 0 to 1, by their message. A reload
   * forgets it; the outbox goes on.
   */
  readonly sending: Readonly<Record<string, number>>;
};

type Listener = () => void;
const listeners = new Set<Listener>();
let state: State = {
  phase: { is: "opening" },
  isConnected: true,
  next: null,
  warnings: {},
  toast: null,
  sending: {},
};

/** The identity, from the time on when the phase is `ready`. */
export let me: Waypost;

export const current = (): State => state;

export function subscribe(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function update(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

export function warn(about: string, text: string | null): void {
  const { [about]: _, ...others } = state.warnings;
  update({ warnings: text === null ? others : { ...others, [about]: text } });
}

export const offerVersion = (next: State["next"]): void => update({ next });

/** How long a browser has to put the next version in the place of this one. */
const takenWithinMs = 4_000;

/**
 * All pages of this origin load anew with it; what was typed is a draft by then. A busy Chromium
 * was seen to leave it waiting for minutes though nothing was asked of this one, and to go on
 * when the page went away.
 */
export function takeVersion(): void {
  const { next } = current();
  next?.postMessage("take over");
  setTimeout(() => next?.state === "installed" && location.reload(), takenWithinMs);
}

let toasts: ReturnType<typeof setTimeout> | undefined;

export function toast(text: string): void {
  clearTimeout(toasts);
  update({ toast: text });
  toasts = setTimeout(() => update({ toast: null }), 6_000);
}

/** Work that a click begins: its failure is shown. */
export async function attempt(work: () => unknown): Promise<void> {
  try {
    await work();
  } catch (error) {
    toast(failureText(error));
  }
}

export function failureText(error: unknown): string {
  const { code = "", message = String(error) } = error as Partial<ClientError>;
  const known: Readonly<Record<string, string>> = t.failures;
  if (known[code] !== undefined) return known[code];
  // What the app itself throws is of the catalogue already.
  return code === "" ? message : t.unknownFailure(message, code);
}

const plainKeys = indexedDbKeys();
export const locked = lockedKeys(plainKeys);
/** Those without a lock, until one was opened. */
let keys: KeyStore = plainKeys;
/** Whether a lock seals what is kept here. */
export const isSealed = (): boolean => keys === locked;
const store = indexedDbStore();
const identityName = "default";

/** Opens the identity of this device, or shows the first page, or what opens the lock. */
export async function start(): Promise<void> {
  update({ phase: { is: "opening" } });
  const slow = setTimeout(() => update({ phase: { is: "opening", isSlow: true } }), slowMs);
  try {
    const locks = keys === plainKeys ? await locked.kinds() : [];
    if (locks.length > 0)
      update({ phase: { is: "locked", hasPasskey: locks.includes("passkey") } });
    else if ((await keys.load(identityName)) === null) update({ phase: { is: "new" } });
    else ready(await Waypost.open(options()));
  } catch (error) {
    const isRefused = (error as { readonly cause?: unknown }).cause instanceof DOMException;
    update({ phase: { is: "failed", problem: isRefused ? t.storageRefused : failureText(error) } });
  } finally {
    clearTimeout(slow);
  }
}

/**
 * A first read that takes so long may wait for a page that the browser ended
 * in the middle of a write.
 */
const slowMs = 5_000;

/** Makes an identity and registers it. */
export async function create(name: string, invitation: string | null): Promise<void> {
  const made = await Waypost.open({ ...options(), ...(invitation === null ? {} : { invitation }) });
  await made.store.saveProfile({ name, isOpen: true });
  if (invitation !== null) localStorage.setItem("invitation", invitation);
  ready(made);
}

/**
 * What other devices call this one. Two of the same kind differ behind `#`: by this text a Relay
 * distinguishes their live sessions.
 */
function ownDevice(): string {
  const held = localStorage.getItem("device");
  if (held !== null) return held;
  const { userAgent } = navigator;
  const find = (names: readonly (readonly [form: RegExp, name: string])[], other: string) =>
    names.find(([form]) => form.test(userAgent))?.[1] ?? other;
  const made = `${t.browserOn(find(browsers, t.aBrowser), find(systems, t.aComputer))} #${randomPart()}`;
  localStorage.setItem("device", made);
  return made;
}

const randomPart = (): string =>
  crypto.getRandomValues(new Uint16Array(2)).reduce((text, part) => text + part.toString(36), "");

/** In this order: each names those before it too. */
const browsers = [
  [/Firefox\//, "Firefox"],
  [/Edg\//, "Edge"],
  [/Chrom(e|ium)\//, "Chrome"],
  [/Safari\//, "Safari"],
] as const;
const systems = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iPhone or iPad"],
  [/Mac OS/, "Mac"],
  [/Windows/, "Windows"],
  [/Linux/, "Linux"],
] as const;

/** Of a device, to people. */
export const deviceLabel = (name: string): string =>
  oneLine(name.replace(/ #\w+$/, "")) || t.aDevice;

/** By which this person came to the server: their friends come by it too, while it lasts. */
export const operatorInvitation = (): string | null => localStorage.getItem("invitation");

const options = () => ({
  device: ownDevice(),
  directoryUrl: node.directoryUrl,
  relayUrl: node.relayUrl,
  cacheUrl: node.cacheUrl,
  keys,
  store,
  receipts: true,
});

type LinkingDevice = Pick<Awaited<ReturnType<typeof Waypost.link>>, "code" | "cancel">;

/**
 * Makes this a device of an identity that another device holds. Resolves when
 * that one has accepted it.
 */
export async function linkDevice(
  invitation: string | null,
  onCode: (linking: LinkingDevice) => void,
): Promise<void> {
  const given = invitation === null ? {} : { invitation };
  const linking = await Waypost.link({ ...options(), ...given });
  onCode(linking);
  const opened = await linking.opened;
  if (arrivedBy().ofDevice !== null) forgetArrival();
  ready(opened);
}

function ready(opened: Waypost): void {
  me = opened;
  me.on((event) => {
    if (event.type === "connected") update({ isConnected: true });
    if (event.type === "disconnected") update({ isConnected: false });
    if (event.type === "unreadable") toast(t.unreadableMessage);
    if (event.type === "stranger_change") warn("keys", t.keysReplaced);
    if (event.type === "device_added")
      warn(`device ${event.did}`, t.deviceAdded(deviceLabel(event.name)));
    if (event.type === "address_differs") warn("address", t.addressDiffers);
    if (event.type === "store_full") warn("full", t.storeFull);
    if (event.type === "failed" && event.what === "clock")
      warn("clock", t.clockWrong(event.error.message));
  });
  update({ phase: { is: "ready" } });
  void warnOfState();
}

/** What else there is to say when it is opened, and after new keys. */
export async function warnOfState(): Promise<void> {
  const [backup, isWaiting] = await Promise.all([me.backupState(), me.devices.isWaiting()]);
  warn("backup", backup === "outdated" ? t.backupOutdated : null);
  if (isWaiting) warn("history", t.historyAwaited);
}

/** To the nodes of this page. */
export async function move(): Promise<void> {
  await me.move();
  warn("address", null);
}

/** Files what comes without the history of the other device. */
export async function goOn(): Promise<void> {
  await me.devices.goOn();
  warn("history", null);
}

/** What a backup brings: keys, people and history. */
export async function restoreBackup(file: Blob, passphrase: string): Promise<void> {
  const { restore: bringBack } = await import("../client/identity/backup.ts");
  const { directoryUrl } = node;
  const options = {
    passphrase,
    keys,
    store,
    name: identityName,
    areOthersLost: true,
    directoryUrl,
  };
  const { isHistoryOnly } = await bringBack(file.stream(), options);
  await start();
  if (isHistoryOnly) toast(t.replacedSince);
}

/** All tabs lock together: each loads anew and forgets what it held. */
const lockedTabs = new BroadcastChannel("waypost.locked");
lockedTabs.onmessage = () => location.reload();

/** Seals what is kept here from now on, and locks. */
export async function setUpLock(passphrase: string): Promise<void> {
  await locked.setUp(passphraseLock(passphrase));
  await lockNow();
}

export async function unlock(lock: Lock): Promise<void> {
  await locked.unlock(lock);
  keys = locked;
  await start();
}

export async function lockNow(): Promise<void> {
  lockedTabs.postMessage("locked");
  await me.lock();
  location.reload();
}

/** Asks the browser to keep what is here, and says where it won't. */
export async function keepStorage(): Promise<void> {
  const isKept = isTrial || (await navigator.storage?.persist?.());
  warn("storage", isKept ? null : t.mayBeDeleted);
}
