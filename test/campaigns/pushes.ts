/**
 * Strangers subscribe for pushes at hosts that take a connection and say nothing, against the
 * compiled executable: 50 subscriptions a second, each at another host. Next to them, eight people
 * with a sleeping device each are sent a message, again and again, and each device must be woken
 * within two seconds.
 *
 * - `one`: from one network, with eight DIDs.
 * - `many`: from 50 networks, so that no rate ends it.
 *
 * `bun test/campaigns/pushes.ts --seconds 60` prints the figures; `--only many` runs one of them.
 */
import { parseArgs } from "node:util";
import { proofHeaders } from "../../src/client/net/reader.ts";
import { encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { type Device, type PushService, startPushService } from "../support/push-service.ts";
import {
  type Answered,
  clientFrom,
  envelopeTo,
  Findings,
  openStage,
  percentile,
  personAt,
  registerAll,
  type StageClient,
  type StagePerson,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "20" }, only: { type: "string" } },
});
const seconds = Number(values.seconds);
const perSecond = 50;
const withinMs = 2_000;
/** A device is rung once in 30 s. */
const intervalMs = 30_500;
const findings = new Findings();

async function put(
  client: StageClient,
  person: StagePerson,
  id: string,
  subscription: object,
): Promise<Answered> {
  const body = JSON.stringify(subscription);
  const subject = `${id},${encodeHex(sha256(utf8(body)))}`;
  const headers = {
    ...(await proofHeaders(person.reader, "push", subject)),
    "content-type": "application/json",
  };
  return client.ask({ method: "PUT", path: `/cache/push/${person.did}/${id}`, headers, body });
}

async function peopleAt(client: StageClient, url: string, count: number): Promise<StagePerson[]> {
  const people = await Promise.all(Array.from({ length: count }, () => personAt(url)));
  await registerAll(client, people);
  return people;
}

async function confirm(client: StageClient, person: StagePerson, device: Device): Promise<void> {
  await put(client, person, "phone", device.subscription);
  for (let tries = 0; device.token() === null && tries < 400; tries++) await Bun.sleep(10);
  const { status } = await put(client, person, "phone", {
    ...device.subscription,
    token: device.token(),
  });
  findings.expect(status === 200, `a subscription was not confirmed: ${status}`);
}

/**
 * Subscribes at one new host after the other until it is ended; the statuses that it was answered.
 */
function flood(url: string, own: readonly StagePerson[], networks: number, port: number) {
  const clients = Array.from({ length: networks }, (_, n) =>
    clientFrom(`127.0.66.${n + 1}`, url, 4),
  );
  const { keys } = floodDevice;
  const statuses: number[] = [];
  let sent = 0;
  const one = async (n: number): Promise<void> => {
    const endpoint = `http://127.9.${n >> 8}.${n & 255}:${port}/`;
    const [client, person] = [clients[n % networks], own[n % own.length]];
    if (client === undefined || person === undefined) return;
    const { status } = await put(client, person, `d${n % 10}`, { endpoint, keys });
    statuses.push(status);
  };
  const timer = setInterval(() => void one(sent++), 1_000 / perSecond);
  return () => {
    clearInterval(timer);
    for (const client of clients) client.close();
    return tally(statuses);
  };
}

const hanging = Bun.listen({ hostname: "0.0.0.0", port: 0, socket: { data: () => undefined } });
const service: PushService = await startPushService();
const floodDevice = service.device("flood").subscription;

async function run(name: string, networks: number): Promise<void> {
  const stage = await openStage({
    lines: {
      cache: [
        'signing_key_file = "key"',
        "[push]",
        "enabled = true",
        'contact = "mailto:a@b.example"',
      ],
      directory: ["registration_rate = 1000"],
    },
    files: { key: `${"5b".repeat(32)}\n` },
  });
  const client = clientFrom("127.0.1.1", stage.url);
  const people = await peopleAt(client, stage.url, 8);
  const own = await peopleAt(client, stage.url, Math.max(8, networks));
  const devices = people.map(({ did }) => service.device(did.slice(-12)));
  for (const [n, person] of people.entries()) await confirm(client, person, devices[n] as Device);
  const end = flood(stage.url, own, networks, hanging.port);
  const times: number[] = [];
  const untilMs = performance.now() + seconds * 1_000;
  for (;;) {
    await Bun.sleep(2_000);
    const woken = devices.map((device) => device.woken().length);
    const startMs = performance.now();
    await Promise.all(people.map((person) => client.post("/cache/store", envelopeTo(person))));
    const isAwake = (device: Device, n: number) => device.woken().length > (woken[n] ?? 0);
    while (!devices.every(isAwake) && performance.now() < startMs + 10_000) await Bun.sleep(10);
    for (const [n, device] of devices.entries()) {
      const last = device.pushes().at(-1)?.atMs ?? Number.POSITIVE_INFINITY;
      times.push(isAwake(device, n) ? last - startMs : Number.POSITIVE_INFINITY);
    }
    if (untilMs - performance.now() < intervalMs) break;
    await Bun.sleep(intervalMs);
  }
  const answered = end();
  const late = times.filter((ms) => ms > withinMs).length;
  console.log(
    `  ${times.length - late} of ${times.length} devices woken within ${withinMs} ms, p50 ${percentile(times, 50)}, p99 ${percentile(times, 99)}; subscriptions ${JSON.stringify(answered)}`,
  );
  findings.expect(times.length > 0 && late === 0, `${name}: ${late} devices slept on`);
  client.close();
  await stage.close();
}

for (const [name, networks] of [["one", 1] as const, ["many", 50] as const]) {
  if (values.only !== undefined && values.only !== name) continue;
  console.log(name);
  await run(name, networks);
}
findings.exit();
