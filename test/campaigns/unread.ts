/**
 * What slow bodies and unread answers hold of memory, at the compiled executable: rounds of 192
 * bodies of 1.3 MB that stop before their end, and of 250 pulls of which 12 bytes are read, from 40
 * networks or from two; and bodies and envelopes of 11 MB, from 40. An honest person next to them
 * keeps being served, and the process stays below the limit that docs/run.md states.
 *
 * `bun test/campaigns/unread.ts --rounds 4` prints the peak; `--only two` runs the one with two
 * networks, and `--pulls 0` the bodies alone.
 */
import { connect, type Socket } from "node:net";
import { parseArgs } from "node:util";
import { proofHeaders } from "../../src/client/net/reader.ts";
import {
  clientFrom,
  envelopeTo,
  Findings,
  openStage,
  ownMib,
  personAt,
  registerAll,
  residentMib,
  type Stage,
  type StagePerson,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "4" },
    only: { type: "string" },
    bodies: { type: "string" },
    pulls: { type: "string", default: "250" },
    limit: { type: "string", default: "700" },
  },
});
const rounds = Number(values.rounds);
const findings = new Findings();
const pulls = Number(values.pulls);

type Scene = {
  readonly networks: number;
  readonly bodies: number;
  readonly bodyBytes: number;
  /** Of each of four mailboxes: 60 MB. */
  readonly envelopes: number;
  readonly envelopeBytes: number;
};
const usual = { bodies: 192, bodyBytes: 1_300_000, envelopes: 41, envelopeBytes: 1_500_000 };
const scenes: Readonly<Record<string, Scene>> = {
  forty: { networks: 40, ...usual },
  two: { networks: 2, ...usual },
  large: {
    networks: 40,
    bodies: 22,
    bodyBytes: 11_000_000,
    envelopes: 5,
    envelopeBytes: 11_000_000,
  },
};
const holdMs = 6_000;

async function mailboxesAt(
  stage: Stage,
  { envelopes, envelopeBytes }: Scene,
): Promise<StagePerson[]> {
  const people = await Promise.all(Array.from({ length: 4 }, () => personAt(stage.url)));
  const client = clientFrom("127.0.1.1", stage.url, 8);
  await registerAll(client, people);
  const payload = { ciphertext_b64: "A".repeat(envelopeBytes) };
  for (const person of people)
    for (let n = 0; n < envelopes; n++) {
      const { status, body } = await client.post("/cache/store", envelopeTo(person, { payload }));
      if (status !== 202) throw new Error(`an envelope was answered with ${status} ${body}`);
    }
  client.close();
  return people;
}

function socketFrom(address: string, port: number): Socket {
  const socket = connect({ host: "127.0.0.1", port, localAddress: address });
  socket.on("error", () => undefined);
  return socket;
}

/** A store that announces its body, sends most of it, and waits. */
function slowBody(address: string, { port }: Stage, bodyBytes: number): Socket {
  const socket = socketFrom(address, port);
  const head = `POST /cache/store HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\ncontent-type: application/json\r\n`;
  socket.write(`${head}content-length: ${bodyBytes + 1_000}\r\n\r\n`);
  socket.write(Buffer.alloc(bodyBytes, 32));
  return socket;
}

/** The request of a pull of a whole mailbox. */
async function pullOf({ port }: Stage, person: StagePerson): Promise<string> {
  const headers = await proofHeaders(person.reader, "pull", "*");
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `GET /cache/messages/${person.did} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${lines.join("")}\r\n`;
}

/** Sends it, and reads the first bytes of the answer. */
function unreadPull(address: string, { port }: Stage, request: string): Socket {
  const socket = socketFrom(address, port);
  socket.once("readable", () => void socket.read(12));
  socket.write(request);
  return socket;
}

async function run(name: string, scene: Scene): Promise<void> {
  const { networks, bodyBytes } = scene;
  const bodies = Number(values.bodies ?? scene.bodies);
  // The pools of newcomers take what one sender fills four mailboxes with.
  const cache = ["client_rate = 100000", 'recipient_bytes_max = "2GiB"'];
  const stage = await openStage({ lines: { cache } });
  const people = await mailboxesAt(stage, scene);
  const { pid } = stage.node();
  const honest = clientFrom("127.0.9.9", stage.url);
  const [first] = people as [StagePerson];
  const before = [residentMib(pid), ownMib(pid)];
  let [peak, peakOwn] = [0, 0];
  const sampler = setInterval(() => {
    peak = Math.max(peak, residentMib(pid));
    peakOwn = Math.max(peakOwn, ownMib(pid));
  }, 50);
  const statuses: string[] = [];
  for (let round = 0; round < rounds; round++) {
    const addressOf = (n: number) => `127.0.66.${(n % networks) + 1}`;
    const sockets: Socket[] = [];
    // All in one moment: signing between two pulls would give the node time.
    const requests: string[] = [];
    for (let n = 0; n < pulls; n++)
      requests.push(await pullOf(stage, people[n % people.length] ?? first));
    for (let n = 0; n < bodies; n++) sockets.push(slowBody(addressOf(n), stage, bodyBytes));
    for (const [n, request] of requests.entries())
      sockets.push(unreadPull(addressOf(n), stage, request));
    for (let n = 0; n < 5; n++) {
      await Bun.sleep(holdMs / 5);
      const { status, body } = await honest.post("/cache/store", envelopeTo(first));
      statuses.push(status === 202 ? "202" : `${status} ${body.slice(0, 200)}`);
    }
    for (const socket of sockets) socket.destroy();
    await Bun.sleep(500);
  }
  clearInterval(sampler);
  console.log(
    `  ${name}: ${before.join(" / ")} MiB before (resident / anonymous), at most ${peak} / ${peakOwn}; honest stores ${JSON.stringify(tally(statuses))}`,
  );
  findings.expect(peak <= Number(values.limit), `${name}: ${peak} MiB resident`);
  findings.expect(!statuses.some((status) => status !== "202"), `${name}: honest stores failed`);
  honest.close();
  await stage.close();
}

for (const [name, scene] of Object.entries(scenes)) {
  if (values.only !== undefined && values.only !== name) continue;
  await run(name, scene);
}
findings.exit();
