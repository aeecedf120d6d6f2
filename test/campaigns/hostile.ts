/**
 * Forms that no honest client sends, against the compiled executable, with an honest person next to
 * them: no answer is a 500, no request is taken for two, the log has no error, the process stays
 * the same, memory stays bounded, and descriptors come back.
 *
 * - `policy`: the recipient forbids the Cache and long messages; a stranger writes a policy for a
 *   tag of its own (a DID) and sends under that tag, by Relay and by Cache. `unsigned_updates` is
 *   `deny`.
 * - `framing`: lengths that contradict each other, chunks that lie, heads that break off, with a
 *   second request inside.
 * - `heads`: headers and targets of up to 1 MiB. `bodies`: deep, long and endless JSON to the
 *   routes that take some.
 * - `slow`: announced bodies of 25 MiB that trickle. `idle`: thousands of connections that wait.
 * - `sockets`: WebSockets that flood, lie about their frames, and never read. `unread`: retrievals
 *   that no one reads.
 *
 * `bun test/campaigns/hostile.ts --scale 1` prints the figures; `--only framing` runs one of them.
 */
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { parseArgs } from "node:util";
import { type OwnerUpdate, signOwnerUpdate } from "../../src/client/identity/change.ts";
import { proofHeaders } from "../../src/client/net/reader.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import {
  clientFrom,
  envelopeTo,
  Findings,
  openStage,
  percentile,
  personAt,
  registerAll,
  residentMib,
  type Stage,
  type StagePerson,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: { scale: { type: "string", default: "1" }, only: { type: "string" } },
});
const scale = Number(values.scale);
const findings = new Findings();
const mebibyte = 1024 ** 2;
const json = { "content-type": "application/json" };

// --------------------------------------------------------------------------------------- raw bytes

type Exchange = { readonly text: string; readonly closed: boolean };

/** Sends bytes over a connection of its own and reads until it is closed or silent for a while. */
function exchange(stage: Stage, bytes: string | Uint8Array, silentMs = 1_500): Promise<Exchange> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port: stage.port, localAddress: "127.0.4.1" });
    let text = "";
    const done = (closed: boolean): void => {
      resolve({ text, closed });
      socket.destroy();
    };
    socket.setTimeout(silentMs, () => done(false));
    socket.on("connect", () => socket.write(bytes));
    socket.on("data", (part) => (text += part.toString("latin1")));
    socket.on("error", () => done(true));
    socket.on("close", () => done(true));
  });
}

const statusesOf = ({ text }: Exchange): number[] =>
  [...text.matchAll(/HTTP\/1\.[01] (\d{3})/g)].map((found) => Number(found[1]));

/** Many connections that hold on to what they began. */
async function openMany(
  stage: Stage,
  count: number,
  began: (socket: Socket, place: number) => void,
): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let place = 0; place < count; place++) {
    const localAddress = `127.0.5.${1 + (place % 200)}`;
    const socket = connect({ host: "127.0.0.1", port: stage.port, localAddress });
    socket.on("connect", () => began(socket, place));
    socket.on("error", () => undefined);
    sockets.push(socket);
    if (place % 100 === 99) await Bun.sleep(10);
  }
  await Bun.sleep(500);
  return sockets;
}

// ----------------------------------------------------------------------------------- honest person

type Measured = { readonly statuses: Record<string, number>; readonly p99: number };

/** Stores while the attack goes on; every one must be taken. */
async function beHonest(stage: Stage, to: StagePerson, forMs: number): Promise<Measured> {
  const client = clientFrom("127.0.0.7", stage.url, 4);
  const statuses: number[] = [];
  const times: number[] = [];
  for (
    const endsAtMs = performance.now() + forMs;
    performance.now() < endsAtMs;
    await Bun.sleep(50)
  ) {
    const answered = await client.post("/cache/store", envelopeTo(to));
    statuses.push(answered.status);
    times.push(answered.ms);
  }
  client.close();
  const measured = { statuses: tally(statuses), p99: percentile(times, 99) };
  findings.expect(
    Object.keys(measured.statuses).join() === "202",
    `honest stores: ${JSON.stringify(measured.statuses)}`,
  );
  return measured;
}

