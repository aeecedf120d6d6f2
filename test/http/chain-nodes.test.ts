/**
 * The chain driver with nodes that misbehave: none of them ends the process, fills memory or the
 * log, delays the end of the program, or makes it reveal the part of an endpoint after its host.
 */

import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith, u64 } from "../../src/core/codec/scale.ts";
import { isFault } from "../../src/core/fault.ts";
import { recordCodec } from "../../src/core/ledger/account.ts";
import { encodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import type { EndpointsEvents } from "../../src/plugins/chain/connections.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { fingerprintOf } from "../../src/plugins/chain/layouts.ts";
import { prefixOf } from "../../src/plugins/chain/metadata.ts";
import { ChainOutbox } from "../../src/plugins/chain/outbox.ts";
import type { Signed } from "../../src/plugins/chain/pool.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { NodeRefusal, Rpc, systemHost, withoutSecrets } from "../../src/plugins/chain/rpc.ts";
import {
  type ChainHead,
  ChainSession,
  type Common,
  Unusable,
} from "../../src/plugins/chain/session.ts";
import { Submissions } from "../../src/plugins/chain/submissions.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { StoreError, type Submission } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { identityOf, keyOf, registrationOf, setDocumentOf } from "../support/identity.ts";
import { startTestNodes } from "../support/nodes.ts";
import { pause } from "../support/wait.ts";
import { World } from "../support/world.ts";
import { blockHash, closedAfterEach, endpointSecrets, type FakeNode } from "./chain-node.ts";

const { opened, fakeNode } = closedAfterEach();

async function rpcTo(endpoint: string, waitMs = 1_000): Promise<Rpc> {
  const rpc = await Rpc.open(endpoint, { waitMs, signal: new AbortController().signal, host });
  opened.push(rpc);
  return rpc;
}

const textOf = (work: Promise<unknown>): Promise<string> => work.then(() => "answered", String);

async function until(what: string, isSo: () => boolean): Promise<void> {
  for (const end = Date.now() + 60_000; Date.now() < end; await Bun.sleep(5)) if (isSo()) return;
  throw new Error(`waited too long for ${what}`);
}

function expectNoSecrets(text: string): void {
  for (const secret of [...endpointSecrets, "apikey", "/v1"]) expect(text).not.toContain(secret);
}

const host = systemHost(Date.now);
const operator = new Uint8Array(32).fill(1);

/** A heartbeat that comes in no test, and calls that are soon sent again. */
const settingsOf = (
  endpoints: readonly string[],
  changes: Readonly<Record<string, unknown>> = {},
) => {
  const times = {
    request_timeout_ms: 1_000,
    block_time_ms: 60_000,
    resend_ms: 50,
    pending_max: 10,
  };
  return optionsOf(chainPlugin, {
    endpoints,
    operator_key_file: "key",
    outbox: "outbox",
    ...times,
    ...changes,
  });
};

const commonOf = (...given: Parameters<typeof settingsOf>): Common => ({
  settings: settingsOf(...given),
  key: { publicKey: operator, scheme: 1, sign: keyOf("operator").sign },
  host,
  log: () => {},
  runtimes: new Map(),
  connect: Rpc.open,
});

function endpointsTo(
  addresses: readonly string[],
  events: Partial<EndpointsEvents> = {},
  changes: Readonly<Record<string, unknown>> = {},
  after = host.after,
) {
  const logged: { readonly message: string; readonly fields: Readonly<Record<string, unknown>> }[] =
    [];
  const endpoints = new Endpoints(
    {
      ...commonOf(addresses, changes),
      host: { ...host, after, chance: () => 0.5 },
      anchor: null,
      genesis: null,
      log: (_, message, fields = {}) => logged.push({ message, fields }),
    },
    { onSession: () => {}, onHead: () => {}, ...events },
  );
  opened.push(endpoints);
  return { endpoints, logged };
}

describe("a connection to a node", () => {
  const frames: readonly (readonly [string, string | Uint8Array])[] = [
    ["no JSON", "certainly not"],
    ["a list", "[]"],
    ["nothing", "null"],
    ["a number", "7"],
    ["bytes", Uint8Array.of(0x7b, 0x7d)],
    [
      "a refusal without a text",
      '{"id":1,"error":{"code":1,"message":{"toString":1,"valueOf":1}}}',
    ],
  ];
  test.each(frames)(
    "is ended by a frame that is %s, which throws nowhere else",
    async (_, frame) => {
      const node = fakeNode();
      node.answer = () => ({ frame });
      const rpc = await rpcTo(node.endpoint);
      expect(await textOf(rpc.ask("system_health", [], 1_000))).toContain(
        "an invalid JSON-RPC message",
      );
      expect(await rpc.over).toContain("an invalid JSON-RPC message");
      await until("the node to lose it", () => node.standing === 0);
    },
  );

  test("ignores notifications and answers without a request", async () => {
    const node = fakeNode();
    const unexpected = [
      '{"method":"x"}',
      '{"method":"x","params":null}',
      '{"method":"x","params":{"subscription":{"toString":1,"valueOf":1}}}',
      '{"id":99}',
      "{}",
    ];
    const rpc = await rpcTo(node.endpoint);
    for (const frame of unexpected) {
      node.answer = () => ({ frame });
      expect(await textOf(rpc.ask("lost", [], 30))).toContain("no answer to lost");
    }
    node.answer = () => null;
    expect(await rpc.ask("chain_getFinalizedHead", [], 1_000)).toBe(blockHash(6));
  });

  test("reports a refusal by its code, and an answer with neither result nor error is not a result", async () => {
    const node = fakeNode();
    const rpc = await rpcTo(node.endpoint);
    node.answer = ({ id }) => ({
      frame: JSON.stringify({ id, error: { code: 1010, message: "Invalid", data: { custom: 4 } } }),
    });
    const refusal = await rpc
      .ask("author_submitExtrinsic", [], 1_000)
      .catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(NodeRefusal);
    expect(refusal).toMatchObject({ code: 1010, message: 'Invalid: {"custom":4}' });
    node.answer = ({ id }) => ({ frame: JSON.stringify({ id }) });
    expect(await rpc.ask("anything", [], 1_000)).toBeUndefined();
  });

  test("is dropped at once when the node has fallen silent, and opening one ends in time or on command", async () => {
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket)).on("error", () => {});
      socket.resume();
    });
    await new Promise<void>((done) => silent.listen(0, "127.0.0.1", done));
    opened.push({ close: () => new Promise((done) => silent.close(done)) });
    const address = silent.address();
    const endpoint = `ws://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
    expect(await textOf(rpcTo(endpoint, 50))).toContain("no connection within 50 ms");
    await until("the socket to be gone", () => sockets.size === 0);
    const { endpoints } = endpointsTo([endpoint], {}, { request_timeout_ms: 60_000 });
    endpoints.start();
    await until("the opening", () => sockets.size === 1);
    await endpoints.close();
    await until("the socket to be gone", () => sockets.size === 0);
  });
});

describe("the part of an endpoint after its host", () => {
  test("is in no error of a connection", async () => {
    const node = fakeNode();
    const [path, key] = endpointSecrets;
    const plain = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: () => new Response("no", { status: 401 }),
    });
    opened.push({ close: () => plain.stop(true) });
    const other = (scheme: string, port: number | undefined) =>
      `${scheme}://127.0.0.1:${port}/v1/${path}?apikey=${key}`;
    for (const endpoint of [other("ws", 1), other("ws", plain.port), other("wss", plain.port)]) {
      const text = await textOf(rpcTo(endpoint));
      expect(text).toContain("Error");
      expectNoSecrets(text);
    }
    const rpc = await rpcTo(node.endpoint);
    node.answer = ({ id }) => ({
      frame: JSON.stringify({
        id,
        error: {
          code: 7,
          message: `not for ${key} at /v1/${path}?apikey=${key}`,
          data: node.endpoint,
        },
      }),
    });
    const refusal = await textOf(rpc.ask("system_health", [], 1_000));
    expect(refusal).toContain("not for");
    expectNoSecrets(refusal);
    node.answer = () => "cut";
    expectNoSecrets(await textOf(rpc.ask("system_health", [], 1_000)));
    expectNoSecrets(await rpc.over);
  });

  test("is removed from a text whole, in parts and decoded, and words around it stay", () => {
    const clean = withoutSecrets("wss://node.example/rpc/p%40ssword?k=abcdefgh&x=1");
    expect(
      clean("p@ssword p%40ssword abcdefgh k=abcdefgh /rpc/p%40ssword?k=abcdefgh&x=1 rpc 1"),
    ).not.toMatch(/ssword|abcd/);
    expect(clean("failed: wss://node.example/rpc/p%40ssword?k=abcdefgh&x=1")).toBe(
      "failed: wss://node.example",
    );
    expect(clean("x".repeat(1_000)).length).toBeLessThan(400);
    expect(withoutSecrets("ws://127.0.0.1:9944")("no answer from ws://127.0.0.1:9944/")).toBe(
      "no answer from ws://127.0.0.1:9944",
    );
  });

  test("is neither in the log nor in the reason that answers give", async () => {
    const node = fakeNode();
    const { endpoints, logged } = endpointsTo([
      node.endpoint,
      "ws://127.0.0.1:1/v1/0123456789abcdef?apikey=fedcba98",
    ]);
    endpoints.start();
    await endpoints.tried();
    node.answer = () => "cut";
    expect(await textOf(endpoints.session().hashAt(1n))).toContain("did not answer");
    await until("the next round", () =>
      logged.some(({ message }) => message === "an endpoint of the chain can't be used"),
    );
    expect(endpoints.outage()).toContain(new URL(node.endpoint).origin);
    expectNoSecrets(endpoints.outage() + JSON.stringify(logged));
  });
});

