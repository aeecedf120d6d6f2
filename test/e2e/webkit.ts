/**
 * A WebKitGTK of this machine, driven by WebDriver: its small browser without a window to see, on a
 * display of its own (Xvfb). Nothing of it outlives `close`.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import type { TypedPage } from "./app-page.ts";

const browsers = ["4.1", "6.0", "4.0"].flatMap((version) =>
  ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/libexec", "/usr/lib"].map(
    (folder) => `${folder}/webkit2gtk-${version}/MiniBrowser`,
  ),
);
const driverPath = Bun.which("WebKitWebDriver");
const displayPath = Bun.which("Xvfb");
const browserPath = browsers.find((path) => existsSync(path)) ?? null;

/** What is missing here; `null` when all is there. */
export const webkitLacks: string | null =
  driverPath === null || browserPath === null
    ? "WebKitWebDriver and its MiniBrowser (webkit2gtk-driver)"
    : displayPath === null
      ? "Xvfb"
      : null;

const keys = { Enter: "\ue007", Escape: "\ue00c", Tab: "\ue004" } as const;
const answerMs = 60_000;

type WebKit = {
  /** The one window. */
  readonly page: TypedPage;
  readonly go: (url: string) => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function startWebKit(): Promise<WebKit> {
  if (driverPath === null || displayPath === null || browserPath === null)
    throw new Error(`this machine lacks ${webkitLacks}`);
  const home = mkdtempSync(join(tmpdir(), "waypost-webkit-"));
  const display = await startDisplay(displayPath);
  const port = freePort();
  const driver = Bun.spawn([driverPath, `--port=${port}`], {
    stdout: "ignore",
    stderr: "ignore",
    env: {
      ...process.env,
      DISPLAY: display.name,
      HOME: home,
      XDG_RUNTIME_DIR: home,
      WEBKIT_DISABLE_COMPOSITING_MODE: "1",
      LIBGL_ALWAYS_SOFTWARE: "1",
      LANG: "C.UTF-8",
    },
  });
  let session = "";
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const answer = await fetch(`http://127.0.0.1:${port}${session}${path}`, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(answerMs),
    });
    const { value } = (await answer.json()) as { readonly value: unknown };
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(value)}`);
    return value;
  };
  const close = async () => {
    await call("DELETE", "").catch(() => undefined);
    driver.kill();
    await driver.exited;
    await display.stop();
    rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  };
  const status = () => call("GET", "/status").catch(() => null);
  for (let tries = 0; (await status()) === null && tries < 200; tries++) await Bun.sleep(50);
  const options = { binary: browserPath, args: ["--automation"] };
  const made = (await call("POST", "/session", {
    capabilities: { alwaysMatch: { "webkitgtk:browserOptions": options } },
  }).catch(async (error: unknown) => {
    await close();
    throw error;
  })) as { readonly sessionId: string };
  session = `/session/${made.sessionId}`;
  const go = async (url: string) => void (await call("POST", "/url", { url }));
  return { page: pageOf(call), go, close };
}

type Call = (method: string, path: string, body?: object) => Promise<unknown>;

function pageOf(call: Call): TypedPage {
  const evaluate = async (expression: string): Promise<unknown> => {
    const script = `const done = arguments[0];
      Promise.resolve().then(() => (${expression.replace(/;\s*$/, "")})).then(
        (value) => done(JSON.stringify({ value })), (error) => done(JSON.stringify({ error: String(error) })))`;
    const text = (await call("POST", "/execute/async", { script, args: [] })) as string;
    const { value, error } = JSON.parse(text) as { value?: unknown; error?: string };
    if (error !== undefined) throw new Error(`${expression}: ${error}`);
    return value;
  };
  const until = async (expression: string, what: string, timeoutMs = 90_000): Promise<void> => {
    for (const end = Date.now() + timeoutMs; Date.now() < end; await Bun.sleep(100))
      if (await evaluate(`!!(${expression})`).catch(() => false)) return;
    throw new Error(`${what}: not in time\n${await evaluate("document.body.innerText")}`);
  };
  const type = async (text: string): Promise<void> => {
    const actions = [...text].flatMap((value) => [
      { type: "keyDown", value },
      { type: "keyUp", value },
    ]);
    await call("POST", "/actions", { actions: [{ type: "key", id: "keyboard", actions }] });
  };
  return { evaluate, until, type, press: (key) => type(keys[key]) };
}

/** A display that no one sees, under a free number. */
async function startDisplay(path: string) {
  const child = Bun.spawn([path, "-displayfd", "1", "-screen", "0", "1200x900x24"], {
    stdout: "pipe",
    stderr: "ignore",
  });
  const { value } = await child.stdout.getReader().read();
  const name = `:${new TextDecoder().decode(value).trim()}`;
  const stop = async () => {
    child.kill();
    await child.exited;
  };
  return { name, stop };
}