const descriptorsOf = (stage: Stage): number => readdirSync(`/proc/${stage.node().pid}/fd`).length;

async function registered(stage: Stage, count: number): Promise<StagePerson[]> {
  const people = await Promise.all(Array.from({ length: count }, () => personAt(stage.url)));
  const client = clientFrom("127.0.0.6", stage.url);
  await registerAll(client, people);
  client.close();
  return people;
}

// ------------------------------------------------------------------------------------------ policy

async function attackPolicy(stage: Stage): Promise<void> {
  const [bob, mallory] = (await registered(stage, 2)) as [StagePerson, StagePerson];
  const client = clientFrom("127.0.0.8", stage.url);
  const update = async (who: StagePerson, made: OwnerUpdate): Promise<number> => {
    const signer = { keyId: "root", seed: who.identity.rootSeed };
    const { method, path, body, headers } = await signOwnerUpdate(made, signer, {
      nowMs: Date.now(),
      genesisHash: null,
    });
    return (await client.ask({ method, path, headers: { ...json, ...headers }, body })).status;
  };
  const strict = { effective_ttl: 100_000, max_message_bytes: 1_000, cache_eligible: false };
  const lax = { effective_ttl: 100_000, max_message_bytes: 10_000_000, cache_eligible: true };
  const tag = mallory.did;
  const unsigned = await client.ask({
    method: "PUT",
    path: `/delivery-policies/tags/${tag}`,
    headers: json,
    body: JSON.stringify({ did: tag, policy: lax }),
  });
  findings.expect(
    unsigned.status === 403,
    `an unsigned tag policy is answered with ${unsigned.status}`,
  );
  const written = [
    await update(bob, { extrinsic: "set_delivery_policy", did: bob.did, value: strict }),
    await update(mallory, { extrinsic: "set_tag_policy", did: tag, value: lax }),
    await update(mallory, { extrinsic: "set_tag_policy", did: bob.did, value: lax }),
    await update(mallory, { extrinsic: "set_delivery_policy", did: bob.did, value: lax }),
  ];
  findings.expect(
    written.join() === "202,202,401,401",
    `the policies are answered with ${written.join()}`,
  );
  for (
    let tries = 0;
    tries < 200 && (await client.ask({ path: `/delivery-policies/tags/${tag}` })).status !== 200;
    tries++
  )
    await Bun.sleep(50);
  await Bun.sleep(500);
  const large = { payload: { ciphertext_b64: "A".repeat(8_000) } };
  const send = async (path: string, more: JsonObject = {}) =>
    (await client.post(path, envelopeTo(bob, { ...large, ...more }))).status;
  const refused = {
    plain: await send("/cache/store"),
    tagged: await send("/cache/store", { tag }),
    taggedRelay: await send("/relay", { tag }),
    hinted: await send("/relay", { tag, delivery_hint: "cache" }),
  };
  console.log(`  ${JSON.stringify(refused)}`);
  for (const [what, status] of Object.entries(refused)) {
    findings.expect(
      status === 403 || status === 413,
      `${what}: ${status} under a policy that forbids it`,
    );
  }
  const links = { tag_policies: [tag] };
  const linked = await update(bob, {
    extrinsic: "set_delivery_policy_links",
    did: bob.did,
    value: links,
  });
  findings.expect(linked === 202, `the links are answered with ${linked}`);
  await Bun.sleep(1_000);
  const admitted = await send("/cache/store", { tag });
  findings.expect(
    admitted === 403 || admitted === 413,
    `an admitted tag lifts the recipient's policy: ${admitted}`,
  );
  client.close();
}

// ----------------------------------------------------------------------------------------- framing

const inner = "GET /problems HTTP/1.1\r\nHost: b.example\r\n\r\n";
const post = (lines: string, body: string, path = "/cache/store"): string =>
  `POST ${path} HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n${lines}\r\n\r\n${body}`;
const chunked = `0\r\n\r\n${inner}`;

