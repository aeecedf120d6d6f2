/**
 * The installed app: the service worker that keeps one whole version of the files, and a new version, which waits until
 * the person takes it. Nothing of this exists where the page is no secure context.
 */

/** What the app says to the worker. */
export type WorkerMessage = "take";

type TrustedTypes = {
  readonly createPolicy: (
    name: string,
    rules: { readonly createScriptURL: (url: string) => string },
  ) => {
    readonly createScriptURL: (url: string) => string;
  };
};

/** Registers the worker. `onNew` gets what takes a newer version, once that is there as a whole. */
export async function keepInstalled(onNew: (take: () => void) => void): Promise<void> {
  if (!("serviceWorker" in navigator)) return;
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes };
  // The one address of a script that this page ever names at run time.
  const policy = trustedTypes?.createPolicy("worker", { createScriptURL: () => "/worker.js" });
  const registration = await navigator.serviceWorker.register(policy?.createScriptURL("") ?? "/worker.js");
  const hadOne = navigator.serviceWorker.controller !== null;
  navigator.serviceWorker.addEventListener("controllerchange", () => {
    if (hadOne) location.reload();
  });
  const offer = (): void => {
    const { waiting } = registration;
    if (waiting !== null && hadOne) onNew(() => waiting.postMessage("take" satisfies WorkerMessage));
  };
  offer();
  registration.addEventListener("updatefound", () => {
    registration.installing?.addEventListener("statechange", offer);
  });
}
