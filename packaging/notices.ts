/**
 * Notices of third parties: the licenses of everything that is compiled into the executable, as
 * their authors ask for it. The packages are those of `dependencies` with everything that they
 * depend on, and the libraries inside the addon of lmdb.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
/** Of smoldot, whose exception for linking (Classpath) leaves this program its own license. */
const gpl = join(import.meta.dir, "gpl-3.0.txt");

export type Manifest = {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly author?: string | { readonly name?: string };
  readonly repository?: string | { readonly url?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
};

/** Folders with a license of their own that no manifest names. */
const inside: Readonly<Record<string, readonly (readonly [name: string, folder: string])[]>> = {
  lmdb: [
    ["liblmdb, inside lmdb", "dependencies/lmdb/libraries/liblmdb"],
    ["LZ4, inside lmdb", "dependencies/lz4"],
  ],
};

const runtime = `Bun

The executable contains the Bun runtime (MIT) with JavaScriptCore and WebKit (LGPL-2) and the libraries that Bun is linked
with. Their licenses, their sources and how to link them again: https://bun.com/docs/project/license
`;

/**
 * One section for each text, after the packages that it is of; with `names` of those alone, for
 * something that the runtime is not part of.
 */
export function renderNotices(names?: ReadonlySet<string>): string {
  const holders = new Map<string, Set<string>>();
  const wanted = [...packages().values()].filter(
    ({ manifest }) => names?.has(manifest.name) ?? true,
  );
  for (const { title, text } of wanted.flatMap(noticesOf))
    holders.set(text, (holders.get(text) ?? new Set()).add(title));
  const sections = [...holders]
    .map(([text, titles]) => `${[...titles].sort().join("\n")}\n\n${text}\n`)
    .sort();
  const head = "Waypost contains the work of others.\n";
  return [names === undefined ? `${head}\n${runtime}` : head, ...sections].join(
    `\n${"-".repeat(80)}\n\n`,
  );
}

type Package = { readonly manifest: Manifest; readonly folder: string };

/** What is compiled into the executable, by folder. */
export function packages(): Map<string, Package> {
  const found = new Map<string, Package>();
  const add = (name: string, from: string): void => {
    const folder = locate(name, from);
    if (folder === null || found.has(folder)) return;
    const manifest = readManifest(folder);
    found.set(folder, { manifest, folder });
    for (const next of Object.keys(manifest.dependencies ?? {})) add(next, folder);
  };
  for (const name of Object.keys(readManifest(root).dependencies ?? {})) add(name, root);
  return found;
}

/** Where the package that `from` imports is installed; `null` for one of another platform. */
export function locate(name: string, from: string): string | null {
  const folder = join(from, "node_modules", name);
  if (existsSync(join(folder, "package.json"))) return folder;
  return from === root ? null : locate(name, join(from, ".."));
}

export function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}

type Notice = { readonly title: string; readonly text: string };

function noticesOf({ manifest, folder }: Package): Notice[] {
  const { name, version, license = "see below" } = manifest;
  const own = {
    title: `${name} ${version} (${license})`,
    text: textsIn(folder) || ownWords(manifest),
  };
  return [
    own,
    ...(inside[name] ?? []).map(([title, path]) => ({ title, text: textsIn(join(folder, path)) })),
  ];
}

function textsIn(folder: string): string {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const files = names.filter((name) => /^(licen[cs]e|copying|notice|copyright)/i.test(name)).sort();
  return files.map((name) => readFileSync(join(folder, name), "utf8").trim()).join("\n\n");
}

/** Some packages name only their license and their author. */
function ownWords({ author, license, repository }: Manifest): string {
  const by = typeof author === "string" ? author : (author?.name ?? "its authors");
  const source = typeof repository === "string" ? repository : (repository?.url ?? "");
  const text =
    license?.startsWith("GPL-3.0") === true ? `\n\n${readFileSync(gpl, "utf8").trim()}` : "";
  return `Copyright (c) ${by}\nSource: ${source}${text}`;
}