/** Requests that two readers could split differently; each is one request, or none. */
const framings: Readonly<Record<string, string>> = {
  "equal lengths twice": post("Content-Length: 2\r\nContent-Length: 2", "{}"),
  "different lengths": post(`Content-Length: 0\r\nContent-Length: ${inner.length}`, inner),
  "different lengths, longer first": post(
    `Content-Length: ${inner.length}\r\nContent-Length: 0`,
    inner,
  ),
  "a list of lengths": post(`Content-Length: 0, ${inner.length}`, inner),
  "length and chunks": post(
    `Content-Length: ${chunked.length}\r\nTransfer-Encoding: chunked`,
    chunked,
  ),
  "chunks and length": post(
    `Transfer-Encoding: chunked\r\nContent-Length: ${chunked.length}`,
    chunked,
  ),
  "chunks twice": post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunked),
  "chunks and identity": post("Transfer-Encoding: chunked, identity", chunked),
  identity: post(`Transfer-Encoding: identity\r\nContent-Length: ${inner.length}`, inner),
  "an unknown coding": post("Transfer-Encoding: xchunked", chunked),
  "a vertical tab": post("Transfer-Encoding: \u000bchunked", chunked),
  "a folded coding": post("Transfer-Encoding:\r\n chunked", chunked),
  "a space before the colon": post("Transfer-Encoding : chunked", chunked),
  "a signed length": post(`Content-Length: +${inner.length}`, inner),
  "a negative length": post("Content-Length: -1", inner),
  "a hexadecimal length": post("Content-Length: 0x10", inner),
  "a length beyond all numbers": post("Content-Length: 18446744073709551616", inner),
  "a chunk beyond all numbers": post(
    "Transfer-Encoding: chunked",
    `FFFFFFFFFFFFFFFFF\r\n{}\r\n${chunked}`,
  ),
  "a negative chunk": post("Transfer-Encoding: chunked", `-2\r\n{}\r\n${chunked}`),
  "a chunk with an endless extension": post(
    "Transfer-Encoding: chunked",
    `2;${"a".repeat(70_000)}\r\n{}\r\n${chunked}`,
  ),
  "a chunk without its end": post("Transfer-Encoding: chunked", `2\r\n{}XX${chunked}`),
  "a chunk size on a bare line feed": post("Transfer-Encoding: chunked", `2\n{}\r\n${chunked}`),
  "a trailer that names a length": post(
    "Transfer-Encoding: chunked",
    `0\r\nContent-Length: 9\r\n\r\n${inner}`,
  ),
  "bare line feeds": `POST /cache/store HTTP/1.1\nHost: a\nContent-Length: 0\n\n${inner}`,
  "a zero byte in a header": post("X-A: a\u0000b\r\nContent-Length: 0", ""),
  "a carriage return in a header": post("X-A: a\rContent-Length: 9\r\nContent-Length: 0", ""),
  "two hosts": "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
  "no host": "GET /healthz HTTP/1.1\r\n\r\n",
  "HTTP/1.0 without a host": "GET /healthz HTTP/1.0\r\n\r\n",
  "HTTP/0.9": "GET /healthz\r\n",
  "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  "a target of another host": "GET http://b.example/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
  "a target with a space": "GET /health z HTTP/1.1\r\nHost: a\r\n\r\n",
  CONNECT: "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
  TRACE: "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
  "an asterisk": "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
  "a body of a GET": `GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`,
  "an invalid upgrade":
    "GET /cache/store HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
  "an expectation": post("Expect: 100-continue\r\nContent-Length: 2", "{}"),
  "an unknown expectation": post("Expect: 200-ok\r\nContent-Length: 2", "{}"),
  "a TLS hello": "\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003",
};
/** Those whose first request is whole, after which another one may follow on the connection. */
const mayFollow = [
  "a trailer that names a length",
  "an unknown expectation",
  "a body of a GET",
  "equal lengths twice",
];

