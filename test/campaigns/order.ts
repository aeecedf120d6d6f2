/**
 * The order in which `messages()` hands over: two programs with stores in files write to each other
 * while each of them and their node are killed with SIGKILL at random. Every message must be handed
 * over, once but for the one that a program had when it died, in the order in which they were sent,
 * and each store must have all in that order. One that comes behind a later one is a finding, with
 * what died meanwhile; unless it came more than half a minute behind it, which the later one
 * doesn't wait for.
 *
 * `bun test/campaigns/order.ts --kills 500` prints the figures, and ends with 1 after a finding.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable, freePort } from "../support/executable.ts";

const { values: flags } = parseArgs({ options: { kills: { type: "string", default: "500" } } });
const kills = Number(flags.kills);
const folder = mkdtempSync(join(tmpdir(), "waypost-order-"));
const url = `http://127.0.0.1:${freePort()}`;
const findings: string[] = [];
const main = await executable();

writeFileSync(
  join(folder, "waypost.toml"),
  `[server]
listen = ["${new URL(url).host}"]
log_level = "error"
[stores.main]
plugin = "lmdb"
path = "data"
block_time_ms = 50
[directory]
enabled = true
rate_limit_loopback = false
[relay]
enabled = true
public_endpoints = ["${url}"]
allow_http = true
allow_private = ["127.0.0.0/8"]
rate_limit_loopback = false
[cache]
enabled = true
public_endpoints = ["${url}"]
`,
);

let node: Bun.Subprocess | undefined;
async function startNode(): Promise<void> {
  node = Bun.spawn([main, "serve", "--config", "waypost.toml"], {
    cwd: folder,
    stdout: "ignore",
    stderr: Bun.file(join(folder, "errors")),
  });
  for (const endMs = Date.now() + 60_000; Date.now() < endMs; await Bun.sleep(30))
    if ((await fetch(`${url}/readyz`).catch(() => null))?.ok === true) return;
  throw new Error("the node does not become ready");
}

type Handed = { readonly number: number; readonly sentMs: number; readonly atMs: number };

class Program {
  readonly place: string;
  did = "";
  next = 0;
  /** In the order of handing over; of which run of the program. */
  readonly handed: Handed[] = [];
  run = 0;
  #child: Bun.Subprocess | null = null;
  #reading: Promise<void> = Promise.resolve();

  constructor(name: string) {
    this.place = join(folder, name);
    mkdirSync(this.place);
  }

  start(to: string): void {
    this.run++;
    const child = Bun.spawn(
      [
        process.execPath,
        join(import.meta.dir, "order-program.ts"),
        ...[url, this.place, to, String(this.next)],
      ],
      { stdout: "pipe", stderr: Bun.file(join(this.place, "errors")) },
    );
    this.#child = child;
    this.#reading = this.#read(child.stdout);
  }

  async #read(stdout: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    let text = "";
    for await (const bytes of stdout) {
      text += decoder.decode(bytes, { stream: true });
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) this.#hear(line.split(" "));
    }
  }

  #hear([what = "", first = "", second = ""]: readonly string[]): void {
    if (what === "did") this.did = first;
    if (what === "sent") this.next = Number(first) + 1;
    if (what === "got")
      this.handed.push({ number: Number(first), sentMs: Number(second), atMs: Date.now() });
  }

  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await this.#child?.exited;
    await this.#reading;
  }
}

const random = (below: number) => Math.floor(Math.random() * below);
const wait = async (isDone: () => boolean, timeoutMs: number) => {
  for (const endMs = Date.now() + timeoutMs; !isDone() && Date.now() < endMs; ) await Bun.sleep(50);
};

await startNode();
const programs = [new Program("alice"), new Program("bob")] as const;
const otherOf = (one: Program) => (one === programs[0] ? programs[1] : programs[0]);
for (const one of programs) one.start("");
await wait(() => programs.every(({ did }) => did !== ""), 60_000);
for (const one of programs) await one.kill();
for (const one of programs) one.start(otherOf(one).did);

/** What died when, as a reader sees it. */
type Death = { readonly who: "node" | "sender" | "reader"; readonly atMs: number };
const deaths = new Map<Program, Death[]>(programs.map((one) => [one, []]));
const note = (one: Program, who: Death["who"]) => deaths.get(one)?.push({ who, atMs: Date.now() });

