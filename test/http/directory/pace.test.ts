/** The pace of registrations: a burst, a rate, and the proof of work beyond them, which the client does by itself. */
import { afterEach, describe, expect, test } from "bun:test";
import { directoryClient } from "../../../src/client/directory.ts";
import { endpoint } from "../../../src/client/http.ts";
import { encodeHex, utf8 } from "../../../src/core/codec/bytes.ts";
import { sha256 } from "../../../src/core/codec/crypto.ts";
import { searchWork, verifyWork } from "../../../src/core/message/proof.ts";
import { createWorkGrowth } from "../../../src/nodes/directory/pace.ts";
import type { DirectorySettings } from "../../../src/nodes/directory/parts.ts";
import { type Json, registerBodyOf, type TestDirectory, testDirectory } from "../../support/directory.ts";
import { identityOf } from "../../support/identity.ts";
import { startTestNodes, type TestNodes } from "../../support/nodes.ts";
import { directoryDefault } from "../../support/settings.ts";

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
    options: { registration_burst: 2, registration_rate: 1, registration_work_bits: 8, ...settings },
  });
  return directory;
}

let count = 0;
const register = (stage: TestDirectory, headers: Record<string, string> = {}, body?: Json) =>
  stage.ask("POST", "/register-did", body ?? registerBodyOf(identityOf(`pace ${count++}`), stage.nowMs()), headers);

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
    const stage = await open({ change_burst: 1, change_rate: 0.1, registration_burst: 9, registration_rate: 9 });
    const change = () => stage.ask("PUT", `/dids/${identityOf("changes").did}/alias`, { nonsense: true });
    expect((await change()).status).toBe(400);
    const refused = await change();
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "10"]);
  });
});

describe("a network that makes the ledger grow", () => {
  test("has so many bytes a day, for registrations and changes, with work too", async () => {
    const bytes = JSON.stringify(registerBodyOf(identityOf("pace 1000"), 1_784_203_200_000)).length;
    const stage = await open({ network_day_bytes: 2 * bytes + 200, registration_burst: 100 });
    const nonsense = () => stage.ask("PUT", `/dids/${identityOf("x").did}/alias`, { nonsense: "x".repeat(500) });
    expect([(await register(stage)).status, (await register(stage)).status]).toEqual([202, 202]);
    const body = registerBodyOf(identityOf("worker"), stage.nowMs());
    const nonce = searchWork(utf8(JSON.stringify(body)), 8, { first: 0, count: 1_000_000 }) ?? "";
    const refused = await register(stage, { "Svc-Work": nonce }, body);
    expect([refused.status, refused.body["code"]]).toEqual([429, "rate_limited"]);
    expect((await nonsense()).status).toBe(429);
    expect((await stage.ask("GET", `/resolve/${identityOf("x").did}`)).status).toBe(404);
    stage.advance(86_400_000);
    expect((await nonsense()).status).toBe(400);
  });

  test("is asked for twice the work after each 256 registrations by work, and for less after a while", () => {
    const settings = { ...directoryDefault, registration_work_bits: 10, registration_rate: 1 };
    const growth = createWorkGrowth(settings);
    for (let n = 0; n < 600; n++) growth.add("c6336401", 1_000);
    expect([growth.bits("c6336401", 1_000), growth.bits("c6336402", 1_000)]).toEqual([12, 10]);
    expect([growth.bits("c6336401", 401_000), growth.bits("c6336401", 901_000)]).toEqual([10, 10]);
    expect(createWorkGrowth({ ...settings, registration_work_bits: 0 }).bits("c6336401", 0)).toBe(0);
  });
});

describe("a network that registers many", () => {
  test("is accepted up to its burst, then once a second", async () => {
    const stage = await open({});
    expect([(await register(stage)).status, (await register(stage)).status]).toEqual([202, 202]);
    const refused = await register(stage);
    expect([refused.status, refused.body["code"]]).toEqual([429, "rate_limited"]);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(refused.headers.get("svc-work")).toBe("sha256; bits=8");
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

  test("is accepted beyond it with a proof of work over the body", async () => {
    const stage = await open({ registration_burst: 1, registration_rate: 1 });
    await register(stage);
    const body = registerBodyOf(identityOf("worker"), stage.nowMs());
    const bytes = utf8(JSON.stringify(body));
    const nonce = searchWork(bytes, 8, { first: 0, count: 1_000_000 }) ?? "";
    const other = { ...body, alias: "another" };
    expect((await register(stage, { "Svc-Work": nonce }, other)).status).toBe(429);
    expect((await register(stage, { "Svc-Work": `${nonce}0` }, body)).status).toBe(429);
    expect((await register(stage, { "Svc-Work": nonce }, body)).status).toBe(202);
  });

  test("is refused despite a proof of work where the operator asks for none", async () => {
    const stage = await open({ registration_burst: 1, registration_rate: 1, registration_work_bits: 0 });
    await register(stage);
    const refused = await register(stage, { "Svc-Work": "1" });
    expect([refused.status, refused.headers.get("svc-work")]).toEqual([429, null]);
  });

  test("finds the rate and the work in the limits", async () => {
    expect(await (await open({})).limits()).toMatchObject({
      registration_rate_per_second: 1,
      registration_burst: 2,
      registration_work_bits: 8,
    });
  });
});

test("the client does the work by itself", async () => {
  nodes = await startTestNodes(
    { directory: { enabled: true, unsigned_updates: "allow", registration_work_bits: 10 } },
    { directory: { registration_burst: 1 } },
  );
  const client = directoryClient(endpoint(nodes.url, 10_000));
  for (const name of ["one", "two", "three"]) {
    const registered = await client.register(registerBodyOf(identityOf(name), Date.now()));
    expect(registered.registration_status).toBe("pending");
  }
  expect((await client.limits()) as Json).toMatchObject({ registration_work_bits: 10 });
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

describe("work", () => {
  const body = utf8("body");

  test("is SHA-256 over the prefix, the hash of the body and the nonce", () => {
    const nonce = searchWork(body, 12, { first: 0, count: 1_000_000 }) ?? "";
    const hash = encodeHex(sha256(utf8(`svc:register-work:v1|${encodeHex(sha256(body))}|${nonce}`)));
    expect(hash.startsWith("000")).toBe(true);
    expect(verifyWork(body, nonce, 12)).toBe(true);
    expect(verifyWork(utf8("bodY"), nonce, 12)).toBe(false);
  });

  test("with n bits about one of 2^n nonces does", () => {
    const hits = Array.from({ length: 4_096 }, (_, i) => verifyWork(body, String(i), 4)).filter(Boolean).length;
    expect(hits).toBeGreaterThan(180);
    expect(hits).toBeLessThan(340);
  });

  test("refuses nonces that are not short plain text, whatever their hash", () => {
    for (const nonce of ["", "a b", "é", "x".repeat(65)]) expect(verifyWork(body, nonce, 0)).toBe(false);
    expect(verifyWork(body, "x".repeat(64), 0)).toBe(true);
    expect(searchWork(body, 256, { first: 0, count: 10 })).toBeNull();
  });
});