async function attackFraming(stage: Stage): Promise<void> {
  const seen: Record<string, string> = {};
  for (const [name, bytes] of Object.entries(framings)) {
    const answer = await exchange(stage, Buffer.from(bytes, "latin1"), 1_000);
    const statuses = statusesOf(answer);
    seen[name] = statuses.join(" ") || (answer.closed ? "closed" : "silent");
    findings.expect(!statuses.some((status) => status === 500), `${name}: ${seen[name]}`);
    const answered = statuses.filter((status) => status !== 100).length;
    findings.expect(
      answered <= 1 || mayFollow.includes(name),
      `${name}: one request, ${answered} answers`,
    );
  }
  console.log(`  ${JSON.stringify(tally(Object.values(seen)))}`);
  console.log(
    `  ${Object.entries(seen)
      .map(([name, what]) => `${name}: ${what}`)
      .join("; ")}`,
  );
}

// ----------------------------------------------------------------------------------- heads, bodies

async function attackHeads(stage: Stage): Promise<void> {
  const long = "a".repeat(64 * 1_024);
  const get = (target: string, lines: string): string =>
    `GET ${target} HTTP/1.1\r\nHost: a\r\n${lines}\r\n`;
  const heads: Record<string, string> = {
    "one header of 64 KiB": get("/healthz", `X-A: ${long}\r\n`),
    "a name of 64 KiB": get("/healthz", `X-${long}: a\r\n`),
    "1,000 headers": get(
      "/healthz",
      Array.from({ length: 1_000 }, (_, i) => `X-${i}: a\r\n`).join(""),
    ),
    "16 MiB of headers": get("/healthz", `X-A: ${long}\r\n`.repeat(256)),
    "a target of 64 KiB": get(`/${long}`, ""),
    "a target of 1 MiB": get(`/${long.repeat(16)}`, ""),
    "a query of 12 KiB": get(
      `/cache/messages/did:svc:1111111111111111111111?cursor=${"a".repeat(12_000)}`,
      "",
    ),
    "a path of 12 KiB": get(`/resolve/${"%2e".repeat(4_000)}`, ""),
    "a proof of 12 KiB": get(
      "/cache/messages/did:svc:1111111111111111111111",
      `X-Signature: ${"a".repeat(12_000)}\r\n`,
    ),
    "a forwarded chain": get("/healthz", `X-Forwarded-For: ${"1.1.1.1,".repeat(1_500)}\r\n`),
    "a request id": get("/healthz", `X-Request-Id: ${"a".repeat(10_000)}\r\n`),
  };
  const seen: Record<string, string> = {};
  for (const [name, bytes] of Object.entries(heads)) {
    const statuses = statusesOf(await exchange(stage, bytes));
    seen[name] = statuses.join(" ") || "closed";
    findings.expect(
      statuses.every((status) => status < 500 || status === 505),
      `${name}: ${seen[name]}`,
    );
  }
  console.log(`  ${JSON.stringify(seen)}`);
}

const routes = ["/cache/store", "/cache/ack", "/relay", "/register-did", "/register-did/prepare"];

async function attackBodies(stage: Stage): Promise<void> {
  const [carol] = (await registered(stage, 1)) as [StagePerson];
  const nested = (depth: number, open: string, close: string) =>
    open.repeat(depth) + close.repeat(depth);
  const bodies: Record<string, string | Uint8Array> = {
    "130,000 deep": nested(130_000, "[", "]"),
    "130,000 deep in members": nested(60_000, '{"a":', "}").replace(":}", ":1}"),
    "deep in payload": `{"payload":${nested(100_000, "[", "]")}}`,
    "24 MiB of brackets": "[".repeat(24 * mebibyte),
    "24 MiB of one text": `{"payload":"${"a".repeat(24 * mebibyte)}"}`,
    "24 MiB of escapes": `{"payload":{"a":"${"\\u0041".repeat(4 * mebibyte)}"}}`,
    "4 MiB of members": `{"payload":{${Array.from({ length: 400_000 }, (_, i) => `"${i}":0`).join()}}}`,
    "2,000,000 numbers": `{"payload":{"a":[${"0,".repeat(2_000_000)}0]}}`,
    "a number of a million digits": `{"payload":{"a":${"9".repeat(1_000_000)}}}`,
    "one name 100,000 times": `{${'"payload":0,'.repeat(100_000)}"a":0}`,
    "no UTF-8": new Uint8Array(mebibyte).fill(0xff),
    "zero bytes": new Uint8Array(mebibyte),
  };
  const client = clientFrom("127.0.4.2", stage.url, 4);
  const honest = beHonest(stage, carol, 1_000 * scale * 20);
  let slowest = { ms: 0, what: "" };
  const statuses: number[] = [];
  for (const [name, body] of Object.entries(bodies)) {
    for (const route of routes) {
      const answered = await client.post(route, body);
      statuses.push(answered.status);
      findings.expect(
        answered.status !== 0 && answered.status < 500,
        `${name} to ${route}: ${answered.status}`,
      );
      if (answered.ms > slowest.ms)
        slowest = { ms: Math.round(answered.ms), what: `${name} to ${route}` };
    }
  }
  client.close();
  console.log(`  ${JSON.stringify(tally(statuses))}; slowest ${JSON.stringify(slowest)}`);
  console.log(`  honest stores ${JSON.stringify(await honest)}`);
}

