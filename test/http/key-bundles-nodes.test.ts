/**
 * Key bundles over running nodes: put at a Cache, read there, and answered to senders by it and by
 * another node.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { bundleDigest, type KeyBundle, renderBundle } from "../../src/core/message/bundle.ts";
import { bundleKey, bundleOf, maker, putBundle, registerMaker } from "../support/bundles.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const { did } = maker;
const folder = scratchFolder();
const socket = join(folder.path, "admin.sock");

let [nodes, far]: TestNodes[] = [];
const urls = () => [nodes?.url ?? "", far?.url ?? ""] as const;

beforeAll(async () => {
  const url = `http://127.0.0.1:${freePort()}`;
  nodes = await startTestNodes({
    server: {
      listen: [url.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
    },
    relay: relayAt(url),
    cache: { enabled: true, public_endpoints: [url] },
  });
  const own = `http://127.0.0.1:${freePort()}`;
  // A Relay elsewhere, whose people write to those of the first.
  far = await startTestNodes({
    server: { listen: [own.slice("http://".length)], recipients: nodes.url, drain_timeout: "2s" },
    directory: { enabled: false },
    cache: { enabled: false },
    relay: relayAt(own),
  });
  await registerMaker(url);
}, 60_000);
afterAll(async () => {
  await far?.stop();
  await nodes?.stop();
  folder.remove();
});

const json = async (url: string): Promise<Record<string, unknown>> =>
  (await (await fetch(url)).json()) as Record<string, unknown>;

async function operate(path: string, body: object): Promise<unknown> {
  const response = await fetch(`http://localhost/operations/${path}`, {
    method: "POST",
    unix: socket,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return response.json();
}

/** What `waypost explain` says of the weekly key. */
async function explained(): Promise<string | undefined> {
  const said = await operate("explain", { recipient: did, sender: null });
  const { steps } = said as { steps: Record<"what" | "detail", string>[] };
  expect(steps.find(({ what }) => what === "record")?.detail).toBe("1 key(s) to seal to");
  return steps.find(({ what }) => what === "key bundle")?.detail;
}

test("a bundle that was put reaches senders by the node of the Cache, and by one elsewhere", async () => {
  const [url, elsewhere] = urls();
  expect((await json(`${url}/node`))["key_bundles"]).toBe(true);
  expect((await json(`${elsewhere}/node`))["key_bundles"]).toBe(false);
  const path = `/delivery-resolution/${did}?keys=`;
  expect((await json(url + path))["key_bundle_missing"]).toBe("none");
  expect(await explained()).toStartWith("announced, and none counts here now");
  const put = (one: KeyBundle) => putBundle(url, one);
  const bundle = bundleOf(maker, Date.now());
  expect((await put(bundle)).status).toBe(200);
  expect(await json(`${url}/cache/keys/${did}`)).toEqual(renderBundle(bundle));
  const until = new Date(bundle.notAfterMs).toISOString();
  expect(await explained()).toBe(`${bundle.keyId} until ${until}`);
  for (const node of [url, elsewhere]) {
    const answer = await json(node + path);
    expect([answer["key_bundle"], answer["key_bundle_sha256"]]).toEqual([
      renderBundle(bundle),
      bundleDigest(bundle),
    ]);
  }
  const next = bundleOf(maker, bundle.issuedAtMs + 1, { publicKey: bundleKey(8) });
  expect((await put(next)).status).toBe(200);
  expect((await put(bundle)).status).toBe(409);
  const known = await json(`${url}${path}${bundleDigest(next)}`);
  expect([known["key_bundle"], known["key_bundle_sha256"]]).toEqual([
    undefined,
    bundleDigest(next),
  ]);
  // It goes with what the node holds of its owner.
  await operate("erase", { did });
  expect((await json(`${url}/cache/keys/${did}`))["code"]).toBe("not_found");
}, 60_000);

test("every node of an installation answers it, also one without a Cache", async () => {
  const whole = await startTestNodes();
  try {
    await registerMaker(whole.url);
    const bundle = bundleOf(maker, Date.now());
    expect((await putBundle(whole.url, bundle)).status).toBe(200);
    const asked = Array.from({ length: 12 }, () =>
      json(`${whole.url}/delivery-resolution/${did}?keys=`),
    );
    for (const answer of await Promise.all(asked))
      expect(answer["key_bundle"]).toEqual(renderBundle(bundle));
  } finally {
    await whole.stop();
  }
}, 60_000);
