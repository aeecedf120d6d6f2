/** The entry of the chat app. */
import { render } from "preact";
import { App } from "./app.tsx";
import { keepInstalled } from "./installed.ts";
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

async function install(): Promise<void> {
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes };
  // The one address of a script that this page ever names at run time.
  const policy = trustedTypes?.createPolicy("worker", { createScriptURL: () => "/worker.js" });
  const workers = navigator.serviceWorker;
  if (workers === undefined) return;
  const script = policy?.createScriptURL("") ?? "/worker.js";
  const reload = () => location.reload();
  const look = await keepInstalled({ workers, script, offer: offerVersion, reload });
  setInterval(look, lookMs);
  document.addEventListener(
    "visibilitychange",
    () => document.visibilityState === "visible" && look(),
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
install().catch(() => undefined);
