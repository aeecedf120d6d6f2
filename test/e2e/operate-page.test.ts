/**
 * The operator's page in headless Chromium, over a port that leads to the Unix socket as `ssh -L`
 * does: it does what the commands do, by keyboard alone and on the width of a phone, and a page of
 * another origin does nothing through it.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { axeFindings } from "./app-page.ts";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";

if (chromiumPath === null)
  console.log("SKIPPED: the operator's page in Chromium, which is not on this machine");

describe.skipIf(chromiumPath === null)("the operator's page", () => {
  const folder = scratchFolder();
  const socket = join(folder.path, "admin.sock");
  const own = `http://127.0.0.1:${freePort()}`;
  const stranger = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response("<p>a page", { headers: { "content-type": "text/html" } }),
  });
  const input: ConfigInput = {
    server: {
      listen: [own.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
    },
    directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: false },
    relay: relayAt(own),
    cache: { enabled: true, public_endpoints: [own] },
    tiers: { friends: { recipient_rate: 1 } },
  };
  let nodes: TestNodes;
  let browser: Browser;
  let page: Page;
  let alice: Waypost;
  let port: ReturnType<typeof forward>;

  beforeAll(async () => {
    nodes = await startTestNodes(input);
    port = forward(socket);
    [alice, browser] = await Promise.all([
      Waypost.open({ url: own, keys: memoryKeys(), alias: "alice", waiting }),
      startChromium({ isLight: true }),
    ]);
    page = await browser.heard().open(`http://localhost:${port.port}/status`);
    await page.until('document.getElementById("state").textContent === "ready"', "the state");
  }, 60_000);
  afterAll(async () => {
    await alice.close();
    await browser.close();
    port.stop(true);
    await stranger.stop(true);
    await nodes.stop();
    folder.remove();
  });

  const operate = async (path: string): Promise<Record<string, never[]>> =>
    (await (await fetch(`http://localhost/operations/${path}`, { unix: socket })).json()) as Record<
      string,
      never[]
    >;
  const blockedSubjects = async () =>
    ((await operate("blocks"))["blocks"] ?? []).map(({ subject }) => subject as string);
  const textOf = (id: string) => page.evaluate(`document.getElementById("${id}").innerText`);
  /** By Tab alone, to what has this text. */
  const tabTo = async (text: string) => {
    const isThere = `document.activeElement.textContent.trim() === ${JSON.stringify(text)}`;
    for (let i = 0; i < 60 && !(await page.evaluate(isThere)); i++) await page.press("Tab");
    expect(await page.evaluate("document.activeElement.textContent.trim()")).toBe(text);
  };
  const section = async (name: string, shown: string) => {
    await page.evaluate(`location.hash = "#${name}"`);
    await page.until(
      `document.getElementById("${name}").innerText.includes(${JSON.stringify(shown)})`,
      name,
    );
  };

  test("lists members, and blocks one by keyboard alone", async () => {
    await page.evaluate("document.body.focus()");
    await tabTo("Members");
    await page.press("Enter");
    await page.until('document.getElementById("member-rows").innerText.includes("alice")', "alice");
    expect(await textOf("member-rows")).toContain(alice.did);
    await tabTo("Block");
    await page.press("Enter");
    await page.until('document.getElementById("sure").open', "the question");
    expect(await textOf("sure-text")).toBe(`Block ${alice.did}?`);
    // Cancel has the focus: a hasty Enter changes nothing.
    await page.press("Enter");
    await page.until('!document.getElementById("sure").open', "the end of the question");
    expect(await blockedSubjects()).toEqual([]);
    await tabTo("Block");
    await page.press("Enter");
    await page.until('document.getElementById("sure").open', "the question again");
    await page.evaluate('document.getElementById("sure-yes").focus()');
    await page.press("Enter");
    await page.until('document.getElementById("said").textContent === "Blocked."', "the block");
    expect(await blockedSubjects()).toEqual([alice.did]);
  });

  test("exports members as the command does", async () => {
    await section("members", alice.did);
    await page.evaluate(`{
      const make = URL.createObjectURL;
      URL.createObjectURL = (blob) => {
        blob.text().then((text) => (globalThis.exported = text));
        return make.call(URL, blob);
      };
    }`);
    await tabTo("Export as CSV");
    await page.press("Enter");
    await page.until("globalThis.exported !== undefined", "the table");
    const command = await run(["members", "export", "--socket", socket], { cwd: folder.path });
    expect(await page.evaluate("globalThis.exported")).toBe(command.stdout);
  });

  test("gives a member a tier, and takes none that the configuration lacks", async () => {
    await section("members", alice.did);
    const setTier = async (tier: string) => {
      await tabTo("Tier…");
      await page.press("Enter");
      await page.until('document.getElementById("sure").open', "the question");
      await page.type(tier);
      await page.press("Enter");
    };
    await setTier("friends");
    await page.until(
      'document.getElementById("member-rows").innerText.includes("tier friends")',
      "the tier",
    );
    await setTier("strangers");
    await page.until('document.getElementById("said").className === "bad"', "the refusal");
    expect(await textOf("member-rows")).toContain("tier friends");
  });

  test("shows the block, and ends it", async () => {
    await section("blocks", alice.did);
    await tabTo("Unblock");
    await page.press("Enter");
    await page.until('document.getElementById("said").textContent === "Unblocked."', "the end");
    expect(await blockedSubjects()).toEqual([]);
  });

  test("refuses with the node's words", async () => {
    await page.evaluate('document.querySelector("#add-block input").focus()');
    await page.type("no DID at all");
    await page.press("Enter");
    await page.until('document.getElementById("sure").open', "the question");
    await page.evaluate('document.getElementById("sure-yes").click()');
    await page.until('document.getElementById("said").className === "bad"', "the refusal");
    expect(await blockedSubjects()).toEqual([]);
  });

  test("makes an invitation, shows its code once, and revokes it", async () => {
    await section("invitations", "How many");
    await page.evaluate('document.querySelector("#make-invitation [name=note]").focus()');
    await page.type("the class of 26");
    await page.press("Enter");
    await page.until('document.getElementById("made-invitation").textContent !== ""', "the code");
    expect(await textOf("made-invitation")).toContain("not shown again");
    await page.until(
      'document.getElementById("invitation-rows").innerText.includes("the class of 26")',
      "its row",
    );
    await tabTo("Revoke");
    await page.press("Enter");
    await page.until('document.getElementById("sure").open', "the question");
    await page.evaluate('document.getElementById("sure-yes").click()');
    await page.until('document.getElementById("said").textContent === "Revoked."', "the end");
    const [made] = (await operate("invitations"))["invitations"] ?? [];
    expect(made).toMatchObject({ note: "the class of 26", revoked_at: expect.any(String) });
  });

  test("shows storage, explains a delivery and reloads", async () => {
    await section("storage", "Messages waiting");
    await section("delivery", "Reload");
    await page.evaluate('document.querySelector("#explain [name=recipient]").focus()');
    await page.type(alice.did);
    await page.press("Enter");
    await page.until('document.getElementById("explained").innerText !== ""', "the steps");
    expect(await textOf("explained")).toContain("This node takes envelopes.");
    await tabTo("Reload the file");
    await page.press("Enter");
    await page.until(
      'document.getElementById("said").className === "bad"',
      "that no file is there",
    );
    expect(await textOf("said")).toContain("there is no file");
  });

  /** What `GET /node` tells everybody. */
  const said = async (field: "maintenance" | "notice") =>
    ((await (await fetch(`${own}/node`)).json()) as Record<string, unknown>)[field];
  const answered = (text: string) =>
    page.until(`document.getElementById("said").textContent === ${JSON.stringify(text)}`, text);
  const agree = async () => {
    await page.until('document.getElementById("sure").open', "the question");
    // Cancel has the focus; the other button is next.
    await page.press("Tab");
    await page.press("Enter");
  };

  test("begins maintenance with a message and ends it, by keyboard alone", async () => {
    await section("maintenance", "Writes are taken.");
    await page.evaluate('document.querySelector("#begin-maintenance [name=message]").focus()');
    await page.type("back at noon");
    await page.press("Enter");
    await agree();
    await answered("Writes are refused.");
    expect(await textOf("maintenance-state")).toContain("back at noon");
    expect(await said("maintenance")).toMatchObject({ message: "back at noon" });
    await tabTo("Take writes again");
    await page.press("Enter");
    await answered("Writes are taken again.");
    expect(await textOf("maintenance-state")).toBe("Writes are taken.");
    expect(await said("maintenance")).toBeNull();
    expect(await page.evaluate("document.activeElement.name")).toBe("message");
  });

  test("publishes a notice that was signed elsewhere, and removes it, by keyboard alone", async () => {
    const cwd = folder.path;
    const words = ["did", "create", "--name", "operator", "--url", own, "--json"];
    const { did } = JSON.parse((await run(words, { cwd })).stdout) as { did: string };
    const next = checkConfig({
      stores: { main: { plugin: "memory", block_time_ms: 50 } },
      ...input,
      operator: { did },
    });
    if (!next.ok) throw new Error(JSON.stringify(next.problems));
    await nodes.reload(next.config);
    const text = "We move on Sunday.";
    const signing = ["notice", "sign", text, "--as", "operator", "--url", own];
    const signed = (await run(signing, { cwd })).stdout;
    await section("notices", "There is no notice.");
    const publish = async (pasted: string) => {
      await page.evaluate('document.querySelector("#publish-notice [name=signed]").focus()');
      await page.evaluate("document.activeElement.select()");
      await page.type(pasted);
      await tabTo("Publish");
      await page.press("Enter");
    };
    await publish("We move on Sunday.");
    await answered("This is no output of waypost notice sign.");
    await publish(signed.replace("Sunday", "Monday"));
    await agree();
    await page.until('document.getElementById("said").className === "bad"', "the refusal");
    expect(await said("notice")).toBeNull();
    await publish(signed);
    await agree();
    await answered("Everybody is shown the notice.");
    expect(await textOf("notice-rows")).toContain(text);
    expect(await said("notice")).toEqual(JSON.parse(signed));
    await tabTo("Remove");
    await page.press("Enter");
    await agree();
    await answered("The notice was removed.");
    expect(await textOf("notices")).toContain("There is no notice.");
    expect(await said("notice")).toBeNull();
  }, 60_000);

  test("shows a user only the sections that their rights hold, also by address", async () => {
    const limited = await browser.open("about:blank");
    await limited.call("Page.addScriptToEvaluateOnNewDocument", {
      source: `const real = fetch;
        globalThis.fetch = (path, options) => path === "/operations/rights"
          ? Promise.resolve(Response.json({ user: "mia", actions: ["members.list", "notices.publish"] }))
          : real(path, options);`,
    });
    const url = `http://localhost:${port.port}/status#maintenance`;
    await limited.call("Page.navigate", { url });
    await limited.until(
      'document.getElementById("sections")?.innerText.includes("mia")',
      "the sections",
    );
    const links = 'document.getElementById("sections").innerText';
    expect(await limited.evaluate(links)).toContain("Notices");
    expect(await limited.evaluate(links)).not.toContain("Maintenance");
    await limited.until('!document.getElementById("figures").hidden', "the figures");
    expect(await limited.evaluate('document.getElementById("maintenance").hidden')).toBe(true);
  });

  test("offers no form to who may not use it", async () => {
    const limited = await browser.open("about:blank");
    await limited.call("Page.addScriptToEvaluateOnNewDocument", {
      source: `const real = fetch;
        globalThis.fetch = (path, options) => path === "/operations/rights"
          ? Promise.resolve(Response.json({ user: "mia", actions: ["members.explain", "blocks.list"] }))
          : real(path, options);`,
    });
    await limited.call("Page.navigate", { url: `http://localhost:${port.port}/status#delivery` });
    await limited.until('!document.getElementById("delivery").hidden', "the section");
    const text = 'document.getElementById("delivery").innerText';
    expect(await limited.evaluate(text)).toContain("Explain");
    expect(await limited.evaluate(text)).not.toContain("Reload");
    await limited.evaluate('location.hash = "#blocks"');
    await limited.until('!document.getElementById("blocks").hidden', "the blocks");
    const isShown = 'document.getElementById("add-block").getClientRects().length > 0';
    expect(await limited.evaluate(isShown)).toBe(false);
  });

  test("shows who did what, as the command does", async () => {
    const refused = { add: [{ subject: "no DID", sender_only: false, reason: null }], remove: [] };
    for (let i = 0; i < 2; i++)
      await fetch("http://localhost/operations/blocks", {
        unix: socket,
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(refused),
      });
    await section("audit", "refused: invalid_request");
    expect(await textOf("audit-rows")).toMatch(/refused: invalid_request, \d times until 20\d\d-/);
    expect(await textOf("audit-rows")).toContain(`+ ${alice.did}`);
    const command = await run(["audit", "--socket", socket], { cwd: folder.path });
    const shown = (await page.evaluate(
      '[...document.querySelectorAll("#audit-rows tr")].map(({ cells }) => [cells[0].textContent, cells[2].textContent])',
    )) as [string, string][];
    const told = command.stdout.trim().split("\n");
    const times = told.map((line) => line.split(/\s+/));
    // The looks at the audit itself are counted meanwhile.
    const others = ([, action]: readonly (string | undefined)[]) => action !== "audit.list";
    const expected = times.map(([at, , action]) => [at, action]).filter(others);
    expect(shown.filter(others)).toEqual(expected as [string, string][]);
    expect(expected.length).toBeGreaterThan(5);
  });

  test("names sizes in the units of the settings", async () => {
    await section("storage", "Bytes waiting");
    const text = String(await textOf("storage-rows"));
    expect(text).toMatch(/Bytes waiting[^\n]*\s[\d.]+ (bytes|[KMGT]iB)/);
    expect(text).not.toMatch(/[\d.][KMBT]?B\b/);
  });

  const sectionsShown = () =>
    [
      ["figures", "Checks"],
      ["members", alice.did],
      ["invitations", "the class of 26"],
      ["reports", "waypost reports close"],
      ["blocks", "DID"],
      ["storage", "Messages"],
      ["delivery", "Reload"],
      ["maintenance", "Writes are taken."],
      ["notices", "waypost notice sign"],
      ["audit", "blocks.change"],
    ] as const;

  test("fits the width of a phone in every section, with its form", async () => {
    const metrics = { width: 320, height: 568, deviceScaleFactor: 2, mobile: true };
    await page.call("Emulation.setDeviceMetricsOverride", metrics);
    for (const [name, shown] of sectionsShown()) {
      await section(name, shown);
      // `innerWidth` would grow with what is too wide.
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect([name, width]).toEqual([name, 320]);
    }
    await page.call("Emulation.clearDeviceMetricsOverride", {});
  });

  test("has nothing that axe finds serious in any section", async () => {
    for (const [name, shown] of sectionsShown()) {
      await section(name, shown);
      expect(await axeFindings({ page }, name)).toEqual([]);
    }
  }, 240_000);

  test("a page of another origin reads no token and changes nothing", async () => {
    const other = await browser.open(`http://localhost:${stranger.port}/`);
    await other.until('document.body.innerText.includes("a page")', "the page");
    const base = `http://localhost:${port.port}`;
    const body = JSON.stringify({
      add: [{ subject: alice.did, sender_only: false, reason: null }],
      remove: [],
    });
    const outcomes = await other.evaluate(`(async () => {
      const outcome = (work) => work.then((reply) => reply.type + reply.status, (error) => error.name);
      const body = ${JSON.stringify(body)};
      const to = "${base}/operations/blocks";
      return [
        await outcome(fetch("${base}/status")),
        await outcome(fetch(to, { method: "POST", body, headers: { "content-type": "application/json" } })),
        await outcome(fetch(to, { method: "POST", body, mode: "no-cors" })),
      ];
    })()`);
    expect(outcomes).toEqual(["TypeError", "TypeError", "opaque0"]);
    expect(await blockedSubjects()).toEqual([]);
  });

  test("breaks no rule of its own policy, and asks no other host", () => {
    // The browser notes those that the node has refused.
    const refusal =
      /"level":"error","text":"Failed to load resource: [^"]*40[034] .*\/operations\/(blocks|tier|notice)"/;
    expect(page.console.filter((line) => !refusal.test(line))).toEqual([]);
    const origins = page.requests.map((url) => new URL(url).origin);
    expect(new Set(origins)).toEqual(new Set([`http://localhost:${port.port}`]));
  });
});

/** A port that leads to a Unix socket. */
function forward(path: string) {
  type Ends = { to: Promise<Bun.Socket<undefined>> };
  return Bun.listen<Ends>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open(from) {
        const to = Bun.connect<undefined>({
          unix: path,
          socket: {
            data: (_, bytes) => void from.write(bytes),
            close: () => void from.end(),
          },
        });
        from.data = { to };
      },
      data: async (from, bytes) => void (await from.data.to).write(bytes),
      close: async (from) => void (await from.data.to).end(),
    },
  });
}
