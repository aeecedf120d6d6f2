/**
 * Requests from pages of other origins: preflights, and which answers a page may read.
 */
import { describe, expect, test } from "bun:test";
import { testApp, testRoute } from "../../../support/app.ts";

const echo = testRoute({
  path: "/things/:id",
  handle: (call) => ({ status: 200, json: call.params }),
});
const shared = { method: "POST", bodyBytesMax: 100, handle: () => ({ status: 200 }) } as const;
const take = testRoute({ ...shared, path: "/things" });
const relay = testRoute({ ...shared, path: "/relay", faults: "delivery" });
const post: RequestInit = { method: "POST", body: "{", headers: { "content-type": "text/plain" } };

describe("pages of other origins", () => {
  const origin = "https://app.example";
  const asked = { origin, "access-control-request-method": "POST" };

  test("a preflight of a path allows every method and header", async () => {
    const { ask } = testApp([take]);
    const response = await ask("/things", { method: "OPTIONS", headers: asked });
    expect([response.status, await response.text()]).toEqual([204, ""]);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "access-control-allow-origin": "*",
      "access-control-allow-methods": "*",
      "access-control-allow-headers": "*",
      "access-control-max-age": "7200",
    });
  });

  test("answers and refusals alike may be read, with the headers that clients need", async () => {
    const { ask } = testApp([echo, take, relay]);
    const answers = [
      ask("/things/a"),
      ask("/nothing"),
      ask("/things", { method: "PUT" }),
      ask("/relay", post),
    ];
    for (const response of await Promise.all(answers)) {
      expect(response.headers.get("access-control-allow-origin")).toBe("*");
      expect(response.headers.get("access-control-expose-headers")).toBe(
        "Date, Retry-After, X-Request-Id",
      );
    }
  });

  test("an origin that is not listed reads nothing, and caches keep origins apart", async () => {
    const { ask } = testApp([echo], { corsOrigins: [origin] });
    const allowedTo = async (from: string): Promise<unknown> => {
      const { headers } = await ask("/things/a", { headers: { origin: from } });
      return [headers.get("access-control-allow-origin"), headers.get("vary")];
    };
    expect(await allowedTo(origin)).toEqual([origin, "Origin"]);
    expect(await allowedTo("https://other.example")).toEqual([null, "Origin"]);
    const preflight = await ask("/things/a", {
      method: "OPTIONS",
      headers: { ...asked, origin: "null" },
    });
    expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("with loopback only, pages of this machine read and nobody else's", async () => {
    const { ask } = testApp([echo], { corsOrigins: "loopback" });
    const allowed = async (from: string): Promise<boolean> =>
      (await ask("/things/a", { headers: { origin: from } })).headers.get(
        "access-control-allow-origin",
      ) === from;
    for (const near of ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:8443"])
      expect([near, await allowed(near)]).toEqual([near, true]);
    for (const far of [
      "https://app.example",
      "http://localhost.example",
      "http://127.0.0.1.example",
      "null",
    ])
      expect([far, await allowed(far)]).toEqual([far, false]);
  });
});
