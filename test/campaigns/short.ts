/**
 * Every campaign for some seconds, so that none rots: each must end with 0. A campaign whose
 * program is not installed ends with 2 and is reported as skipped.
 *
 * `bun test/campaigns/short.ts` prints a line for each; `--only kill,soak` runs some of them,
 * `--without kill,soak` the others.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";

/** Of both runs of `beside-pools`. */
const pools = ["--tries", "10", "--within", "5000", "--entries", "600", "--each", "3"];
/** By the name of its file; what follows a space tells two runs of one campaign apart. */
const campaigns: Readonly<Record<string, readonly string[]>> = {
  // The longest first: what is begun last is short, and no one waits for it alone.
  // It takes 4 to 75 s, by the moments of its kills, and waits for most of them.
  providers: ["--messages", "20", "--kills", "2"],
  // Longer than a key bundle lasts.
  away: ["--messages", "20", "--hours", "130"],
  "beside-pools databases": [
    ...[...pools, "--store", "postgres,shards"],
    ...["--only", "dids-40-hourly,passes:postgres"],
  ],
  "beside-pools": [
    ...[...pools, "--store", "memory,lmdb", "--only"],
    "dids-2:memory,dids-40-hourly,dids-1000-hourly:memory,networks-16:lmdb,networks-200:memory",
  ],
  community: ["--members", "30", "--people", "4", "--days", "1"],
  clock: ["--rounds", "1", "--seconds", "1", "--from", "7"],
  packed: ["--schedules", "1"],
  attacks: ["--only", "packed"],
  unread: ["--rounds", "1", "--only", "forty"],
  abuse: ["--seconds", "1", "--only", "tester", "--share", "0.3"],
  cluster: ["--kills", "4", "--nodes", "2", "--senders", "2", "--recipients", "4"],
  "liar-groups": ["--worlds", "1", "--from", "3"],
  liar: ["--rounds", "2"],
  order: ["--kills", "3"],
  twin: ["--look-ups", "100", "--people", "3", "--restores", "1"],
  "storage-disk": ["--rounds", "1"],
  groups: ["--schedules", "1", "--messages", "20"],
  beside: ["--tries", "10", "--within", "5000", "--only", "refused,known"],
  "full-disk": ["--rounds", "1"],
  soak: ["--minutes", "0.1"],
  sessions: ["--sessions", "100", "--seconds", "60"],
  "own-world": ["--schedules", "150", "--from", "10000"],
  "storage-bitrot": ["--flips", "5"],
  "storage-kill": ["--kills", "10"],
  kill: ["--kills", "2"],
  large: ["--mb", "4"],
  "storage-power": ["--cuts", "10"],
  parsers: ["--inputs", "3000"],
  hostile: ["--scale", "0.01", "--only", "framing"],
  pushes: ["--seconds", "4", "--only", "one"],
};

/** What hangs is a failure, and not the end of a run without a word. */
const limitMs = 400_000;
const missingProgram = 2;

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    without: { type: "string", default: "" },
    /** A campaign waits more than it computes: as many as run at once. At most ten. */
    "at-once": { type: "string", default: "6" },
  },
});
const chosen = Object.entries(campaigns).filter(
  ([name]) =>
    (values.only?.split(",").includes(name) ?? true) && !values.without.split(",").includes(name),
);
/** What they printed. */
const failed = new Map<string, string>();

async function run(name: string, args: readonly string[], lane = 0): Promise<void> {
  const startedMs = performance.now();
  const [file] = name.split(" ");
  const command = [process.execPath, join(import.meta.dir, `${file}.ts`), ...args];
  const child = Bun.spawn(command, {
    stdout: "pipe",
    stderr: "pipe",
    // Each of those at once has ports of its own.
    env: { ...process.env, BUN_TEST_WORKER_ID: String(10 - lane) },
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  const outcome = code === 0 ? "ok" : code === missingProgram ? "skipped" : "failed";
  console.log(`${outcome}: ${name} ${args.join(" ")} (${seconds} s)`);
  if (outcome === "skipped") console.log(out.trimEnd());
  if (outcome !== "failed") return;
  failed.set(name, `${name} ended with ${code}\n${out}${err}`);
}

async function runNext(waiting: (typeof chosen)[number][], lane: number): Promise<void> {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
    await run(...next, lane);
}

const waiting = [...chosen];
await Promise.all(
  Array.from({ length: Number(values["at-once"]) }, (_, lane) => runNext(waiting, lane)),
);
for (const printed of failed.values()) console.log(printed);

// What failed beside others runs once more, alone, as tests do: what passes then is named, and is a
// defect of order or time in the campaign or in the product. What fails again has failed.
const byChance = [...failed.keys()];
failed.clear();
for (const [name, args] of chosen) if (byChance.includes(name)) await run(name, args);
for (const printed of failed.values()) console.log(printed);
const chance = byChance.filter((name) => !failed.has(name));
if (chance.length > 0) console.log(`passed alone: ${chance.join(", ")}`);
const names = [...failed.keys()].join(", ");
console.log(failed.size === 0 ? `${chosen.length} campaigns` : `failed: ${names}`);
process.exit(failed.size === 0 ? 0 : 1);
