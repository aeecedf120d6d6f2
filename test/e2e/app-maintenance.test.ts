/**
 * What the operator says to everybody, in headless Chromium: a text before the registration, and that the server takes
 * nothing new during maintenance, until it does again.
 */
import { expect } from "bun:test";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { personAt, welcome } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace());

appTest(
  "the operator's text stands before the registration, and maintenance is shown and ends",
  async () => {
    const [nodePort, appPort] = [freePort(), freePort()];
    const [node, app] = [nodePort, appPort].map((port) => `http://127.0.0.1:${port}`) as [
      string,
      string,
    ];
    const socket = join(suite.scratch, "admin.sock");
    const listen = [nodePort, appPort].map((port) => `127.0.0.1:${port}`);
    const nodes = await startTestNodes({
      server: {
        listen,
        app: new URL(app).host,
        admin_listen: [`unix:${socket}`],
        drain_timeout: "1s",
      },
      relay: relayAt(node),
      cache: { enabled: true, public_endpoints: [node] },
      operator: { welcome: "Welcome to the club.\nBe kind." },
    });
    const operate = async (body: object): Promise<number> => {
      const headers = { "content-type": "application/json" };
      const asked = { method: "POST", headers, body: JSON.stringify(body), unix: socket };
      return (await fetch("http://localhost/operations/maintenance", asked)).status;
    };
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
    } finally {
      await nodes.stop();
    }
  },
  120_000,
);
