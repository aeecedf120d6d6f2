/** The pace of registrations and changes: a burst and a rate, and the bytes of a day. */
import { afterEach, describe, expect, test } from "bun:test";
import type { DirectorySettings } from "../../../src/nodes/directory/parts.ts";
import {
  type Json,
  registerBodyOf,
  type TestDirectory,
  testDirectory,
} from "../../support/directory.ts";
import { identityOf } from "../../support/identity.ts";
import { startTestNodes, type TestNodes } from "../../support/nodes.ts";

let directory: TestDirectory | null = null;
let nodes: TestNodes | null = null;
afterEach(async () => {
  await directory?.close();
  await nodes?.stop();
  directory = null;
  nodes = null;
});

async function open(settings: Partial<DirectorySettings>): Promise<TestDirectory> {
  directory = await testDirectory({
    options: { registration_burst: 2, registration_rate: 1, ...settings },
  });
  return directory;
}

let count = 0;
const register = (stage: TestDirectory, headers: Record<string, string> = {}, body?: Json) =>
  stage.ask(
    "POST",
    "/register-did",
    body ?? registerBodyOf(identityOf(`pace ${count++}`), stage.nowMs()),
    headers,
  );

describe("a network that changes many DIDs", () => {
  test("is refused beyond its burst, before the body is read, and reads all the same", async () => {
    const stage = await open({ change_burst: 2, change_rate: 1 });
    const { did } = identityOf("changes");
    const change = () => stage.ask("PUT", `/dids/${did}/alias`, { nonsense: true });
    expect([(await change()).status, (await change()).status]).toEqual([400, 400]);
    const refused = await change();
    expect([refused.status, refused.body["code"], refused.headers.get("retry-after")]).toEqual([
      429,
      "rate_limited",
      "1",
    ]);
    expect((await stage.ask("GET", `/resolve/${did}`)).status).toBe(404);
    expect((await register(stage)).status).toBe(202);
    stage.advance(1_000);
    expect([(await change()).status, (await change()).status]).toEqual([400, 429]);
  });

  test("has a rate of its own, other than that of registrations", async () => {
    const stage = await open({
      change_burst: 1,
      change_rate: 0.1,
      registration_burst: 9,
      registration_rate: 9,
    });
    const change = () =>
      stage.ask("PUT", `/dids/${identityOf("changes").did}/alias`, { nonsense: true });
    expect((await change()).status).toBe(400);
    const refused = await change();
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "10"]);
  });
});

describe("a network that makes the ledger grow", () => {
  test("has so many bytes a day, for registrations and changes", async () => {
    const bytes = JSON.stringify(registerBodyOf(identityOf("pace 1000"), 1_784_203_200_000)).length;
    const stage = await open({ network_day_bytes: 2 * bytes + 200, registration_burst: 100 });
    const nonsense = () =>
      stage.ask("PUT", `/dids/${identityOf("x").did}/alias`, { nonsense: "x".repeat(500) });
    expect([(await register(stage)).status, (await register(stage)).status]).toEqual([202, 202]);
    const refused = await register(stage);
    expect([refused.status, refused.body["code"]]).toEqual([429, "rate_limited"]);
    expect((await nonsense()).status).toBe(429);
    expect((await stage.ask("GET", `/resolve/${identityOf("x").did}`)).status).toBe(404);
    stage.advance(86_400_000);
    expect((await nonsense()).status).toBe(400);
  });
});

describe("a network that registers many", () => {
  test("is accepted up to its burst, then once a second", async () => {
    const stage = await open({});
    expect([(await register(stage)).status, (await register(stage)).status]).toEqual([202, 202]);
    const refused = await register(stage);
    expect([refused.status, refused.body["code"]]).toEqual([429, "rate_limited"]);
    expect(refused.headers.get("retry-after")).toBe("1");
    stage.advance(1_000);
    expect((await register(stage)).status).toBe(202);
    expect((await register(stage)).status).toBe(429);
  });

  test("is refused beyond it whatever the bodies are", async () => {
    const stage = await open({});
    const statuses = [];
    for (let n = 0; n < 4; n++) statuses.push((await register(stage, {}, {})).status);
    expect(statuses).toEqual([400, 400, 429, 429]);
  });

  test("finds the rate in the limits", async () => {
    expect(await (await open({})).limits()).toMatchObject({
      registration_rate_per_second: 1,
      registration_burst: 2,
    });
  });
});

test("clients on this machine have the rate where the setting says so, and else none", async () => {
  for (const [limited, status] of [
    [true, 429],
    [false, 202],
  ] as const) {
    nodes = await startTestNodes(
      { directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: limited } },
      { directory: { registration_burst: 1, registration_rate: 0.001 } },
    );
    const register = async (name: string) => {
      const body = JSON.stringify(registerBodyOf(identityOf(name), Date.now()));
      const headers = { "content-type": "application/json" };
      return (await fetch(`${nodes?.url}/register-did`, { method: "POST", headers, body })).status;
    };
    expect([await register("first"), await register("second")]).toEqual([202, status]);
    await nodes.stop();
    nodes = null;
  }
});
