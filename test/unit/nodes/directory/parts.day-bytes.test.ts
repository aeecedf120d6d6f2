/** The bytes that one client network may write in a day. */
import { expect, test } from "bun:test";
import { withinDayBytes } from "../../../../src/nodes/directory/parts.ts";
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
  const ask = async (
    network: string,
    bytes: number,
    method: "GET" | "POST" = "POST",
    client = "2001:db8::1",
  ) => {
    const answer = await routes[method].handle({
      client,
      network,
      nowMs,
      body: new Uint8Array(bytes),
    } as Call);
    return "code" in answer ? answer.code : "done";
  };
  return { ask, pass: (ms: number) => (nowMs += ms) };
}

test("networks of one /48 share their bytes of a day, and others have their own", async () => {
  const { ask, pass } = asker();
  expect(await ask("2001:db8:1:1::/64", 60)).toBe("done");
  expect(await ask("2001:db8:1:2::/64", 60)).toBe("rate_limited");
  expect(await ask("2001:db8:1:2::/64", 40)).toBe("done");
  expect(await ask("2001:db8:2:1::/64", 60)).toBe("done");
  pass(dayMs / 2);
  expect(await ask("2001:db8:1:3::/64", 50)).toBe("done");
  expect(await ask("2001:db8:1:1::/64", 1)).toBe("rate_limited");
});

test("reads count nothing, nor do clients of this machine where no rate applies to them", async () => {
  const { ask } = asker();
  for (let i = 0; i < 3; i++) {
    expect(await ask("127.0.0.1", 90, "POST", "127.0.0.1")).toBe("done");
    expect(await ask("2001:db8:1:1::/64", 90, "GET")).toBe("done");
  }
  expect(await ask("2001:db8:1:1::/64", 100)).toBe("done");
});
