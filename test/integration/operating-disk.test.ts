/**
 * What an operator decides, on a node whose disk is full: envelopes are refused, and the operator's
 * commands and their audit take of the room that the store has set aside, also after a restart.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { encodeNoticeText, renderNotice } from "../../src/core/message/notice.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { until } from "../support/wait.ts";

const folder = scratchFolder();
const disk = join(folder.path, "disk");
mkdirSync(disk);
const mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", disk];
const isSmall = process.platform === "linux" && Bun.spawnSync(mount).success;
if (!isSmall) console.log("SKIPPED: a full disk, which this user can't mount");
afterAll(() => {
  if (isSmall) Bun.spawnSync(["umount", "-l", disk]);
  folder.remove();
});

const mebibyte = 2 ** 20;
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");
const input: ConfigInput = {
  server: {
    listen: [url.slice("http://".length)],
    admin_listen: [`unix:${socket}`],
    drain_timeout: "2s",
  },
  stores: {
    main: {
      plugin: "lmdb",
      path: join(disk, "store"),
      block_time_ms: 20,
      reserve_bytes: 8 * mebibyte,
      free_space_floor_bytes: 2 * mebibyte,
    },
  },
  directory: { enabled: true, rate_limit_loopback: false },
  relay: relayAt(url),
  cache: { enabled: true, public_endpoints: [url] },
  tiers: { small: { recipient_entries_max: 2 }, large: { recipient_entries_max: 5_000 } },
};

async function ask(operation: string, body?: object) {
  const post = { method: "POST", headers: { "content-type": "application/json" } };
  const sent = body === undefined ? {} : { ...post, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${operation}`, { unix: socket, ...sent });
  return { status: reply.status, json: (await reply.json()) as Record<string, unknown> };
}

/** 64 KiB; returns the code of a refusal, or `null`. */
async function storeAt(to: string): Promise<unknown> {
  const message_id = crypto.randomUUID();
  const payload = { ciphertext_b64: "A".repeat(64 * 1024) };
  const body = JSON.stringify({ message_id, to, timestamp: new Date().toISOString(), payload });
  const headers = { "content-type": "application/json" };
  const reply = await fetch(`${url}/cache/store`, { method: "POST", headers, body });
  const json = (await reply.json()) as Record<string, unknown>;
  return reply.status === 202 ? null : json["code"];
}

test.skipIf(!isSmall)(
  "on a full disk the operator can still block, give tiers, publish and begin maintenance, and it is kept",
  async () => {
    let nodes = await startTestNodes(input);
    const operator = await Waypost.open({ url, keys: memoryKeys(), waiting, announce: false });
    const next = checkConfig({ ...input, operator: { did: operator.did } });
    if (!next.ok) throw new Error(JSON.stringify(next.problems));
    await nodes.reload(next.config);
    const { did, keyId: signer, seed } = await senderOf(operator.client, operator.identity);
    const notice = async (text: string) => {
      const unsigned = { did, text, issuedAtMs: Date.now() };
      const signature = await signEd25519(encodeNoticeText(unsigned), seed);
      return { notice: renderNotice({ ...unsigned, signer, signature }) };
    };
    const block = (subject: string) => ({
      add: [{ subject, sender_only: false, reason: null }],
      remove: [],
    });
    const tier = (name: string | null) => ({ member: operator.did, tier: name });
    await ask("blocks", block("203.0.113.0/24"));
    await ask("tier", tier("large"));
    await ask("notice", await notice("We move on Sunday."));
    // Somebody else takes all of it.
    expect(() => writeFileSync(join(disk, "ballast"), new Uint8Array(64 * mebibyte))).toThrow();
    await until(async () => (await fetch(`${url}/readyz`)).status === 503);
    while ((await storeAt(did)) !== "storage_full");

    const done = [
      await ask("blocks", { ...block("198.51.100.0/24"), remove: ["203.0.113.0/24"] }),
      await ask("tier", tier("small")),
      await ask("notice", await notice("We buy a disk.")),
      await ask("maintenance", { on: true, message: "a new disk" }),
    ];
    expect(done.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    await nodes.stop();
    nodes = await startTestNodes({ ...input, operator: { did } });
    const node = (await (await fetch(`${url}/node`)).json()) as Record<string, unknown>;
    expect(node).toMatchObject({
      notice: { text: "We buy a disk." },
      maintenance: { message: "a new disk" },
    });
    expect((await ask("member", { member: did })).json["tier"]).toBe("small");
    expect((await ask("blocks")).json).toMatchObject({ blocks: [{ subject: "198.51.100.0/24" }] });
    const audited = { user: null, action: null, about: null, limit: 20 };
    const records = (await ask("audit", audited)).json["records"] as { readonly action: string }[];
    const changes = ["node.maintenance", "notices.publish", "members.tier", "blocks.change"];
    const actions = records
      .map(({ action }) => action)
      .filter((action) => changes.includes(action));
    expect(actions).toEqual([...changes, ...changes.slice(1)]);
    const ended = [
      await ask("maintenance", { on: false, message: null }),
      await ask("notice", { notice: null }),
      await ask("tier", tier(null)),
    ];
    expect(ended.map(({ status }) => status)).toEqual([200, 200, 200]);
    rmSync(join(disk, "ballast"));
    await until(async () => (await fetch(`${url}/readyz`)).status === 200);
    await operator.close();
    await nodes.stop();
  },
  60_000,
);
