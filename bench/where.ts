/**
 * A picture of where the processor time of a node goes for a store, a page of ten and an
 * acknowledgement, over lmdb: `bun bench/where.ts [store,messages,ack]`. It samples the main thread
 * of the server under the load of `bench/http.ts` and gives each sample to the file of ours that
 * was innermost, so that native code counts for who called it. Half a minute for each path; shares
 * are of what was sampled, without waiting.
 */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const pathNames: Readonly<Record<string, string>> = {
  store: "a store",
  messages: "a page of ten",
  ack: "an acknowledgement",
};

/** Each file belongs to the first part whose words it has. */
const parts: readonly (readonly [name: string, files: RegExp])[] = [
  ["signatures and digests", /core\/codec\/(native|crypto)/],
  ["HTTP: head, body, answer", /nodes\/http\/|src\/app\//],
  ["reading JSON, envelope, proof", /core\/|@sinclair|typebox|ipaddr/],
  ["recipient, policy, ledger", /nodes\/parties\/|storage\/(embedded|table)/],
  ["the Cache", /nodes\//],
  ["index of the mailbox", /storage\/(mailbox|indexed|records|quota)|tinyqueue/],
  ["engine: commit, blocks, pages", /plugins\/lmdb\/|node_modules\/lmdb|storage\/batcher/],
  ["other", /src\/|node_modules\//],
];
const withoutFile = "runtime: sockets, memory";

type Node = {
  readonly id: number;
  readonly callFrame: { readonly url: string };
  readonly children?: readonly number[];
};
type Profile = { readonly nodes: readonly Node[]; readonly samples: readonly number[] };

/** Samples by part, of a profile in the form of Chrome's tools. */
function samplesByPart({ nodes, samples }: Profile): Map<string, number> {
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((c) => [c, id])));
  const urls = new Map(nodes.map(({ id, callFrame }) => [id, callFrame.url]));
  const counts = new Map<string, number>();
  for (const sample of samples) {
    let at: number | undefined = sample;
    while (at !== undefined && partOf(urls.get(at) ?? "") === undefined) at = parents.get(at);
    const part = at === undefined ? withoutFile : partOf(urls.get(at) ?? "")!;
    counts.set(part, (counts.get(part) ?? 0) + 1);
  }
  return counts;
}

function partOf(url: string): string | undefined {
  return parts.find(([, files]) => files.test(url))?.[0];
}

/**
 * The profile of the node that answered: of all processes, the one with most samples in the
 * pipeline.
 */
async function profileOf(path: string): Promise<Profile> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-where-"));
  try {
    const flags = ["--short", "--drivers", "lmdb", "--paths", path, "--connections", "64"];
    const load = Bun.spawn([process.execPath, join(import.meta.dir, "http.ts"), ...flags], {
      stdout: "ignore",
      stderr: "ignore",
      env: {
        ...process.env,
        BUN_OPTIONS: `--cpu-prof --cpu-prof-interval=500 --cpu-prof-dir=${folder}`,
      },
    });
    if ((await load.exited) !== 0) throw new Error(`bench/http.ts failed for ${path}`);
    const names = readdirSync(folder).filter((name) => name.endsWith(".cpuprofile"));
    const found = names.map((name) => Bun.file(join(folder, name)).json() as Promise<Profile>);
    const served = ({ nodes }: Profile) =>
      nodes.filter(({ callFrame }) => callFrame.url.endsWith("nodes/http/pipeline.ts")).length;
    const [most] = (await Promise.all(found)).sort((a, b) => served(b) - served(a));
    if (most === undefined || served(most) === 0) throw new Error("the node wrote no profile");
    return most;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const widthMax = 50;

for (const path of (process.argv[2] ?? "store,messages,ack").split(",")) {
  const counts = [...samplesByPart(await profileOf(path))].sort(([, a], [, b]) => b - a);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  console.log(`${pathNames[path] ?? path}: ${all} samples`);
  for (const [part, count] of counts) {
    const share = count / all;
    const bar = "█".repeat(Math.round(share * widthMax));
    console.log(`  ${part.padEnd(30)} ${`${Math.round(share * 100)}`.padStart(3)} % ${bar}`);
  }
}
