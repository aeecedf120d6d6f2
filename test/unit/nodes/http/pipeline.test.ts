/**
 * The HTTP pipeline without a socket: routing, decoding of path values, the two renderings of
 * refusals, the mapping of failures, and what marks a request.
 */
import { describe, expect, test } from "bun:test";
import { fault } from "../../../../src/core/fault.ts";
import type { Route } from "../../../../src/nodes/http/route.ts";
import { StoreError } from "../../../../src/storage/contract.ts";
import {
  codeOf,
  connectionFrom,
  echo,
  jsonType,
  post,
  take,
  testApp,
  testRoute,
} from "../../../support/app.ts";

const relay: Route = testRoute({
  method: "POST",
  path: "/relay",
  bodyBytesMax: 100,
  faults: "delivery",
  handle: () => fault("policy_denied", "no"),
});

describe("routing", () => {
  test("a path value is percent-decoded exactly once", async () => {
    const { ask } = testApp([echo]);
    expect(await (await ask("/things/did%3Asvc%3aabc%252F")).json()).toEqual({
      id: "did:svc:abc%2F",
    });
  });

  test("an encoded slash reaches the handler and matches no other route, a NUL is refused", async () => {
    const { ask } = testApp([
      echo,
      testRoute({ path: "/things/:id/more", handle: () => ({ status: 204 }) }),
    ]);
    expect(await (await ask("/things/a%2Fmore")).json()).toEqual({ id: "a/more" });
    expect(await codeOf(await ask("/things/a%00"))).toBe("invalid_request");
  });

  test("an escape that is not UTF-8 is invalid_request", async () => {
    const { ask } = testApp([echo]);
    for (const value of ["%ff", "%", "%zz", "a%C3"])
      expect(await codeOf(await ask(`/things/${value}`))).toBe("invalid_request");
  });

  test("an unknown path is not_found as problem+json", async () => {
    const { ask } = testApp([echo]);
    const response = await ask("/nothing", { headers: { "x-request-id": "abc.1" } });
    expect(response.status).toBe(404);
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(await response.json()).toEqual({
      type: "/problems/not_found",
      title: "No such resource",
      status: 404,
      detail: "there is no such route",
      code: "not_found",
      request_id: "abc.1",
      error: "not_found",
      message: "there is no such route",
    });
  });

  test("a wrong method is 405 and names the allowed ones", async () => {
    const { ask } = testApp([echo, take]);
    const response = await ask("/things/x", { method: "DELETE" });
    expect([response.status, response.headers.get("allow"), await codeOf(response)]).toEqual([
      405,
      "GET, HEAD",
      "method_not_allowed",
    ]);
    expect((await ask("/things")).headers.get("allow")).toBe("POST");
  });

  test("a trailing slash is another path", async () => {
    const { ask } = testApp([take]);
    expect((await ask("/things/", post("{}"))).status).toBe(404);
  });

  test("everything under /relay is refused with a DeliveryResult", async () => {
    const { ask } = testApp([relay]);
    for (const [path, init, code, status] of [
      ["/relay", post("{}"), "policy_denied", 403],
      ["/relay", {}, "method_not_allowed", 405],
      ["/relay/a/b/c", {}, "not_found", 404],
      ["/relay", post("{}", {}), "unsupported_media_type", 415],
    ] as const) {
      const response = await ask(path, init);
      const body = (await response.json()) as Record<string, unknown>;
      expect(response.status).toBe(status);
      expect(body).toMatchObject({
        success: false,
        delivery_mode: "failed",
        http_status: status,
        code,
        ndr: null,
      });
      expect(Object.keys(body)).toHaveLength(10);
    }
  });
});

test("a route with reserved places has as many of its own as the others have together", async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const handle = async () => {
    await released;
    return { status: 204 };
  };
  const { ask } = testApp([
    testRoute({ path: "/acks", capacity: "reserved", handle }),
    testRoute({ path: "/work", handle }),
  ]);
  const asked = (path: string, count: number) => Array.from({ length: count }, () => ask(path));
  const statuses = async (answers: readonly Promise<Response>[]) =>
    Object.groupBy(await Promise.all(answers), ({ status }) => `${status}`);
  // One client has half of the 64 places, and half of the 64 reserved ones.
  const work = asked("/work", 40);
  const acks = asked("/acks", 32);
  const refused = asked("/acks", 2);
  expect((await statuses(refused))["503"]?.length).toBe(2);
  release();
  const [ofWork, ofAcks] = [await statuses(work), await statuses(acks)];
  expect([ofWork["204"]?.length, ofWork["503"]?.length, ofAcks["204"]?.length]).toEqual([
    32, 8, 32,
  ]);
});

