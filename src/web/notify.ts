/**
 * Notifications: while the page is open but not in sight, with the name of who wrote, never the
 * words; and by push, where the server has it, while it is closed. And unread counts in the title.
 */
import { nameOf } from "./parts.tsx";
import { me } from "./session.ts";
import { t } from "./words/language.ts";

const setting = "notifies";

export const isNotifying = (): boolean =>
  localStorage.getItem(setting) === "yes" && globalThis.Notification?.permission === "granted";

/** Asks the browser. */
export async function startNotifying(): Promise<void> {
  if (globalThis.Notification === undefined) throw new Error(t.noNotifications);
  if ((await Notification.requestPermission()) !== "granted") throw new Error(t.notificationsOff);
  localStorage.setItem(setting, "yes");
  // Without it notifications still come while the page is open.
  void wake().catch(() => undefined);
}

export async function stopNotifying(): Promise<void> {
  localStorage.removeItem(setting);
  const registration = await navigator.serviceWorker?.getRegistration();
  const subscription = await registration?.pushManager?.getSubscription();
  if (!subscription) return;
  await me.push(subscription, null).finally(() => subscription.unsubscribe());
}

/** Has the Caches wake this device. At each start again: browsers renew their subscriptions. */
async function wake(): Promise<void> {
  const { pushManager } = await navigator.serviceWorker.ready;
  const applicationServerKey = await me.pushKey();
  const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  await me.push(subscription, { title: t.newMessage, navigate: location.origin });
}

export function followNews(): () => void {
  const count = async () => {
    const unread = await me.store.unread();
    document.title = unread === 0 ? "Waypost" : `(${unread}) Waypost`;
    const badge = navigator as { setAppBadge?: (count: number) => Promise<void> };
    await badge.setAppBadge?.(unread).catch(() => undefined);
    await withdraw(unread);
  };
  void count().catch(() => undefined);
  if (isNotifying()) void wake().catch(() => undefined);
  return me.on((event) => {
    if (event.type !== "changed") return;
    void count().catch(() => undefined);
    const { conversation, id, what } = event;
    if (
      what === "message" &&
      conversation !== null &&
      id !== null &&
      !document.hasFocus() &&
      isNotifying()
    )
      void notify(conversation, id).catch(() => undefined);
  });
}

async function notify(conversation: string, id: string): Promise<void> {
  const message = await me.store.message(id);
  const person = await me.store.person(conversation);
  const group = await me.groups.get(conversation);
  if (message === null || message.isOwn || message.isRead || person?.isBlocked === true) return;
  const { isMuted } = await me.store.chosen(conversation);
  if (isMuted && message.mentions?.includes(me.did) !== true) return;
  const isKnown = person?.isKnown === true || group?.standing === "joined";
  const title = isKnown ? nameOf(person, conversation, group) : t.somebodyNew;
  const worker = await navigator.serviceWorker?.getRegistration();
  // The types of pages lack `renotify`: without it the second message of a
  // conversation makes no sound.
  const options: NotificationOptions & { readonly renotify: boolean } = {
    body: t.hasWritten,
    tag: conversation,
    renotify: true,
    icon: "/icon-512.png",
  };
  await worker?.showNotification(title, options);
}

/** Notifications of conversations that were read, here or on another device, go. */
async function withdraw(unread: number): Promise<void> {
  const worker = await navigator.serviceWorker?.getRegistration();
  const shown = (await worker?.getNotifications()) ?? [];
  if (shown.length === 0) return;
  const conversations = unread === 0 ? [] : await me.store.conversations();
  const isUnread = (tag: string) =>
    conversations.some((one) => (one.id === tag || tag === pushedTag) && one.unread > 0);
  for (const one of shown) if (!isUnread(one.tag)) one.close();
}

/** Of what a push shows, which names no conversation. */
const pushedTag = "waypost";
