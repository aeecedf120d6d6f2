/**
 * Requests of the protocol family that this service does not serve: each gets the answer of the
 * table "For clients of the protocol family" in docs/interface.md. Every row of that table has its
 * test here.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const text = await Bun.file(join(import.meta.dir, "..", "..", "docs", "interface.md")).text();
const table = text.slice(text.indexOf("## For clients of the protocol family"));
const rows = new Map(
  [...table.matchAll(/^\| (?!What \||---)(.+?) \| (.+) \|$/gm)].map(
    ([, what = "", answer = ""]) => [what, answer],
  ),
);
const tested = new Set<string>();

/** The answer that the document states for the row that begins so. */
function stated(beginning: string): string {
  const [what, answer] = [...rows].find(([name]) => name.startsWith(beginning)) ?? [];
  if (what === undefined || answer === undefined)
    throw new Error(`no row begins with ${beginning}`);
  tested.add(what);
  return answer;
}

let nodes: TestNodes;
let me: Waypost;
beforeAll(async () => {
  nodes = await startTestNodes();
  me = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
});
afterAll(() => nodes.stop());

async function ask(method: string, path: string, body?: object): Promise<string> {
  const response = await fetch(`${nodes.url}${path}`, {
    method,
    headers: { "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const { code } = (await response.json()) as { code?: string };
  return `${response.status} \`${code}\``;
}

test("device routes", async () => {
  const answer = stated("Device routes");
  const devices = `/dids/${me.did}/devices`;
  const body = { did: me.did, device_id: "phone" };
  for (const [method, path] of [
    ["POST", devices],
    ["PATCH", `${devices}/phone`],
    ["DELETE", `${devices}/phone`],
    ["POST", `${devices}/phone/tombstone`],
  ] as const)
    expect([path, await ask(method, path, body)]).toEqual([path, answer]);
});

test("device actions in a preparation", async () => {
  const answer = stated("Device actions");
  for (const action of ["add_device", "update_device", "remove_device", "tombstone_device"]) {
    const body = { did: me.did, action, device_id: "phone", new_device_id: "tablet" };
    expect([action, await ask("POST", `/dids/${me.did}/prepare`, body)]).toEqual([action, answer]);
  }
});

test("Persona and Application routes", async () => {
  const answer = stated("Persona and Application routes");
  for (const [method, path] of [
    ["GET", "/personas/alice"],
    ["PUT", "/personas/alice"],
    ["PUT", "/personas/alice/named"],
    ["POST", "/personas/alice/named/prepare"],
    ["POST", "/personas/alice/dns-challenges"],
    ["POST", "/personas/alice/dns-challenges/1/verify"],
    ["POST", "/personas/alice/recovery"],
    ["GET", `/persona-operators/${me.did}/nonce`],
    ["GET", "/applications/one"],
    ["POST", "/applications/one/registration/prepare"],
    ["POST", "/applications/one/authorization"],
  ] as const)
    expect([path, await ask(method, path, method === "GET" ? undefined : {})]).toEqual([
      path,
      answer,
    ]);
});

test("a live session without a proof", async () => {
  const socket = new WebSocket(`${nodes.url.replace("http", "ws")}/ws/${me.did}/phone`);
  const code = await new Promise<number>((resolve) => {
    socket.onclose = (event) => resolve(event.code);
  });
  expect(`closed with ${code}`).toBe(stated("A live session without a proof"));
}, 120_000);

test("the plaintext profile is carried, and not opened", async () => {
  const answer = stated("The plaintext profile");
  const envelope = {
    message_id: crypto.randomUUID(),
    to: me.did,
    timestamp: new Date().toISOString(),
    payload: { profile: "svc:plaintext-cbor:v1", cbor_b64: "oA==" },
  };
  const events: string[] = [];
  const reported = new Promise<void>((resolve) => {
    me.on((event) => {
      if (event.type !== "unreadable") return;
      events.push(event.code, ...event.messageIds);
      resolve();
    });
  });
  const next = me.messages().next();
  for (const path of ["/relay", "/cache/store"])
    expect(
      (
        await fetch(`${nodes.url}${path}`, {
          method: "POST",
          body: JSON.stringify(envelope),
          headers: { "Content-Type": "application/json" },
        })
      ).ok,
    ).toBe(true);
  await reported;
  await me.close();
  expect((await next).done).toBe(true);
  expect(answer).toContain(`\`${events[0]}\``);
  expect(events).toEqual(["unknown_profile", envelope.message_id]);
});

test("every exclusion of the document is tested here", () => {
  expect([...rows.keys()].filter((what) => !tested.has(what))).toEqual([]);
  expect(rows.size).toBe(5);
});
