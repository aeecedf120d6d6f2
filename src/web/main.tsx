/** The entry of the chat app. */
import { render } from "preact";
import { App } from "./app.tsx";
import { offerVersion, start } from "./session.ts";
import { loadWords } from "./words/language.ts";

type TrustedTypes = {
  readonly createPolicy: (
    name: string,
    rules: { readonly createScriptURL: (url: string) => string },
  ) => { readonly createScriptURL: (url: string) => string };
};

/** How often an app that is never closed asks for the next version. */
const lookMs = 3_600_000;

/**
 * The service worker keeps one whole version of the app. The next one waits until no page shows
 * this one, or until the person takes it.
 */
async function keepInstalled(): Promise<void> {
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes };
  // The one address of a script that this page ever names at run time.
  const policy = trustedTypes?.createPolicy("worker", { createScriptURL: () => "/worker.js" });
  const workers = navigator.serviceWorker;
  if (workers === undefined) return;
  // Another version took over while this page, which is of the former one, was on its way.
  if (workers.controller?.state === "activating") location.reload();
  let hasOne = workers.controller !== null;
  workers.addEventListener("controllerchange", () => {
    if (hasOne) location.reload();
    // The first one begins with the page as it is; the next one is another version.
    hasOne = true;
  });
  const registration = await workers.register(policy?.createScriptURL("") ?? "/worker.js");
  // A page that was on its way when the first one claimed its pages goes without it.
  hasOne ||= registration.active?.state === "activated";
  const offer = () => {
    // The first version of all has nothing before it.
    if (registration.waiting !== null && registration.active !== null)
      offerVersion(registration.waiting);
  };
  offer();
  registration.addEventListener("updatefound", () => {
    registration.installing?.addEventListener("statechange", offer);
  });
  const updateWorker = () => void registration.update().catch(() => undefined);
  setInterval(updateWorker, lookMs);
  document.addEventListener(
    "visibilitychange",
    () => document.visibilityState === "visible" && updateWorker(),
  );
}

async function begin(): Promise<void> {
  await loadWords();
  const place = document.getElementById("app");
  if (place !== null) render(<App />, place);
  await start();
}

void begin();
// An app that can't be kept still works as a page.
keepInstalled().catch(() => undefined);
