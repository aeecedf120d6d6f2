/** The time of a node, by which is signed what others compare with their clocks. */
import { expect, test } from "bun:test";
import { askTime, endpoint, timeAt } from "../../src/client/net/http.ts";

const hourMs = 3_600_000;

test("the time of a node is asked anew, since this machine's clock may have been set since it answered", async () => {
  const of = { aheadMs: hourMs };
  const node = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: () =>
      new Response("ok", { headers: { date: new Date(Date.now() + of.aheadMs).toUTCString() } }),
  });
  try {
    const at = endpoint(`http://127.0.0.1:${node.port}`);
    await askTime(at);
    for (const aheadMs of [hourMs, 0, -2 * hourMs]) {
      of.aheadMs = aheadMs;
      const saidMs = (await timeAt(at)) - Date.now();
      expect(Math.abs(saidMs - aheadMs)).toBeLessThan(60_000);
    }
  } finally {
    await node.stop(true);
  }
});
