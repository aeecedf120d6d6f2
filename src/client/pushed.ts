/**
 * What a page's service worker does with a push: it shows a notification, and acknowledges nothing.
 * Browsers withdraw the permission from pages whose pushes show none. A module that imports
 * nothing: `@waypost/client/pushed`.
 * Source: docs/client.md "Push".
 */

type Payload = {
  readonly waypost?: unknown;
  readonly notification?: {
    readonly title?: string;
    readonly body?: string;
    readonly navigate?: string;
  };
};

type Work = { readonly waitUntil: (work: Promise<unknown>) => void };
type PushEventLike = Work & { readonly data: { readonly text: () => string } | null };
type ClickEventLike = Work & {
  readonly notification: { readonly close: () => void; readonly data?: unknown };
};

type BrowserPage = { readonly visibilityState: string; readonly focus: () => Promise<unknown> };

/** The TypeScript of pages has no names for these. */
declare const registration: {
  readonly showNotification: (title: string, options: object) => Promise<void>;
};
declare const clients: {
  readonly matchAll: (options: object) => Promise<readonly BrowserPage[]>;
  readonly openWindow: (url: string) => Promise<unknown>;
};

const pages = () => clients.matchAll({ type: "window", includeUncontrolled: true });

/** For `push` events: `self.addEventListener("push", pushed)`. */
export function pushed(event: PushEventLike): void {
  event.waitUntil(receivePush(event.data?.text() ?? ""));
}

/** For `notificationclick` events: shows the page. */
export function clicked(event: ClickEventLike): void {
  const { notification } = event;
  notification.close();
  event.waitUntil(open(typeof notification.data === "string" ? notification.data : "/"));
}

async function receivePush(text: string): Promise<void> {
  const { waypost: confirmation, notification } = parsePayload(text);
  if (confirmation !== undefined) {
    new BroadcastChannel("waypost.push").postMessage(confirmation);
    if ((await pages()).some(({ visibilityState }) => visibilityState === "visible")) return;
  }
  const usual = confirmation === undefined ? "New message" : "Notifications are on";
  const { title = usual, body, navigate = "/" } = notification ?? {};
  // One notification, whatever comes: the page knows how many messages wait.
  const options = {
    tag: "waypost",
    renotify: true,
    data: navigate,
    ...(body === undefined ? {} : { body }),
  };
  await registration.showNotification(title, options);
}

/** What this device asked its Caches to push, which may be any text, or their confirmation. */
function parsePayload(text: string): Payload {
  try {
    return (JSON.parse(text) as Payload | null) ?? {};
  } catch {
    return {};
  }
}

async function open(url: string): Promise<void> {
  const [one] = await pages();
  if (one === undefined) await clients.openWindow(url);
  else await one.focus();
}
