/**
 * What the operator says to everybody, in headless Chromium: a text before the registration, that
 * the server takes nothing new during maintenance, and a signed notice until it was seen.
 */
import { expect } from "bun:test";
import { join } from "node:path";
import { checkConfig } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { freePort, run } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { personAt, welcome } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace());

appTest(
  "the operator's text stands before the registration; maintenance is shown, and a notice until it was seen",
  async () => {
    const [nodePort, appPort] = [freePort(), freePort()];
    const [node, app] = [nodePort, appPort].map((port) => `http://127.0.0.1:${port}`) as [
      string,
      string,
    ];
    const socket = join(suite.scratch, "admin.sock");
    const listen = [nodePort, appPort].map((port) => `127.0.0.1:${port}`);
    const input: ConfigInput = {
      server: {
        listen,
        app: new URL(app).host,
        admin_listen: [`unix:${socket}`],
        drain_timeout: "1s",
      },
      stores: { main: { plugin: "memory", block_time_ms: 50 } },
      directory: { enabled: true, rate_limit_loopback: false },
      // An operator may end the address with a slash.
      relay: relayAt(`${node}/`),
      cache: { enabled: true, public_endpoints: [node] },
      operator: { welcome: "Welcome to the club.\nBe kind." },
    };
    const nodes = await startTestNodes(input);
    const configured = (operator: ConfigInput["operator"]): Config => {
      const checked = checkConfig({ ...input, operator });
      if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
      return checked.config;
    };
    const operate = async (body: object, action = "maintenance"): Promise<number> => {
      const headers = { "content-type": "application/json" };
      const asked = { method: "POST", headers, body: JSON.stringify(body), unix: socket };
      return (await fetch(`http://localhost/operations/${action}`, asked)).status;
    };
    const waypost = async (...words: string[]) =>
      (await run([...words, "--url", node, "--json"], { cwd: suite.scratch })).stdout;
    try {
      const page = await suite.browser.open(app, await suite.browser.profile(suite.scratch));
      const ada = personAt(page);
      await page.until(
        "document.querySelector('.welcome .said')?.textContent.includes('Be kind.')",
        "the operator's text",
      );
      await welcome(ada, "Ada");
      expect(await operate({ on: true, message: "New disks until six." })).toBe(200);
      const look = "document.dispatchEvent(new Event('visibilitychange'))";
      await page.evaluate(look);
      const banner = `[...document.querySelectorAll('.banner')].some((one) =>
        one.textContent.includes('New disks until six.'))`;
      await page.until(banner, "that there is maintenance");
      expect(await operate({ on: false, message: null })).toBe(200);
      await page.evaluate(look);
      await page.until(`!(${banner})`, "that it is over");

      const { did } = JSON.parse(await waypost("did", "create", "--name", "operator"));
      await nodes.reload(configured({ did }));
      const signed = await waypost("notice", "sign", "We move on Sunday.", "--as", "operator");
      expect(await operate({ notice: JSON.parse(signed) }, "notice")).toBe(200);
      await page.evaluate(look);
      const notice = `[...document.querySelectorAll('.banner')].some((one) =>
        one.textContent.includes('We move on Sunday.'))`;
      await page.until(notice, "the notice");
      await ada.press("Seen");
      await page.until(`!(${notice})`, "that it was put away");
      await page.evaluate("(globalThis.isFormer = true, location.reload(), true)").catch(() => {});
      await page.until(
        "globalThis.isFormer === undefined && document.querySelector('.people')",
        "the app again",
      );
      await page.evaluate(look);
      expect(await page.evaluate(notice)).toBe(false);
    } finally {
      await nodes.stop();
    }
  },
  120_000,
);
