/**
 * `waypost dev --lan`: people in the network use the node, and reach nothing else of the
 * developer's machine.
 */
import { afterAll, expect, test } from "bun:test";
import { startNodes } from "../../src/app/compose.ts";
import { devConfig } from "../../src/cli/serve.ts";
import { registerBodyOf, simpleDocument } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { scratchPaths } from "../support/scratch.ts";

const pathOf = scratchPaths("lan");
const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
});

test("an inbox on the developer's machine is asked nothing, and mail arrives", async () => {
  const asked: string[] = [];
  const own = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) => {
      asked.push(request.url);
      return new Response("deleted");
    },
  });
  stops.push(() => own.stop(true));
  const port = freePort(2);
  const config = devConfig({ host: "192.168.7.2", port, appPort: port + 1, folder: pathOf() });
  // This machine has another address; the rest is as in the network.
  Object.assign(config.server, { listen: [`127.0.0.1:${port}`], admin_listen: [], app: null });
  const nodes = await startNodes(config, {
    log: () => undefined,
    onFatal: (reason) => {
      throw new Error(reason);
    },
  });
  stops.push(nodes.stop);
  const url = `http://127.0.0.1:${port}`;
  const post = async (path: string, body: object) => {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const inboxes = [own.port, own.port].map(
    (at, n) => `http://${n === 0 ? "127.0.0.1" : "localhost"}:${at}/admin`,
  );
  for (const [n, inbox] of inboxes.entries()) {
    const person = identityOf(`neighbour ${n}`);
    const service = {
      id: `${person.did}#inbox`,
      type: "SvcInboxService",
      serviceEndpoint: inbox,
    };
    const did_document = { ...simpleDocument(person), service: [service] };
    const body = registerBodyOf(person, Date.now(), { did_document });
    expect((await post("/register-did", body)).status).toBe(202);
    while ((await fetch(`${url}/resolve/${person.did}`)).status !== 200) await Bun.sleep(20);
    const message = { message_id: crypto.randomUUID(), to: person.did, payload: { n } };
    const sent = await post("/relay", { ...message, timestamp: new Date().toISOString() });
    expect([sent.status, sent.body["code"]]).toEqual([422, "not_deliverable"]);
    const path = `/resolve/did:svc:wp${"2".repeat(28)}?home=127.0.0.1:${own.port}`;
    expect((await fetch(url + path)).status).toBe(404);
  }
  expect(asked).toEqual([]);
  const member = identityOf("member");
  const cache = {
    id: `${member.did}#cache`,
    type: "SvcCacheService",
    serviceEndpoint: `http://192.168.7.2:${port}`,
    authorization: [],
  };
  const did_document = { ...simpleDocument(member), service: [cache] };
  const registered = registerBodyOf(member, Date.now(), { did_document });
  expect((await post("/register-did", registered)).status).toBe(202);
  while ((await fetch(`${url}/resolve/${member.did}`)).status !== 200) await Bun.sleep(20);
  const mail = { message_id: crypto.randomUUID(), to: member.did, payload: { n: 3 } };
  const stored = await post("/relay", { ...mail, timestamp: new Date().toISOString() });
  expect([stored.status, stored.body["code"]]).toEqual([202, "cached"]);
}, 30_000);
