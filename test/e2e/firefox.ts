/**
 * The chat app in Firefox ESR, driven by WebDriver BiDi, by command: `bun test/e2e/firefox.ts`. Two people write to each
 * other, reload, and ask no other host.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import { startTestNodes } from "../support/nodes.ts";
import { linkOf, openRow, personAt, type TypedPage, welcome } from "./app-page.ts";

const path = Bun.which("firefox-esr") ?? Bun.which("firefox");
if (path === null) throw new Error("there is no Firefox on this machine");
const scratch = mkdtempSync(join(tmpdir(), "waypost-firefox-"));
const [nodePort, appPort] = [freePort(), freePort()];
const [node, app] = [`http://127.0.0.1:${nodePort}`, `http://127.0.0.1:${appPort}`];
const nodes = await startTestNodes({
  server: { listen: [`127.0.0.1:${nodePort}`, `127.0.0.1:${appPort}`], app: `127.0.0.1:${appPort}` },
  relay: { enabled: true, public_endpoints: [node], allow_http: true, allow_private: ["127.0.0.0/8"] },
  cache: { enabled: true, public_endpoints: [node] },
});

type Reply = {
  readonly id?: number;
  readonly type: string;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly message?: string;
  readonly params?: { readonly request?: { readonly url: string } };
};

/** A session of Firefox, and what its pages have asked. */
async function startFirefox(firefox: string) {
  const flags = ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile", scratch, "about:blank"];
  const child = Bun.spawn([firefox, ...flags], {
    stdout: "ignore",
    stderr: "pipe",
    env: { ...process.env, HOME: scratch },
  });
  const socket = new WebSocket(`${await addressIn(child.stderr)}/session`);
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  const waiting = new Map<number, (reply: Reply) => void>();
  const requests: string[] = [];
  socket.addEventListener("message", ({ data }) => {
    const reply = JSON.parse(String(data)) as Reply;
    if (reply.id !== undefined) waiting.get(reply.id)?.(reply);
    else if (reply.method === "network.beforeRequestSent") requests.push(reply.params?.request?.url ?? "");
  });
  let count = 0;
  const call = async (method: string, params: object): Promise<Record<string, unknown>> => {
    const id = ++count;
    const answered = new Promise<Reply>((resolve) => waiting.set(id, resolve));
    socket.send(JSON.stringify({ id, method, params }));
    const { type, result, message } = await answered;
    waiting.delete(id);
    if (type === "error") throw new Error(`${method}: ${message}`);
    return result ?? {};
  };
  await call("session.new", { capabilities: {} });
  await call("session.subscribe", { events: ["network.beforeRequestSent"] });
  const close = async () => {
    await call("browser.close", {}).catch(() => undefined);
    child.kill();
    await child.exited;
  };
  return { call, requests, close };
}

async function addressIn(stderr: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  const reader = stderr.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`Firefox did not start: ${text}`);
    text += decoder.decode(value, { stream: true });
    const found = /WebDriver BiDi listening on (ws:\S+)/.exec(text)?.[1];
    if (found === undefined) continue;
    // Read on, so that a full pipe does not stop it.
    void (async () => {
      while (!(await reader.read()).done);
    })();
    return found;
  }
}

type Firefox = Awaited<ReturnType<typeof startFirefox>>;

const keys = { Enter: "\ue007", Escape: "\ue00c", Tab: "\ue004" } as const;

/** A tab in a profile of its own. */
async function openPage({ call }: Firefox, url: string): Promise<TypedPage> {
  const { userContext } = await call("browser.createUserContext", {});
  const { context } = await call("browsingContext.create", { type: "tab", userContext });
  await call("browsingContext.navigate", { context, url, wait: "complete" });
  const evaluate = async (expression: string): Promise<unknown> => {
    const asked = `Promise.resolve((${expression.replace(/;\s*$/, "")})).then((value) => JSON.stringify(value))`;
    const answer = await call("script.evaluate", { expression: asked, target: { context }, awaitPromise: true });
    const { type, result } = answer as { type: string; result?: { value?: string } };
    if (type !== "success") throw new Error(`${expression}: ${JSON.stringify(answer)}`);
    return result?.value === undefined ? undefined : JSON.parse(result.value);
  };
  const until = async (expression: string, what: string, timeoutMs = 30_000): Promise<void> => {
    for (const end = Date.now() + timeoutMs; Date.now() < end; await Bun.sleep(100))
      if (await evaluate(`!!(${expression})`).catch(() => false)) return;
    throw new Error(`${what}: not in time\n${await evaluate("document.body.innerText")}`);
  };
  const type = async (text: string): Promise<void> => {
    const actions = [...text].flatMap((value) => [
      { type: "keyDown", value },
      { type: "keyUp", value },
    ]);
    await call("browsingContext.activate", { context });
    await call("input.performActions", { context, actions: [{ type: "key", id: "keyboard", actions }] });
  };
  return { evaluate, until, type, press: (key) => type(keys[key]) };
}

const firefox = await startFirefox(path);
try {
  const alice = personAt(await openPage(firefox, app));
  await welcome(alice, "Alice");
  const bob = personAt(await openPage(firefox, await linkOf(alice)));
  await welcome(bob, "Bob");
  await bob.press("Open conversation");
  await bob.say("hello Alice");
  await openRow(alice);
  await alice.fill(".request input", "Bob");
  await alice.press("Accept");
  await alice.say("hello Bob");
  await bob.sees("hello Bob");
  for (const person of [alice, bob]) await person.page.evaluate("location.reload()");
  await Promise.all([alice.sees("hello Bob"), bob.sees("hello Alice")]);
  await bob.say("after the reload");
  await alice.sees("after the reload");
  const hosts = new Set(firefox.requests.filter((url) => /^(http|ws)/.test(url)).map((url) => new URL(url).host));
  const others = [...hosts].filter((host) => host !== new URL(app).host && host !== new URL(node).host);
  if (others.length > 0) throw new Error(`asked other hosts: ${others}`);
  console.log(
    `Firefox: two people wrote to each other and reloaded; ${firefox.requests.length} requests, no other host`,
  );
} finally {
  await firefox.close();
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true, maxRetries: 5 });
}
process.exit();
