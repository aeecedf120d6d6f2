/**
 * A headless Chromium of this machine, driven over its debugging protocol: pages that are opened,
 * asked and cut off from the network. Nothing of it outlives `close`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const chromiumPath =
  Bun.which("chromium") ?? Bun.which("chromium-browser") ?? Bun.which("google-chrome");

/**
 * The same engine without windows, which takes a third less processor time. It shows no
 * notifications.
 */
const lightPath = Bun.which("chromium-headless-shell") ?? chromiumPath;

export type Page = {
  /** The JSON value of an expression; a promise is awaited. */
  readonly evaluate: (expression: string) => Promise<unknown>;
  /**
   * Asks until the expression is truthy; throws with `what` and the page's console after a minute.
   */
  readonly until: (expression: string, what: string, timeoutMs?: number) => Promise<void>;
  /** Types into the field that has the focus. */
  readonly type: (text: string) => Promise<void>;
  readonly press: (key: "Enter" | "Escape" | "Tab") => Promise<void>;
  /** A call of the debugging protocol. */
  readonly call: (method: string, params: object) => Promise<Record<string, unknown>>;
  readonly setOffline: (offline: boolean) => Promise<void>;
  /** What it has written there. A page that is not `heard` throws: its silence means nothing. */
  readonly console: readonly string[];
  /** Addresses that the page has asked, likewise. */
  readonly requests: readonly string[];
};

export type Browser = {
  /** In the browser's own profile, or in one of `profile`. */
  readonly open: (url: string, profile?: string) => Promise<Page>;
  /**
   * A person's own: storage, workers and permissions apart from all others. Its downloads go to the
   * folder.
   */
  readonly profile: (downloads: string) => Promise<string>;
  /** Closes the pages of all profiles but those that stay, and forgets what they hold. */
  readonly endProfiles: (staying?: ReadonlySet<string>) => Promise<void>;
  /** The same one, whose pages have a service worker whatever it was started with. */
  readonly withWorkers: () => Browser;
  /**
   * The same one, whose pages are heard from their start: a fifth of the processor time of a person
   * that begins.
   */
  readonly heard: () => Browser;
  readonly close: () => Promise<void>;
};

type Reply = {
  id?: number;
  method?: string;
  sessionId?: string;
  result?: Record<string, unknown>;
  error?: { message: string };
  params?: Record<string, unknown>;
};

export type ChromiumOptions = {
  /** Its pages have no service worker, as in a browser that has none for them. */
  readonly isWithoutWorker?: boolean;
  readonly flags?: readonly string[];
  /** The one without windows, where it is installed. */
  readonly isLight?: boolean;
};

export async function startChromium({
  flags: extraFlags = [],
  isLight = false,
  isWithoutWorker = false,
}: ChromiumOptions = {}): Promise<Browser> {
  const path = isLight ? lightPath : chromiumPath;
  if (path === null) throw new Error("there is no Chromium on this machine");
  const profile = mkdtempSync(join(tmpdir(), "waypost-chromium-"));
  const flags = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    // Pages of the browser's own that it would load for each window.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    ...extraFlags,
  ];
  const child = Bun.spawn([path, ...flags, `--user-data-dir=${profile}`, "about:blank"], {
    stdout: "ignore",
    stderr: "pipe",
  });
  // Otherwise Chromium compresses each answer. The types of the DOM know no such option.
  const options = { perMessageDeflate: false } as never;
  const socket = new WebSocket(await debuggingUrl(child.stderr), options);
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  const waiting = new Map<number, (reply: Reply) => void>();
  const consoles = new Map<string, string[]>();
  const requests = new Map<string, string[]>();
  let count = 0;
  socket.addEventListener("message", ({ data }) => {
    const reply = JSON.parse(String(data)) as Reply;
    if (reply.id !== undefined) waiting.get(reply.id)?.(reply);
    else if (reply.method === "Network.requestWillBeSent")
      requests
        .get(reply.sessionId ?? "")
        ?.push((reply.params as { request: { url: string } }).request.url);
    else if (
      reply.method === "Runtime.consoleAPICalled" ||
      reply.method === "Runtime.exceptionThrown" ||
      reply.method === "Log.entryAdded"
    )
      consoles.get(reply.sessionId ?? "")?.push(JSON.stringify(reply.params).slice(0, 600));
  });
  const call = async (
    method: string,
    params: object,
    sessionId?: string,
  ): Promise<Record<string, unknown>> => {
    const id = ++count;
    const answered = new Promise<Reply>((resolve) => waiting.set(id, resolve));
    socket.send(
      JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }),
    );
    const { result, error } = await answered;
    waiting.delete(id);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  };
  const openPage = async (
    { hasWorker, isHeard }: Kind,
    url: string,
    context?: string,
  ): Promise<Page> => {
    const own = context === undefined ? {} : { browserContextId: context };
    const { targetId } = await call("Target.createTarget", { url: "about:blank", ...own });
    const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
    const session = String(sessionId);
    const lines: string[] = [];
    const urls: string[] = [];
    consoles.set(session, lines);
    requests.set(session, urls);
    const domains = isHeard ? ["Page", "Network", ...consoleDomains] : ["Page"];
    for (const domain of domains) await call(`${domain}.enable`, {}, session);
    if (!hasWorker)
      await call("Page.addScriptToEvaluateOnNewDocument", { source: withoutWorker }, session);
    await call("Page.navigate", { url }, session);
    return pageOf((method, params) => call(method, params, session), { lines, urls, isHeard });
  };
  const profiles = new Set<string>();
  const profileIn = async (downloads: string): Promise<string> => {
    const context = String((await call("Target.createBrowserContext", {}))["browserContextId"]);
    profiles.add(context);
    const behavior = { behavior: "allow", browserContextId: context, downloadPath: downloads };
    await call("Browser.setDownloadBehavior", behavior);
    return context;
  };
  const endProfiles = async (staying: ReadonlySet<string> = new Set()) => {
    for (const browserContextId of profiles.difference(staying)) {
      await call("Target.disposeBrowserContext", { browserContextId });
      profiles.delete(browserContextId);
    }
  };
  const close = async () => {
    await call("Browser.close", {}).catch(() => undefined);
    child.kill();
    await child.exited;
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  const browserOf = (kind: Kind): Browser => ({
    open: (url, context) => openPage(kind, url, context),
    ...{ profile: profileIn, endProfiles, close },
    withWorkers: () => browserOf({ ...kind, hasWorker: true }),
    heard: () => browserOf({ ...kind, isHeard: true }),
  });
  return browserOf({ hasWorker: !isWithoutWorker, isHeard: false });
}

