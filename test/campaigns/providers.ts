/**
 * Two providers whose people write to each other while each is killed with SIGKILL at random and
 * started again. Every message must arrive once, verified, and so must its receipt, whatever died
 * meanwhile: what a node knows of the other's people survives it.
 *
 * `bun test/campaigns/providers.ts --messages 1000 --kills 20` prints the figures, and ends with 1
 * when a message was lost, doubled, not verified, or refused for good, or a receipt was lost or
 * doubled. Nodes are the executable of this tree, or the one that `--executable` names.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ClientError } from "../../src/client/base/failure.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { sourceOf } from "../../src/client/mail/content.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { sendPlan } from "../../src/client/mail/send.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { lookUp, senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable, freePort } from "../support/executable.ts";

const { values: flags } = parseArgs({
  options: {
    messages: { type: "string", default: "1000" },
    kills: { type: "string", default: "20" },
    executable: { type: "string" },
  },
});
const [messages, kills] = [Number(flags.messages), Number(flags.kills)];
const command = [flags.executable ?? (await executable())];
const folder = mkdtempSync(join(tmpdir(), "waypost-providers-"));
const findings: string[] = [];

class Provider {
  readonly home = `localhost:${freePort()}`;
  readonly #folder: string;
  #node: Bun.Subprocess | null = null;

  constructor(name: string) {
    this.#folder = join(folder, name);
    mkdirSync(this.#folder);
    const own = `["http://${this.home}"]`;
    const lines = [
      ...["[server]", `listen = ["127.0.0.1:${this.home.split(":")[1]}"]`, 'log_level = "error"'],
      ...["[stores.main]", 'plugin = "lmdb"', 'path = "data"', "block_time_ms = 100"],
      ...[
        "[directory]",
        "enabled = true",
        `public_endpoint = "http://${this.home}"`,
        "rate_limit_loopback = false",
      ],
      ...[
        "[relay]",
        "enabled = true",
        `public_endpoints = ${own}`,
        "allow_http = true",
        "rate_limit_loopback = false",
      ],
      'allow_private = ["127.0.0.0/8", "::1/128"]',
      ...["[cache]", "enabled = true", `public_endpoints = ${own}`],
    ];
    writeFileSync(join(this.#folder, "waypost.toml"), `${lines.join("\n")}\n`);
  }

  async start(): Promise<void> {
    this.#node = Bun.spawn([...command, "serve", "--config", "waypost.toml"], {
      cwd: this.#folder,
      stdout: "ignore",
      stderr: Bun.file(join(this.#folder, "errors")),
    });
    for (const endMs = Date.now() + 120_000; Date.now() < endMs; await Bun.sleep(50)) {
      if ((await fetch(`http://${this.home}/readyz`).catch(() => null))?.ok === true) return;
    }
    throw new Error(`${this.home} does not become ready`);
  }

  async kill(): Promise<void> {
    this.#node?.kill("SIGKILL");
    await this.#node?.exited;
  }
}

type Person = {
  readonly me: Waypost;
  readonly got: Map<string, number>;
  /** How many receipts came for each message. */
  readonly receipts: Map<string, number>;
  readonly reading: Promise<void>;
};

async function person(name: string, { home }: Provider): Promise<Person> {
  const keeping = { keys: memoryKeys(), store: memoryStore(), receipts: true };
  const me = await Waypost.open({ url: `http://${home}`, alias: name, ...keeping });
  const got = new Map<string, number>();
  const read = async () => {
    for await (const message of me.messages()) {
      if (message.verified !== true) findings.push(`${name}: ${message.text} is not verified`);
      got.set(message.text ?? "", (got.get(message.text ?? "") ?? 0) + 1);
      await message.ack();
    }
  };
  const one: Person = { me, got, receipts: new Map(), reading: read() };
  me.on((event) => {
    if (event.type === "receipt")
      for (const id of event.messageIds) one.receipts.set(id, (one.receipts.get(id) ?? 0) + 1);
    if (event.type === "failed" && event.what === "receipt")
      findings.push(`${name}: receipt ${event.error.code}`);
    if (event.type === "stranger_change") findings.push(`${name}: ${event.type} ${event.what}`);
  });
  return one;
}

