/**
 * Every campaign for some seconds, so that none rots: each must end with 0. A campaign whose program is not installed
 * ends with 2 and is reported as skipped.
 *
 * `bun test/campaigns/short.ts` prints a line for each; `--only kill,soak` runs some of them.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";

const campaigns: Readonly<Record<string, readonly string[]>> = {
  // The longest first: what is begun last is short, and no one waits for it alone.
  "beside-pools": [
    ...["--tries", "10", "--within", "5000", "--entries", "2000"],
    ...["--store", "memory,lmdb,postgres,shards", "--only"],
    "dids-2:memory,dids-150-hourly,dids-1000-hourly:memory,networks-16:lmdb,networks-200:memory,passes:postgres",
  ],
  // It takes 4 to 75 s, by the moments of its kills.
  providers: ["--messages", "20", "--kills", "2"],
  // Longer than a key bundle lasts.
  away: ["--messages", "20", "--hours", "130"],
  cluster: ["--kills", "5"],
  community: ["--members", "60", "--people", "5", "--days", "1"],
  clock: ["--rounds", "1", "--seconds", "1", "--from", "7"],
  liar: ["--rounds", "4"],
  packed: ["--schedules", "1"],
  unread: ["--rounds", "1", "--only", "forty"],
  abuse: ["--seconds", "1", "--only", "tester"],
  twin: ["--look-ups", "300", "--restores", "1"],
  attacks: ["--only", "packed"],
  "storage-disk": ["--rounds", "1"],
  groups: ["--schedules", "1", "--messages", "20"],
  beside: ["--tries", "10", "--within", "5000", "--only", "refused,known"],
  "own-world": ["--schedules", "400", "--from", "10000"],
  "full-disk": ["--rounds", "2"],
  soak: ["--minutes", "0.1"],
  order: ["--kills", "3"],
  "liar-groups": ["--worlds", "1", "--from", "3"],
  sessions: ["--sessions", "100", "--seconds", "60"],
  "storage-kill": ["--kills", "10"],
  "storage-power": ["--cuts", "10"],
  "storage-bitrot": ["--flips", "8"],
  parsers: ["--inputs", "3000"],
  kill: ["--kills", "2"],
  large: ["--mb", "8"],
  hostile: ["--scale", "0.01", "--only", "framing"],
  pushes: ["--seconds", "4", "--only", "one"],
};

/** A campaign waits more than it computes: as many as run at once. */
const atOnce = 4;
/** What hangs is a failure, and not the end of a run without a word. */
const limitMs = 400_000;
const missingProgram = 2;

const { values } = parseArgs({ options: { only: { type: "string" } } });
const chosen = Object.entries(campaigns).filter(
  ([name]) => values.only?.split(",").includes(name) ?? true,
);
/** What they printed. */
const failed = new Map<string, string>();

async function run(name: string, args: readonly string[]): Promise<void> {
  const startedMs = performance.now();
  const command = [process.execPath, join(import.meta.dir, `${name}.ts`), ...args];
  const child = Bun.spawn(command, {
    stdout: "pipe",
    stderr: "pipe",
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

async function runNext(waiting: (typeof chosen)[number][]): Promise<void> {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await run(...next);
}

const waiting = [...chosen];
await Promise.all(Array.from({ length: atOnce }, () => runNext(waiting)));
for (const printed of failed.values()) console.log(printed);

// What failed beside others runs once more, alone, as tests do: what passes then is named, and is a defect of order or time
// in the campaign or in the product. What fails again has failed.
const byChance = [...failed.keys()];
failed.clear();
for (const [name, args] of chosen) if (byChance.includes(name)) await run(name, args);
for (const printed of failed.values()) console.log(printed);
const chance = byChance.filter((name) => !failed.has(name));
if (chance.length > 0) console.log(`passed alone: ${chance.join(", ")}`);
const names = [...failed.keys()].join(", ");
console.log(failed.size === 0 ? `${chosen.length} campaigns` : `failed: ${names}`);
process.exit(failed.size === 0 ? 0 : 1);
