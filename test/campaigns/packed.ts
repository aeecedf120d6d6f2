/**
 * The schedules of own devices and groups over the SDK as others get it: built, packed, installed,
 * and run by another runtime (`packed-program.mjs`), behind a Relay that loses and repeats what is
 * sent. Everything public, nothing of this repository.
 *
 * `bun test/campaigns/packed.ts --schedules 3 [--from 0]` ends with 1 on a finding, with 2 without
 * a runtime. `--canary`: the Relay goes on losing everything, and that must be found.
 */
import { parseArgs } from "node:util";
import { command, findRuntimes, installPackedSdk, place } from "../e2e/packed-sdk.ts";
import { startTestNodes } from "../support/nodes.ts";
import { Findings } from "./stage.ts";

const { values } = parseArgs({
  options: {
    schedules: { type: "string", default: "3" },
    from: { type: "string", default: "0" },
    canary: { type: "boolean", default: false },
  },
});
const runtimes = findRuntimes().filter(({ name }) => name.startsWith("node "));
const runtime = runtimes.find(({ command: words }) => words !== null);
if (runtime === undefined || runtime.command === null) {
  console.log("skipped: no second runtime, `bun run runtimes:setup` brings one");
  process.exit(2);
}
const findings = new Findings();
const [sdk, nodes] = await Promise.all([installPackedSdk(), startTestNodes()]);
const program = place(sdk, "test/campaigns/packed-program.mjs", "packed-program.mjs");
let lost = 0;
let repeated = 0;
const relay = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: async (request, server) => {
    const { pathname, search } = new URL(request.url);
    if (pathname === "/lossy") [lost, repeated] = [0.2, 0.2];
    if (pathname === "/calm") [lost, repeated] = [values.canary ? 1 : 0, 0];
    if (["/lossy", "/calm"].includes(pathname)) return new Response("ok");
    server.timeout(request, 60);
    const { method, headers } = request;
    const body = method === "GET" ? null : await request.bytes();
    const isMessage = pathname.startsWith("/relay/");
    if (isMessage && Math.random() < lost)
      return Response.json({ success: true, code: "delivered", message: "as it says" });
    const post = () => fetch(`${nodes.url}${pathname}${search}`, { method, headers, body });
    const real = await post();
    if (isMessage && Math.random() < repeated) await post();
    return new Response(await real.bytes(), real);
  },
});
const [from, count] = [Number(values.from), Number(values.schedules)];
for (let seed = from; seed < from + count; seed++) {
  [lost, repeated] = [0, 0];
  const printed = await command([...runtime.command, program], sdk.folder, {
    WAYPOST_URL: nodes.url,
    WAYPOST_RELAY: `http://127.0.0.1:${relay.port}`,
    WAYPOST_SEED: String(seed),
  });
  const { wrong, done, refused } = JSON.parse(printed.trim().split("\n").at(-1) ?? "{}");
  console.log(`${runtime.name}, seed ${seed}: ${done} steps done, ${refused} refused`);
  const isFound = wrong.length > 0;
  findings.expect(isFound === values.canary, `seed ${seed}: ${wrong.join("; ") || "not found"}`);
}
await relay.stop(true);
await nodes.stop();
sdk.remove();
findings.exit();