// ----------------------------------------------------------------------------------- slow and idle

async function attackSlowly(stage: Stage): Promise<void> {
  const [carol] = (await registered(stage, 1)) as [StagePerson];
  const part = Buffer.alloc(32 * 1_024, 0x20);
  const sockets = await openMany(stage, 400 * scale, (socket) =>
    socket.write(post(`Content-Length: ${25 * mebibyte}`, "{")),
  );
  const timer = setInterval(() => {
    for (const socket of sockets) if (!socket.destroyed) socket.write(part);
  }, 500);
  const honest = await beHonest(stage, carol, 20_000 * scale);
  clearInterval(timer);
  const mib = residentMib(stage.node().pid);
  for (const socket of sockets) socket.destroy();
  console.log(
    `  ${sockets.length} bodies of 25 MiB at 64 KiB/s: honest ${JSON.stringify(honest)}, ${mib} MiB`,
  );
  findings.expect(mib < 1_200, `memory is ${mib} MiB`);
}

async function waitIdle(stage: Stage): Promise<void> {
  const [carol] = (await registered(stage, 1)) as [StagePerson];
  const before = { mib: residentMib(stage.node().pid), descriptors: descriptorsOf(stage) };
  const sockets = await openMany(stage, 5_000 * scale, (socket, place) => {
    if (place % 2 === 0) socket.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    else socket.write("GET /healthz HTTP/1.1\r\nHo");
  });
  const honest = await beHonest(stage, carol, 5_000);
  const during = { mib: residentMib(stage.node().pid), descriptors: descriptorsOf(stage) };
  for (const socket of sockets) socket.destroy();
  for (let tries = 0; tries < 50 && descriptorsOf(stage) > before.descriptors + 50; tries++)
    await Bun.sleep(200);
  const after = descriptorsOf(stage);
  console.log(`  ${JSON.stringify({ before, during, after })}, honest ${JSON.stringify(honest)}`);
  findings.expect(
    after <= before.descriptors + 50,
    `${after} descriptors after ${before.descriptors}`,
  );
  findings.expect(
    during.mib - before.mib < 300,
    `memory grew from ${before.mib} to ${during.mib} MiB`,
  );
}

// ---------------------------------------------------------------------- sockets and unread answers

/** A client's frame with a mask of zeros. */
function frameOf(
  opcode: number,
  payload: Uint8Array,
  { length = payload.length, masked = true, fin = true } = {},
) {
  const head = Buffer.alloc(10);
  head[0] = (fin ? 0x80 : 0) | opcode;
  head[1] = (masked ? 0x80 : 0) | 127;
  head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, Buffer.alloc(masked ? 4 : 0), payload]);
}

