/** The version of the app that the service worker keeps, and how a page comes to the next one. */

type Listening = Pick<EventTarget, "addEventListener">;
type Version = Listening & { readonly state: ServiceWorkerState };
type Registration<V> = Listening & {
  readonly active: V | null;
  readonly waiting: V | null;
  readonly installing: V | null;
  readonly update: () => Promise<unknown>;
};
/** Of `ServiceWorkerContainer` what is used here. */
type Workers<V> = Listening & {
  readonly controller: V | null;
  readonly register: (script: string) => Promise<Registration<V>>;
};

type Installing<V> = {
  readonly workers: Workers<V>;
  readonly script: string;
  /** Shows that another version waits. */
  readonly offer: (waiting: V) => void;
  readonly reload: () => void;
};

/**
 * The service worker keeps one whole version of the app. The next one waits until no page shows
 * this one, or until the person takes it. Returns what looks for the next version.
 */
export async function keepInstalled<V extends Version>({
  workers,
  script,
  offer,
  reload,
}: Installing<V>): Promise<() => void> {
  // Another version took over while this page, which is of the former one, was on its way.
  if (workers.controller?.state === "activating") reload();
  let hasOne = workers.controller !== null;
  workers.addEventListener("controllerchange", () => {
    if (hasOne) reload();
    // The first one begins with the page as it is; the next one is another version.
    hasOne = true;
  });
  const registration = await workers.register(script);
  // A page that was on its way when the first one claimed its pages goes without it.
  hasOne ||= registration.active?.state === "activated";
  const offerNext = () => {
    // The first version of all has nothing before it.
    if (registration.waiting !== null && registration.active !== null) offer(registration.waiting);
  };
  offerNext();
  registration.addEventListener("updatefound", () => {
    registration.installing?.addEventListener("statechange", offerNext);
  });
  return () => void registration.update().catch(() => undefined);
}