/** What may fail while a node is dead. */
const passing = ["unreachable", "timed_out"];
const passingCodes = [
  "destination_unavailable",
  "cache_unavailable",
  "service_unavailable",
  "upstream_timeout",
  "shutting_down",
];
let retries = 0;

/** The same bytes again until somebody takes them. */
async function deliver({ me }: Person, to: string, text: string): Promise<void> {
  const again = async <T>(work: () => Promise<T>): Promise<T | null> => {
    for (const endMs = Date.now() + 120_000; ; await Bun.sleep(100)) {
      const result = await work().catch((error: unknown) => error);
      if (!(result instanceof Error)) return result as T;
      const isPassing =
        result instanceof ClientError &&
        (passing.includes(result.kind) || passingCodes.includes(result.code));
      if (!isPassing || Date.now() > endMs) {
        findings.push(`${text}: ${result instanceof ClientError ? result.code : result}`);
        return null;
      }
      retries++;
    }
  };
  const source = await sourceOf(text, {}, { replyTo: null, group: null, wantsReceipt: true });
  const { client, identity } = me;
  const plan = await again(async () =>
    planSend(client, await lookUp(client, to), source.file, {
      sender: await senderOf(client, identity),
    }),
  );
  const options = { relay: client.relay, retries: 0 };
  if (plan !== null) await again(() => sendPlan(plan, source, options));
}

const [north, south] = [new Provider("north"), new Provider("south")];
await Promise.all([north.start(), south.start()]);
const [alice, bob] = await Promise.all([person("alice", north), person("bob", south)]);
await bob.me.store.savePerson(alice.me.did, { isKnown: true });
await alice.me.store.savePerson(bob.me.did, { isKnown: true });
await alice.me.send(`bob@${south.home}`, "first");
await bob.me.send(`alice@${north.home}`, "first");

let isSending = true;
const startMs = performance.now();
const send = async (from: Person, to: string) => {
  for (let n = 0; n < messages / 2; n++) await deliver(from, to, `message ${n}`);
};
const killing = (async () => {
  // Spread over what is left to send.
  for (let kill = 0; kill < kills; kill++) {
    const dueAt = ((kill + Math.random()) * messages) / kills;
    while (isSending && alice.got.size + bob.got.size < dueAt) await Bun.sleep(5);
    const victim = kill % 2 === 0 ? north : south;
    await victim.kill();
    await Bun.sleep(Math.random() * 500);
    await victim.start();
  }
})();
await Promise.all([send(alice, `bob@${south.home}`), send(bob, `alice@${north.home}`)]);
isSending = false;
await killing;

const expected = messages / 2 + 1;
const people = Object.entries({ alice, bob });
// The circuit to a node that was dead stays open for 30 s.
for (const endMs = Date.now() + 120_000; Date.now() < endMs; await Bun.sleep(100))
  if (people.every(([, { got, receipts }]) => got.size >= expected && receipts.size >= expected))
    break;
for (const [name, { got, receipts }] of people) {
  for (const [what, times] of Object.entries({ messages: got, receipts })) {
    if (times.size !== expected) findings.push(`${name} got ${times.size} of ${expected} ${what}`);
    for (const [one, count] of times)
      if (count !== 1) findings.push(`${name} got "${one}" ${count} times (${what})`);
  }
}
const seconds = ((performance.now() - startMs) / 1_000).toFixed(1);
console.log(`${messages} messages, ${kills} kills, ${seconds} s; ${retries} failures that passed`);
for (const finding of findings) console.log(finding);
await Promise.all([alice.me.close(), bob.me.close()]);
await Promise.all([north.kill(), south.kill()]);
rmSync(folder, { recursive: true, force: true });
process.exit(findings.length === 0 ? 0 : 1);