describe("the way to the chain", () => {
  test("leaves a node whose answer can't be read, and calls that unavailable", async () => {
    const wrong: readonly (readonly [string, unknown])[] = [
      ["state_queryStorageAt", {}],
      ["state_queryStorageAt", [{ block: blockHash(6), changes: [["0x00", "0x0"]] }]],
      ["state_queryStorageAt", [{ block: blockHash(6), changes: 7 }]],
      ["state_queryStorageAt", [{ block: blockHash(6), changes: [] }]],
      ["state_queryStorageAt", [{ block: blockHash(5), changes: [[encodeHex0x(operator), null]] }]],
    ];
    for (const [method, result] of wrong) {
      const node = fakeNode();
      const { signal } = new AbortController();
      const session = await ChainSession.open({
        ...commonOf([node.endpoint]),
        endpoint: node.endpoint,
        signal,
        genesis: null,
        anchor: () => null,
      });
      node.answer = (asked) =>
        asked.method === method ? { frame: JSON.stringify({ id: asked.id, result }) } : null;
      const error = await session
        .values([operator], blockHash(6))
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(StoreError);
      expect(error).toMatchObject({ code: "unavailable" });
      expect((await session.over.promise).message).toContain(
        `its answer to ${method} can't be read`,
      );
      await until("the end of the connection", () => node.standing === 0);
    }
  });

  test("asks a node that soon ends every connection less and less often", async () => {
    const node = fakeNode();
    const pauses: number[] = [];
    const onSession = () => {
      node.answer = () => "cut";
      void endpoints
        .session()
        .hashAt(1n)
        .catch(() => {
          node.answer = () => null;
        });
    };
    const { endpoints, logged } = endpointsTo([node.endpoint], { onSession }, {}, (ms, work) => {
      // Longer ones are deadlines and the heartbeat.
      if (ms < 1_000) pauses.push(ms);
      return host.after(ms, work);
    });
    endpoints.start();
    await until("three rounds", () => pauses.length >= 3);
    expect(pauses.slice(0, 3)).toEqual([200, 400, 800]);
    // However often it happens, an outage is one line for each endpoint.
    const messages = logged.map(({ message }) => message);
    expect(messages.filter((message) => message !== "connected to the chain")).toEqual([
      "an endpoint of the chain can't be used",
    ]);
  });

  test("confirms a head once a second endpoint shows it too", async () => {
    const nodes = [fakeNode(), fakeNode()];
    const [nowKey, now] = [
      encodeHex0x(prefixOf("Now")),
      encodeHex0x(encodeWith(u64, BigInt(Date.now()))),
    ];
    for (const node of nodes) {
      node.answer = ({ id, method, params }) => {
        if (method !== "state_queryStorageAt") return null;
        const changes = (params[0] as readonly string[]).map((key) => [
          key,
          key === nowKey ? now : null,
        ]);
        return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
      };
    }
    const heads: bigint[] = [];
    const onHead = ({ number }: ChainHead) => void heads.push(number);
    const addresses = nodes.map(({ endpoint }) => endpoint);
    const { endpoints } = endpointsTo(addresses, { onHead }, { block_time_ms: 100 });
    endpoints.start();
    await until("both", () => heads.length === 2);
    const session = endpoints.session();
    expect((await endpoints.confirm(session, session.head))?.number).toBe(6n);
    for (const node of nodes) node.head = 8;
    await until("the head", () => heads.filter((number) => number === 8n).length === 2);
    expect((await endpoints.confirm(session, session.head))?.number).toBe(8n);
  });

  test("that contradict each other about one record and not about the next are one line of the log", async () => {
    const nodes = [fakeNode(), fakeNode()];
    const [agreed, disputed] = [Uint8Array.of(1), Uint8Array.of(2)];
    for (const [n, node] of nodes.entries()) {
      node.answer = ({ id, method, params }) => {
        if (method !== "state_queryStorageAt" || (params[0] as readonly string[]).length > 1)
          return null;
        const changes = (params[0] as readonly string[]).map((key) => [
          key,
          key === "0x02" ? `0x0${n}` : "0x07",
        ]);
        return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
      };
    }
    let heads = 0;
    const onHead = () => void heads++;
    const addresses = nodes.map(({ endpoint }) => endpoint);
    const { endpoints, logged } = endpointsTo(addresses, { onHead });
    endpoints.start();
    await until("both", () => heads === 2);
    const { hash } = endpoints.session().head;
    const values = (key: Uint8Array) => endpoints.values([key], { hash, about: "did:svc:a" });
    for (let n = 0; n < 3; n++) {
      expect(await values(agreed)).toEqual([Uint8Array.of(7)]);
      expect(await textOf(values(disputed))).toContain("no second endpoint agrees");
    }
    const lines = logged.filter(({ message }) => message.includes("disagree"));
    expect(lines.map(({ message }) => message)).toEqual([
      "two endpoints of the chain disagree about did:svc:a",
    ]);
  });

  test("goes on when the handler of a connection fails", async () => {
    const node = fakeNode();
    let reported = 0;
    const { endpoints } = endpointsTo([node.endpoint], {
      onSession: () => {
        if (reported++ === 0) throw new Error("a bug");
      },
    });
    endpoints.start();
    await until("another connection", () => reported === 2);
    expect(await endpoints.session().hashAt(6n)).toBe(blockHash(6));
    expect(node.standing).toBe(1);
  });
});

