/**
 * The chat app in Firefox ESR, driven by WebDriver BiDi, by command: `bun test/e2e/firefox.ts`. Two
 * people talk through a restart, a loss of network, a reload and a second tab; a file goes on after
 * a reload and is saved as it was; a second device is linked; closed and opened without a server
 * all is there; and no other host is asked.
 */
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import {
  isArrived,
  linkOf,
  linkTo,
  openRow,
  personAt,
  savedFile,
  type TypedPage,
  welcome,
} from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { openNetwork } from "./network.ts";

const path = Bun.which("firefox-esr") ?? Bun.which("firefox");
if (path === null) throw new Error("there is no Firefox on this machine");
/** `WAYPOST_TEST_LOSS_MS`, `WAYPOST_TEST_FILE_MB`: as in `app.test.ts`. */
const lossMs = Number(process.env["WAYPOST_TEST_LOSS_MS"] ?? 5_000);
const fileBytes = Number(process.env["WAYPOST_TEST_FILE_MB"] ?? 5) * 1_000_000;
const publicPort = freePort();
const place = appPlace({ isKept: true, publicPort });
const { app, node, scratch } = place;
const network = openNetwork(publicPort, place.nodePort);
let nodes = await place.start();

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
  const profile = mkdtempSync(join(scratch, "profile-"));
  const flags = [
    "--headless",
    "--no-remote",
    "--remote-debugging-port=0",
    "--profile",
    profile,
    "about:blank",
  ];
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
    else if (reply.method === "network.beforeRequestSent")
      requests.push(reply.params?.request?.url ?? "");
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

type FirefoxPage = TypedPage & {
  readonly profile: string;
  readonly choose: (selector: string, path: string) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** A tab, in a profile of its own unless one is named. */
async function openPage({ call }: Firefox, url: string, given?: string): Promise<FirefoxPage> {
  const profile = given ?? String((await call("browser.createUserContext", {}))["userContext"]);
  const { context } = await call("browsingContext.create", { type: "tab", userContext: profile });
  await call("browsingContext.navigate", { context, url, wait: "complete" });
  const evaluate = async (expression: string): Promise<unknown> => {
    const asked = `Promise.resolve((${expression.replace(/;\s*$/, "")})).then((value) => JSON.stringify(value))`;
    const answer = await call("script.evaluate", {
      expression: asked,
      target: { context },
      awaitPromise: true,
    });
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
    await call("input.performActions", {
      context,
      actions: [{ type: "key", id: "keyboard", actions }],
    });
  };
  const choose = async (selector: string, file: string): Promise<void> => {
    const expression = `document.querySelector(${JSON.stringify(selector)})`;
    await until(expression, selector);
    const { result } = await call("script.evaluate", {
      expression,
      target: { context },
      awaitPromise: false,
    });
    const { sharedId } = result as { sharedId: string };
    await call("input.setFiles", { context, element: { sharedId }, files: [file] });
  };
  const close = async () => void (await call("browsingContext.close", { context }));
  return { evaluate, until, type, press: (key) => type(keys[key]), profile, choose, close };
}

const done = (what: string) => console.log(`${(performance.now() / 1000).toFixed(1)} s  ${what}`);

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
  await alice.page.until(isArrived("hello Bob"), "the receipt", 60_000);
  done("two people meet by a link and write to each other");

  await nodes.stop();
  await alice.say("said while the nodes are away");
  nodes = await place.start();
  await bob.sees("said while the nodes are away");
  network.lose();
  await alice.say("said while the network is lost");
  await bob.say("said from the other side");
  await Bun.sleep(lossMs);
  network.restore();
  await Promise.all([
    bob.sees("said while the network is lost"),
    alice.sees("said from the other side"),
  ]);
  done("a restart of the nodes and a loss of network lose nothing");

  for (const person of [alice, bob]) await person.page.evaluate("location.reload()");
  await Promise.all([alice.sees("hello Bob"), bob.sees("hello Alice")]);
  const tab = personAt(
    await openPage(firefox, `${app}/${await bob.page.evaluate("location.hash")}`, bob.page.profile),
  );
  await tab.sees("hello Bob");
  await tab.say("from the second tab");
  await Promise.all([alice.sees("from the second tab"), bob.sees("from the second tab")]);
  await alice.say("for both tabs");
  await Promise.all([bob.sees("for both tabs"), tab.sees("for both tabs")]);
  await tab.page.close();
  done("a reload and a second tab");

  const bytes = crypto.getRandomValues(new Uint8Array(65_521));
  const file = new Uint8Array(fileBytes).map((_, i) => bytes[i % bytes.length] ?? 0);
  await Bun.write(join(scratch, "holiday.raw"), file);
  await bob.page.choose(".composer input[type=file]", join(scratch, "holiday.raw"));
  await bob.press("Send");
  await bob.sees("holiday.raw");
  await bob.page.evaluate("location.reload()");
  await alice.sees("holiday.raw", 240_000);
  const saved = mkdtempSync(join(scratch, "saved-"));
  await firefox.call("browser.setDownloadBehavior", {
    downloadBehavior: { type: "allowed", destinationFolder: saved },
    userContexts: [alice.page.profile],
  });
  await alice.click(".file");
  if (Bun.hash(await savedFile(saved, "holiday.raw", fileBytes)) !== Bun.hash(file))
    throw new Error("another file");
  done(`a file of ${fileBytes / 1e6} MB goes on after a reload and is saved as it was`);

  const second = personAt(await openPage(firefox, app));
  await linkTo(second, alice);
  await openRow(second);
  await second.sees("hello Bob");
  await second.say("from the second device");
  await Promise.all([bob.sees("from the second device"), alice.sees("from the second device")]);
  done("a second device is linked, has the conversation and speaks as the same person");

  const isActive =
    "navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')";
  await alice.page.until(isActive, "the worker");
  const before = await alice.messages();
  const hash = await alice.page.evaluate("location.hash");
  await alice.page.close();
  await nodes.stop();
  const again = personAt(await openPage(firefox, `${app}/${hash}`, alice.page.profile));
  await again.sees("hello Alice");
  if (JSON.stringify(await again.messages()) !== JSON.stringify(before))
    throw new Error("other messages");
  await again.say("written offline");
  await again.sees("written offline");
  nodes = await place.start();
  await bob.sees("written offline");
  done("closed and opened without a server all is there");

  const hosts = new Set(
    firefox.requests.filter((url) => /^(http|ws)/.test(url)).map((url) => new URL(url).host),
  );
  const others = [...hosts].filter(
    (host) => host !== new URL(app).host && host !== new URL(node).host,
  );
  if (others.length > 0) throw new Error(`asked other hosts: ${others}`);
  done(`${firefox.requests.length} requests, none to another host`);
} finally {
  await firefox.close();
  await nodes.stop();
  network.close();
  place.remove();
}
process.exit();