for (let kill = 0; kill < kills; kill++) {
  await Bun.sleep(150 + random(600));
  const which = random(3);
  const one = programs[which];
  if (one === undefined) {
    node?.kill("SIGKILL");
    await node?.exited;
    for (const each of programs) note(each, "node");
    await Bun.sleep(random(200));
    await startNode();
    continue;
  }
  await one.kill();
  note(one, "reader");
  note(otherOf(one), "sender");
  // What was safe when it died may not have been printed.
  one.start(otherOf(one).did);
}

// A message that was safe and not printed has the number of the next one: both are there.
for (const one of programs) await one.kill();
for (const one of programs) one.start("");
const known = (one: Program) => new Set(one.handed.map(({ number }) => number));
const isWhole = () =>
  programs.every((one) => {
    const got = known(one);
    return Array.from({ length: otherOf(one).next }, (_, i) => i).every((i) => got.has(i));
  });
// An outbox may be long by then: as long as something arrives.
for (let before = -1; !isWhole(); ) {
  const now = programs.reduce((sum, one) => sum + one.handed.length, 0);
  if (now === before) break;
  before = now;
  await wait(isWhole, 60_000);
}
for (const one of programs) await one.kill();

/** So long a message waits for an earlier one. */
const heldMs = 30_000;
let [count, behind, late] = [0, 0, 0];
/** How many came behind a later one, by what had died while they were on their way. */
const causes = new Map<string, number>();
for (const one of programs) {
  const got = known(one);
  const lost = Array.from({ length: otherOf(one).next }, (_, i) => i).filter((i) => !got.has(i));
  if (lost.length > 0) findings.push(`${lost.length} lost: ${lost.slice(0, 10)}`);
  // One that the loop had when the process died is handed over again at once.
  const times = new Map<number, Set<number>>();
  for (const { number, sentMs } of one.handed)
    times.set(number, (times.get(number) ?? new Set()).add(sentMs));
  const firsts = one.handed.filter(
    ({ sentMs }, i) => one.handed.findIndex((other) => other.sentMs === sentMs) === i,
  );
  count += firsts.length;
  const again = one.handed.length - firsts.length;
  if (again > one.run) findings.push(`${again} handed over again in ${one.run} runs`);
  let last = { sentMs: 0, atMs: 0 };
  for (const { sentMs, atMs } of firsts) {
    if (sentMs >= last.sentMs) {
      last = { sentMs, atMs };
      continue;
    }
    // The later one was handed over when it had waited for so long, or what is behind it.
    if (last.atMs - last.sentMs >= heldMs) {
      late++;
      continue;
    }
    behind++;
    // Of what was on its way, sent and not handed over, when something died.
    const died = (deaths.get(one) ?? []).filter(
      (death) => death.atMs >= sentMs - 50 && death.atMs <= atMs,
    );
    const who = [...new Set(died.map((death) => death.who))].sort().join("+") || "nothing";
    causes.set(who, (causes.get(who) ?? 0) + 1);
  }
  const me = await Waypost.open({
    url,
    keys: fileKeys(join(one.place, "keys")),
    store: fileStore(join(one.place, "store.sqlite")),
  });
  const stored: number[] = [];
  let before: Awaited<ReturnType<typeof me.store.messages>>[number] | undefined;
  for (;;) {
    const page = await me.store.messages(otherOf(one).did, {
      limit: 1_000,
      ...(before === undefined ? {} : { before }),
    });
    stored.unshift(...page.filter(({ isOwn }) => !isOwn).map(({ sentAt }) => +sentAt));
    if (page.length < 1_000) break;
    [before] = page;
  }
  await me.close();
  if (new Set(stored).size !== stored.length) findings.push("doubled in the store");
  if (stored.some((ms, i) => i > 0 && ms < (stored[i - 1] ?? 0)))
    findings.push("the store has another order");
  if (stored.length !== firsts.length)
    findings.push(`${stored.length} stored, ${firsts.length} handed over`);
}
node?.kill("SIGKILL");
rmSync(folder, { recursive: true, force: true });
const list = [...causes].map(([who, times]) => `${who} ${times}`).join(", ");
if (behind > 0) findings.push(`${behind} handed over behind a later one (${list})`);
console.log(`${count} messages, ${kills} kills, ${late} later than is waited for`);
for (const finding of findings) console.log(`FINDING ${finding}`);
process.exit(findings.length > 0 ? 1 : 0);