/** Of the pages that are opened. */
type Kind = { readonly hasWorker: boolean; readonly isHeard: boolean };

/** Asked for later, they tell what the document has said before. */
const consoleDomains = ["Runtime", "Log"];

const withoutWorker =
  "Object.defineProperty(Navigator.prototype, 'serviceWorker', { value: undefined })";

const keyCodes = { Enter: 13, Escape: 27, Tab: 9 } as const;

type Call = (method: string, params: object) => Promise<Record<string, unknown>>;

type Heard = {
  readonly lines: readonly string[];
  readonly urls: readonly string[];
  readonly isHeard: boolean;
};

function pageOf(call: Call, { lines, urls, isHeard }: Heard): Page {
  const evaluate = async (expression: string): Promise<unknown> => {
    const answer = await call("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    const { result, exceptionDetails } = answer as {
      result?: { value?: unknown };
      exceptionDetails?: unknown;
    };
    if (exceptionDetails !== undefined)
      throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result?.value;
  };
  const until = async (expression: string, what: string, timeoutMs = 60_000): Promise<void> => {
    const end = Date.now() + timeoutMs;
    while (Date.now() < end) {
      if (await evaluate(askedAgain(expression)).catch(() => false)) return;
      await Bun.sleep(20);
    }
    if (!isHeard) for (const domain of consoleDomains) await call(`${domain}.enable`, {});
    throw new Error(
      `${what}: not in time\n${lines.join("\n")}\n${await evaluate("document.body.innerText")}`,
    );
  };
  const setOffline = async (offline: boolean): Promise<void> => {
    const conditions = { offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 };
    // The conditions hold for what is followed.
    await call("Network.enable", {});
    await call("Network.emulateNetworkConditions", conditions);
  };
  const type = async (text: string): Promise<void> => {
    await call("Input.insertText", { text });
  };
  const press = async (key: keyof typeof keyCodes): Promise<void> => {
    const event = {
      key,
      code: key,
      windowsVirtualKeyCode: keyCodes[key],
      ...(key === "Enter" ? { text: "\r" } : {}),
    };
    await call("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await call("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  };
  const heard = (what: readonly string[]): readonly string[] => {
    if (isHeard) return what;
    throw new Error("this page is not heard: it is to be opened by `browser.heard()`");
  };
  return {
    ...{ evaluate, until, type, press, call, setOffline },
    get console() {
      return heard(lines);
    },
    get requests() {
      return heard(urls);
    },
  };
}

/**
 * True once the expression holds, false when it has not for a second. The page asks by itself,
 * since asking it takes milliseconds of three processes; and a page that goes away in between may
 * leave what was asked without an answer.
 */
const askedAgain = (expression: string): string =>
  `(async () => {
    const end = performance.now() + 1_000;
    for (let pauseMs = 10; performance.now() < end; pauseMs = Math.min(1.25 * pauseMs, 100)) {
      if (await (${expression})) return true;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    return false;
  })()`;

async function debuggingUrl(stderr: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stderr.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`Chromium did not start: ${text}`);
    text += decoder.decode(value, { stream: true });
    const found = /DevTools listening on (ws:\S+)/.exec(text);
    if (found?.[1] === undefined) continue;
    // Read on, so that a full pipe does not stop it.
    void (async () => {
      while (!(await reader.read()).done);
    })();
    return found[1];
  }
}