describe("readiness", () => {
  test("ends while the final head stands still, and not before", async () => {
    const node = fakeNode();
    const folder = mkdtempSync(join(tmpdir(), "chain-ready-"));
    writeFileSync(join(folder, "key"), "11".repeat(32));
    const chain = {
      plugin: "chain",
      endpoints: [node.endpoint],
      operator_key_file: join(folder, "key"),
      outbox: join(folder, "outbox"),
      block_time_ms: 20,
    };
    const stores = { main: { plugin: "memory" }, chain };
    const nodes = await startTestNodes({ stores, directory: { enabled: true, ledger: "chain" } });
    opened.push(
      { close: () => rmSync(folder, { recursive: true }) },
      { close: () => nodes.stop() },
    );
    const isReady = async () => (await fetch(`${nodes.url}/readyz`)).status;
    expect(await isReady()).toBe(200);
    // A later head whose time is older than a chain with finality has one.
    node.ageMs = 301_000;
    node.head++;
    while ((await isReady()) === 200) await Bun.sleep(20);
    expect(await isReady()).toBe(503);
  });
});

describe("submissions", () => {
  const documentCall = setDocumentOf(identityOf("slow"), {
    timestamp: "1700000000000",
    docBlob: new Uint8Array(3),
  });

  /** Signed by an account, of a call that no one reads. */
  const called = encodeLedgerCall(documentCall).slice(0, 2);
  const extrinsic = compactAddLength(
    Uint8Array.of(0x84, ...new Uint8Array(33 + 65 + 4), ...called),
  );
  const carried = { call: called, submitter: new Uint8Array(32), nonce: 0 };
  const unread = { extrinsic, fingerprint: fingerprintOf(carried), nonce: 0 };

  /** With one call in its outbox, which no block holds. */
  async function submissionsTo(
    node: FakeNode,
    given: Partial<Signed> = {},
    call: LedgerCall = documentCall,
  ) {
    const table = new MemoryTable(1 << 20);
    const outbox = new ChainOutbox(table, 10n);
    const submission: Submission = {
      txHash: blockHash(99),
      did: call.did,
      call: call.name,
      label: "x",
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: 0,
    };
    const signed: Signed = {
      extrinsic: new Uint8Array(3),
      fingerprint: "none",
      nonce: null,
      birth: 0n,
      death: 64n,
      ...given,
    };
    await outbox.keep({ sequence: 0n, call, submission, signed });
    const events = { onSession: () => submissions.resume(), onHead: () => submissions.follow() };
    const { endpoints } = endpointsTo([node.endpoint], events, {
      block_time_ms: 10,
      request_timeout_ms: 30_000,
    });
    const logged: string[] = [];
    const submissions = new Submissions({
      ...commonOf([node.endpoint]),
      endpoints,
      reader: new ChainReader(endpoints),
      outbox,
      log: (_, message) => logged.push(message),
    });
    submissions.start();
    endpoints.start();
    opened.push({ close: () => endpoints.close().then(() => submissions.close()) });
    return {
      endpoints,
      submissions,
      stateOf: () => submissions.submission(blockHash(99))?.state,
      logged,
    };
  }

  test("scans every block once, however slowly a node answers", async () => {
    const node = fakeNode();
    node.answer = async ({ method }) => {
      if (method === "chain_getBlock") await Bun.sleep(60);
      return null;
    };
    const { stateOf } = await submissionsTo(node);
    await until("all blocks", () => node.seen.get("chain_getBlock") === 6);
    await pause(400, "it would ask for the blocks again");
    expect(node.seen.get("chain_getBlock")).toBe(6);
    expect(stateOf()).toBe("pending");
  });

  test("have failed when a block holds a registration and the state has no record: its deposit can't be paid", async () => {
    const node = fakeNode();
    node.blocks.set(3, [encodeHex0x(extrinsic)]);
    const call = registrationOf(identityOf("poor"), { timestamp: "1700000000000" });
    const { submissions, stateOf } = await submissionsTo(node, unread, call);
    await until("the end", () => stateOf() === "failed");
    const ended = submissions.submission(blockHash(99));
    expect([ended?.reason?.code, ended?.block?.number]).toEqual(["chain_submission_rejected", 3n]);
    expect(ended?.reason?.detail).toContain("deposit");
  });

  test.each([1001, 1002, 1010, 1011])(
    "with the refusal %d of a node are with no node",
    async (code) => {
      const node = fakeNode();
      const error = { code, message: "Extrinsic has invalid format" };
      node.answer = ({ id, method }) =>
        method === "author_submitExtrinsic" ? { frame: JSON.stringify({ id, error }) } : null;
      const session = await ChainSession.open({
        ...commonOf([node.endpoint]),
        endpoint: node.endpoint,
        signal: new AbortController().signal,
        genesis: null,
        anchor: () => null,
      });
      opened.push({ close: () => session.end(new Unusable("the test is over")) });
      expect(await session.submit(new Uint8Array(3))).toEqual({
        verdict: "invalid",
        refusal: error.message,
      });
    },
  );

  test("logs once why a node accepts no calls of the operator, however often it tries", async () => {
    const node = fakeNode();
    const error = {
      code: 1010,
      message: "Invalid Transaction",
      data: "Inability to pay some fees",
    };
    node.answer = ({ id, method }) =>
      method === "author_submitExtrinsic" ? { frame: JSON.stringify({ id, error }) } : null;
    const { stateOf, logged } = await submissionsTo(node, { nonce: 0 });
    await until("some attempts", () => (node.seen.get("author_submitExtrinsic") ?? 0) > 4);
    expect(logged.filter((message) => message.includes("do not accept"))).toHaveLength(1);
    expect(stateOf()).toBe("pending");
  });

  /**
   * How many times the state was read before, each time of a head that was no longer the newest;
   * eight reads are made.
   */
  test.each([0, 1, 6])(
    "does not accept a call again that ended while its state was read, after %d reads",
    async (before) => {
      const node = fakeNode();
      const world = new World(1_800_000_000_000);
      world.operator = operator;
      const person = identityOf("twice");
      const call = registrationOf(person, { timestamp: "1700000000000" });
      world.apply(call);
      const record = encodeHex0x(encodeWith(recordCodec, world.record(person.did)));
      const { endpoints, submissions, stateOf } = await submissionsTo(node, unread, call);
      await until("the connection", () => (node.seen.get("author_submitExtrinsic") ?? 0) > 0);
      let reads = 0;
      let included = Number.POSITIVE_INFINITY;
      node.answer = async ({ id, method, params }) => {
        const keys = params[0] as readonly string[];
        // The account is read with all its counters, and other questions are shorter.
        if (method !== "state_queryStorageAt" || keys.length < 7) return null;
        const { head } = endpoints.session();
        // After the block with the call, as the driver reads it to decide.
        const isAfter = head.number >= included && params[1] === head.hash;
        const isThere = isAfter || reads > before;
        if (!isAfter) node.head++;
        if (!isAfter && reads++ === before) {
          node.blocks.set(node.head, [encodeHex0x(extrinsic)]);
          included = node.head;
          await until("the end of the first", () => stateOf() === "finalized");
        } else if (!isAfter)
          await until("the new head", () => endpoints.session().head.number === BigInt(node.head));
        const changes = keys.map((key, index) => [key, isThere && index === 0 ? record : null]);
        return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
      };
      const again = await submissions.submit(call, "x");
      if (isFault(again)) expect(again.code).toBe("did_already_registered");
      else expect(again.txHash).toBe(blockHash(99));
      expect(reads).toBeGreaterThan(0);
    },
  );
});
