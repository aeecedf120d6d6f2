/** The entry of the chat app. */
import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./session.ts";

type TrustedTypes = {
  readonly createPolicy: (
    name: string,
    rules: { readonly createScriptURL: (url: string) => string },
  ) => { readonly createScriptURL: (url: string) => string };
};

/** The service worker keeps one whole version of the app. The browser takes the next one when no page shows this one. */
async function keepInstalled(): Promise<void> {
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes };
  // The one address of a script that this page ever names at run time.
  const policy = trustedTypes?.createPolicy("worker", { createScriptURL: () => "/worker.js" });
  await navigator.serviceWorker?.register(policy?.createScriptURL("") ?? "/worker.js");
}

const place = document.getElementById("app");
if (place !== null) render(<App />, place);
void start();
// An app that can't be kept still works as a page.
keepInstalled().catch(() => undefined);
