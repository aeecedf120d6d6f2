/**
 * Every route of the Directory has a scenario that is answered and one for each code it documents;
 * the server's refusals of bodies are tried on every route that takes one.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { directoryBodyBytesMax } from "../../../src/nodes/directory/parts.ts";
import type { Route } from "../../../src/nodes/http/route.ts";
import { directoryAreas } from "./areas.ts";
import { codesOf, nameOf, noRoute, openStage, type Scenario, type Stage } from "./stage.ts";

const scenarios: readonly Scenario[] = directoryAreas.flatMap((area) => area.scenarios);

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

const bodyRoutes = (): Route[] => stage.routes.filter((route) => route.request !== undefined);

// `test/documents.ts` compares the routes with those of docs/interface.md.
test("no route is there twice", () => {
  const names = stage.routes.map(nameOf);
  expect(names.length).toBeGreaterThan(30);
  expect(new Set(names).size).toBe(names.length);
});

test("every route has a scenario that is answered", () => {
  const answered = new Set(
    scenarios.filter(({ status }) => status < 400).map(({ route }) => route),
  );
  // A policy is read back by the scenarios that set it.
  const readBack = stage.routes.filter(
    ({ method, path }) => method === "GET" && path.startsWith("/delivery-policies/"),
  );
  for (const route of readBack) answered.add(nameOf(route));
  expect(stage.routes.map(nameOf).filter((name) => !answered.has(name))).toEqual([]);
});

test("every code that a route documents has a scenario, and every scenario a route", () => {
  const played = new Set(scenarios.map(({ route, code }) => `${route} ${code}`));
  const own = stage.routes.flatMap((route) => {
    const documented = new Set<string>(route.codes);
    // Tried on every route below.
    documented.delete("policy_denied");
    if (route.request !== undefined) documented.add("invalid_request");
    const codes = [...documented];
    return codes.map((code) => `${nameOf(route)} ${code}`);
  });
  expect(own.filter((entry) => !played.has(entry))).toEqual([]);
  const names = new Set(stage.routes.map(nameOf));
  const paths = scenarios.map(({ route }) => route).filter((route) => route !== noRoute);
  expect(paths.filter((route) => !names.has(route))).toEqual([]);
});

test("a client of a blocked network reads everything and writes nothing", async () => {
  await stage.blocks.change({
    add: [{ subject: "192.0.2.0/24", kind: "network", reason: null }],
    remove: [],
  });
  try {
    for (const route of stage.routes) {
      const body = route.request === undefined ? undefined : "{}";
      const reply = await stage.ask(route.method, route.path, body);
      const isWrite = route.method !== "GET";
      expect([nameOf(route), reply.body["code"] === "policy_denied"]).toEqual([
        nameOf(route),
        isWrite,
      ]);
      expect([nameOf(route), codesOf(route).includes("policy_denied")]).toEqual([
        nameOf(route),
        isWrite,
      ]);
    }
  } finally {
    await stage.blocks.change({ add: [], remove: ["192.0.2.0/24"] });
  }
});

test("every route that takes a body refuses anything but a JSON object in UTF-8", async () => {
  const bad = [
    "",
    "{",
    "[]",
    "null",
    '{"a":1,"a":2}',
    '{"__proto__":1}',
    `${"[".repeat(40)}${"]".repeat(40)}`,
  ];
  for (const route of bodyRoutes()) {
    for (const body of bad) {
      const reply = await stage.ask(route.method, route.path, body);
      expect({ route: nameOf(route), body, status: reply.status }).toEqual({
        route: nameOf(route),
        body,
        status: 400,
      });
      expect(codesOf(route)).toContain(reply.body["code"] as Scenario["code"] & string);
    }
  }
});

test("every route that takes a body refuses another media type and a body above its bound", async () => {
  for (const route of bodyRoutes()) {
    const type = await stage.ask(route.method, route.path, "{}", { "content-type": "text/plain" });
    expect(type.body["code"]).toBe("unsupported_media_type");
    const size = await stage.ask(route.method, route.path, " ".repeat(directoryBodyBytesMax + 1));
    expect(size.body["code"]).toBe("too_large");
  }
});