test("a body whose request gets no place any more is counted no more", async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const handle = async () => {
    await released;
    return { status: 204 };
  };
  const { app, ask } = testApp([
    testRoute({ method: "POST", path: "/work", bodyBytesMax: 100, handle }),
  ]);
  // One client has half of the 64 places; all forty bodies arrive before any has one.
  const asked = Array.from({ length: 40 }, () => ask("/work", post("{}")));
  let refused = 0;
  const answered = asked.map(async (one) => {
    if ((await one).status === 503) refused++;
  });
  while (refused < 8) await Bun.sleep(1);
  expect(app.inFlight().bodyBytes).toBe(32 * 16 * 1_024);
  release();
  await Promise.all(answered);
  expect(refused).toBe(8);
  expect(app.inFlight()).toEqual({ requests: 0, bodyBytes: 0, delayedRefusals: 0 });
});

describe("failures", () => {
  const throwing = (error: unknown, parts: Partial<Route> = {}): Route =>
    testRoute({
      path: "/x",
      handle: () => {
        throw error;
      },
      ...parts,
    });

  test.each([
    [
      "an unreachable store",
      new StoreError("unavailable", "/srv/secret"),
      {},
      503,
      "service_unavailable",
    ],
    [
      "an unreachable ledger",
      new StoreError("unavailable", "no"),
      { codes: ["chain_unavailable" as const] },
      502,
      "chain_unavailable",
    ],
    ["a full store", new StoreError("full", "no"), {}, 507, "storage_full"],
    ["a closed store", new StoreError("closed", "no"), {}, 503, "shutting_down"],
    ["a corrupt store", new StoreError("corrupt", "/srv/secret"), {}, 500, "internal_error"],
    ["a bug", new TypeError("secret of 10.0.0.1"), {}, 500, "internal_error"],
  ] as const)("%s has its one code", async (_name, error, parts, status, code) => {
    const { ask } = testApp([throwing(error, parts)]);
    const response = await ask("/x");
    const text = await response.text();
    expect(response.status).toBe(status);
    expect(JSON.parse(text)).toMatchObject({ code });
    expect(text).not.toContain("secret");
  });

  test("a bug is logged with its stack and the request id", async () => {
    const { ask, lines } = testApp([throwing(new TypeError("boom"))]);
    await ask("/x", { headers: { "x-request-id": "the-id" } });
    const line = lines.find((one) => one.level === "error");
    expect(line?.fields).toMatchObject({ request_id: "the-id", route: "/x" });
    expect(String(line?.fields["error"])).toContain("pipeline.test.ts");
  });

  test("a handler that rejects later is a bug as well", async () => {
    const { ask } = testApp([
      testRoute({ path: "/x", handle: async () => Promise.reject(new Error("late")) }),
    ]);
    expect((await ask("/x")).status).toBe(500);
  });
});

describe("what marks a request", () => {
  test("a request id of the right form is kept, any other replaced", async () => {
    const { ask } = testApp([take]);
    const answered = async (id: string): Promise<string | null> =>
      (
        await ask("/things", { ...post("{}"), headers: { ...jsonType, "x-request-id": id } })
      ).headers.get("x-request-id");
    expect(await answered("A.b_c-1")).toBe("A.b_c-1");
    for (const bad of ["a b", "ü", "x".repeat(65), "a/b"]) {
      expect(await answered(bad).catch(() => "refused by the client")).not.toBe(bad);
    }
  });

  test("a request's line holds the network of the client and no more of its address", async () => {
    const { ask, lines } = testApp([echo]);
    await ask("/things/very-private");
    expect(lines[0]?.fields).toMatchObject({
      client: "192.0.2.0/24",
      method: "GET",
      route: "/things/:id",
      status: 200,
    });
    expect(JSON.stringify(lines)).not.toContain("very-private");
  });
});

describe("requests of one turn of the event loop", () => {
  const requestTo = (path: string): Request => new Request(`http://waypost.invalid${path}`);

  test("take each step one after the other", async () => {
    const steps: string[] = [];
    const route = (name: string): Route =>
      testRoute({
        path: `/${name}`,
        handle: async () => {
          steps.push(`${name} begins`);
          await null;
          steps.push(`${name} ends`);
          return { status: 204 };
        },
      });
    const { app } = testApp([route("first"), route("second")]);
    const connection = connectionFrom(null);
    const answered = Object.entries(app.paths).map(([path, answer]) =>
      answer(requestTo(path), connection),
    );
    expect(steps).toEqual([]);
    for (const response of await Promise.all(answered)) expect(response?.status).toBe(204);
    expect(steps).toEqual(["first begins", "second begins", "first ends", "second ends"]);
  });

  test("count for the client that sent them, although it disconnects meanwhile", async () => {
    let isConnected = true;
    const clients: string[] = [];
    const handle: Route["handle"] = (call) => {
      clients.push(call.client);
      return { status: 204 };
    };
    const { app } = testApp([testRoute({ path: "/once", handle })]);
    const connection = {
      ...connectionFrom(null),
      requestIP: () => (isConnected ? { address: "192.0.2.9" } : null),
    };
    const answered = Object.values(app.paths).map((answer) =>
      answer(requestTo("/once"), connection),
    );
    isConnected = false;
    await Promise.all(answered);
    expect(clients).toEqual(["192.0.2.9"]);
  });
});
