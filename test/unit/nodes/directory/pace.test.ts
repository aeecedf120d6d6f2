/** The bytes that one client network may write in a day, and the work that grows with what it registers by work. */
import { expect, test } from "bun:test";
import { isFault } from "../../../../src/core/fault.ts";
import { searchWork } from "../../../../src/core/message/proof.ts";
import { createPace, withinDayBytes, workHeader } from "../../../../src/nodes/directory/pace.ts";
import type { Call } from "../../../../src/nodes/http/route.ts";
import { testRoute } from "../../../support/app.ts";
import { directoryDefault } from "../../../support/settings.ts";

const settings = { ...directoryDefault, network_day_bytes: 100, rate_limit_loopback: false };
const dayMs = 86_400_000;

function asker() {
  const within = withinDayBytes(settings);
  const handle = () => ({ status: 200, json: {} });
  const routes = {
    POST: within(testRoute({ method: "POST", path: "/", handle })),
    GET: within(testRoute({ path: "/", handle })),
  };
  let nowMs = 1e12;
  const ask = async (network: string, bytes: number, method: "GET" | "POST" = "POST", client = "2001:db8::1") => {
    const answer = await routes[method].handle({ client, network, nowMs, body: new Uint8Array(bytes) } as Call);
    return "code" in answer ? answer.code : "done";
  };
  return { ask, pass: (ms: number) => (nowMs += ms) };
}

test("networks of one /48 share their bytes of a day, and others have their own", async () => {
  const { ask, pass } = asker();
  expect(await ask("20010db800010001", 60)).toBe("done");
  expect(await ask("20010db800010002", 60)).toBe("rate_limited");
  expect(await ask("20010db800010002", 40)).toBe("done");
  expect(await ask("20010db800020001", 60)).toBe("done");
  pass(dayMs / 2);
  expect(await ask("20010db800010003", 50)).toBe("done");
  expect(await ask("20010db800010001", 1)).toBe("rate_limited");
});

test("reads count nothing, nor do clients of this machine where no rate applies to them", async () => {
  const { ask } = asker();
  for (let i = 0; i < 3; i++) {
    expect(await ask("7f000001", 90, "POST", "127.0.0.1")).toBe("done");
    expect(await ask("20010db800010001", 90, "GET")).toBe("done");
  }
  expect(await ask("20010db800010001", 100)).toBe("done");
});

test("each 256 registrations by work double the work of their network, and of no other", () => {
  const paced = { ...settings, registration_burst: 1, registration_rate: 1, registration_work_bits: 1 };
  const checkPace = createPace(paced);
  const body = new Uint8Array(8);
  const nonce = searchWork(body, 1, { first: 0, count: 64 }) ?? "";
  const check = (network: string, work: string | null) => {
    const headers = { get: (name: string) => (name === workHeader ? work : null) } as Call["headers"];
    return checkPace({ client: "2001:db8::1", network, nowMs: 1e12, headers, body });
  };
  const asked = (network: string) => {
    const refused = check(network, null);
    return isFault(refused) ? refused.extra.headers?.[workHeader] : null;
  };
  expect([asked("one"), asked("one")]).toEqual([null, "sha256; bits=1"]);
  for (let i = 0; i < 256; i++) expect(check("one", nonce)).toBeNull();
  expect(asked("one")).toBe("sha256; bits=2");
  expect([asked("two"), asked("two")]).toEqual([null, "sha256; bits=1"]);
});