const upgradeOf = (did: string, place: number): string =>
  `GET /ws/${did}/device-${place} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

const junk = Buffer.alloc(8 * 1_024, 0x7b);
const floods: readonly (() => Uint8Array)[] = [
  () => frameOf(1, junk),
  () => frameOf(2, junk),
  () => frameOf(9, junk.subarray(0, 125)),
  () => frameOf(9, junk),
  () => frameOf(1, junk, { fin: false }),
  () => frameOf(0, junk),
  () => frameOf(1, junk, { masked: false }),
  () => frameOf(1, junk, { length: 2 ** 40 }),
  () => frameOf(5, junk),
  () => frameOf(1, Buffer.alloc(mebibyte, 0x61)),
  () => frameOf(1, Buffer.from('{"type":"auth"}')),
  () => frameOf(8, Buffer.from([0x03])),
  () => frameOf(1, Buffer.from([0xff, 0xfe])),
];

async function attackSockets(stage: Stage): Promise<void> {
  const [carol] = (await registered(stage, 1)) as [StagePerson];
  const before = { mib: residentMib(stage.node().pid), descriptors: descriptorsOf(stage) };
  const sockets = await openMany(stage, 2_000 * scale, (socket, place) => {
    socket.pause();
    socket.write(upgradeOf(carol.did, place));
  });
  let most = 0;
  const timer = setInterval(() => {
    for (const [place, socket] of sockets.entries())
      if (!socket.destroyed && socket.writableLength < mebibyte)
        socket.write(floods[place % floods.length]!());
    most = Math.max(most, residentMib(stage.node().pid));
  }, 200);
  const honest = await beHonest(stage, carol, 15_000);
  clearInterval(timer);
  for (const socket of sockets) socket.destroy();
  for (let tries = 0; tries < 50 && descriptorsOf(stage) > before.descriptors + 50; tries++)
    await Bun.sleep(200);
  console.log(
    `  ${sockets.length} sockets: honest ${JSON.stringify(honest)}, ${before.mib} to ${most} MiB`,
  );
  console.log(`  descriptors ${before.descriptors} before, ${descriptorsOf(stage)} after`);
  findings.expect(
    descriptorsOf(stage) <= before.descriptors + 50,
    `${descriptorsOf(stage)} descriptors are left`,
  );
  findings.expect(most - before.mib < 500, `memory grew from ${before.mib} to ${most} MiB`);
}

async function leaveUnread(stage: Stage): Promise<void> {
  const people = await registered(stage, 20);
  const heads = await Promise.all(
    people.map(async ({ did, reader }) => {
      const lines = await proofHeaders(reader, "pull", "*");
      const text = Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`);
      return `GET /cache/messages/${did} HTTP/1.1\r\nHost: a\r\n${text.join("")}\r\n`;
    }),
  );
  const before = residentMib(stage.node().pid);
  const sockets = await openMany(stage, heads.length, (socket, place) => {
    socket.pause();
    socket.write(heads[place] ?? "");
  });
  const honest = await Promise.all(people.map((person) => beHonest(stage, person, 20_000 * scale)));
  const after = residentMib(stage.node().pid);
  for (const socket of sockets) socket.destroy();
  console.log(
    `  ${sockets.length} unread: ${before} to ${after} MiB, honest ${JSON.stringify(honest[0])}`,
  );
  findings.expect(after - before < 300, `memory grew from ${before} to ${after} MiB`);
}

// -------------------------------------------------------------------------------------------- main

const attacks: Readonly<Record<string, (stage: Stage) => Promise<void>>> = {
  policy: attackPolicy,
  framing: attackFraming,
  heads: attackHeads,
  bodies: attackBodies,
  slow: attackSlowly,
  idle: waitIdle,
  sockets: attackSockets,
  unread: leaveUnread,
};

for (const [name, attack] of Object.entries(attacks)) {
  if (values.only !== undefined && values.only !== name) continue;
  console.log(name);
  const stage = await openStage({ lines: { directory: ['unsigned_updates = "deny"'] } });
  const { pid } = stage.node();
  await attack(stage);
  const alive = await clientFrom("127.0.0.9", stage.url).ask({ path: "/readyz" });
  findings.expect(
    alive.status === 200 && stage.node().pid === pid && residentMib(pid) > 0,
    `${name}: not ready after it`,
  );
  const code = await stage.node().kill("SIGTERM");
  findings.expect(code === 0, `${name}: it ended with ${code}`);
  const errors = (await stage.node().output())
    .split("\n")
    .filter((line) => line.includes('"level":"error"'));
  findings.expect(
    errors.length === 0,
    `${name}: ${errors.length} errors in the log, such as ${errors[0]}`,
  );
  await stage.close();
}
findings.exit();
