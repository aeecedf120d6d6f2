/** The caller's trace: the request log names it, and the Relay passes it on to the inbox. */
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { identityOf, methodOf } from "../support/identity.ts";
import { registerAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

const received: (string | null)[] = [];
const inbox = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: (request) => {
    received.push(request.headers.get("traceparent"));
    return new Response(null, { status: 202 });
  },
});
const identity = identityOf("traced");
let nodes: TestNodes;

beforeAll(async () => {
  nodes = await startTestNodes();
  const { did } = identity;
  const method = methodOf(did, "root", identity.root);
  const serviceEndpoint = [`http://127.0.0.1:${inbox.port}`];
  const service = [
    { id: `${did}#inbox`, type: "SvcInboxService", serviceEndpoint, authorization: [method.id] },
  ];
  await registerAt(nodes.url, identity, {
    id: did,
    verificationMethod: [method],
    authentication: [method.id],
    service,
  });
});
beforeEach(() => {
  received.length = 0;
  nodes.lines.length = 0;
});
afterAll(async () => {
  await nodes.stop();
  await inbox.stop(true);
});

async function relay(headers: Readonly<Record<string, string>>): Promise<void> {
  const body = {
    message_id: crypto.randomUUID(),
    to: identity.did,
    timestamp: new Date().toISOString(),
    payload: {},
  };
  const response = await fetch(`${nodes.url}/relay`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  expect(response.ok).toBe(true);
}

const loggedTrace = (): unknown => {
  const line = nodes.lines.find(({ message }) => message === "request");
  return Reflect.get(line?.fields ?? {}, "trace_id");
};

test("a caller's trace goes on to the inbox, and the log names it", async () => {
  await relay({ traceparent });
  expect([received, loggedTrace()]).toEqual([[traceparent], traceId]);
});

test("no trace is begun for a request without one", async () => {
  await relay({});
  expect([received, loggedTrace()]).toEqual([[null], undefined]);
});

test.each([
  "x",
  traceparent.toUpperCase(),
  traceparent.replace(traceId, "0".repeat(32)),
  `ff${traceparent.slice(2)}`,
  `${traceparent}-${"0".repeat(256)}`,
])("a malformed trace is neither passed on nor logged: %s", async (malformed) => {
  await relay({ traceparent: malformed });
  expect([received, loggedTrace()]).toEqual([[null], undefined]);
});
