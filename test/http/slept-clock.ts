/**
 * A program of the SDK on a machine that slept while the Relay's answer was under way:
 * `slept-clock.ts <url>`. The time of that answer is seven hours from the machine's; the next
 * message must go out all the same.
 */
const [url = ""] = process.argv.slice(2);

const ask = globalThis.fetch;
let sleeps = true;
const slept = async (...given: Parameters<typeof ask>): Promise<Response> => {
  const answer = await ask(...given);
  if (!sleeps || !String(given[0]).includes("/relay/")) return answer;
  sleeps = false;
  const headers = new Headers(answer.headers);
  headers.set("date", new Date(Date.now() + 7 * 3_600_000).toUTCString());
  return new Response(answer.body, { status: answer.status, headers });
};
globalThis.fetch = Object.assign(slept, { preconnect: ask.preconnect });

const { memoryKeys } = await import("../../src/client/keys/key-stores.ts");
const { Waypost } = await import("../../src/client/waypost.ts");

const open = () => Waypost.open({ url, keys: memoryKeys(), rotateMs: false });
const [me, you] = await Promise.all([open(), open()]);
await me.send(you.did, "answered while it slept");
const outcome = await me.send(you.did, "awake again", { retries: 0 }).then(
  () => "sent",
  (error: unknown) => String(error),
);
console.log(outcome);
process.exit(0);

export {};
