/**
 * The SDK as others get it: built, packed by npm and installed into an empty folder; and the
 * runtimes to try it in, as far as this machine has them (`bun run runtimes:setup` brings Node 22,
 * Node 24 and Deno).
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { builtOnce, cacheFolder, isNewer } from "../support/built.ts";

const root = join(import.meta.dir, "..", "..");
const runtimes = join(root, "test", "runtimes", "node_modules");

export type PackedSdk = {
  readonly folder: string;
  /** The package as it is published. */
  readonly archive: string;
  readonly remove: () => void;
};

/**
 * A stranger's folder with the package of this source, built, packed and installed once for all
 * that need it. The packages that it needs come from the registry, as they do for a stranger.
 */
async function installedOnce(): Promise<string> {
  const kept = join(cacheFolder, "stranger");
  const whole = join(kept, "whole");
  const stranger = join(kept, "folder");
  const sources = ["build-client.ts", "package.json", "bun.lock", "packaging/**/*", "src/**/*"];
  await builtOnce(
    "stranger",
    () => isNewer(whole, sources),
    async () => {
      rmSync(kept, { recursive: true, force: true });
      mkdirSync(stranger, { recursive: true });
      await command([process.execPath, "build-client.ts"], root);
      const client = join(root, "dist", "client");
      await command(["npm", "pack", "--silent", "--pack-destination", stranger, client], stranger);
      const manifest = { name: "stranger", private: true, type: "module" };
      writeFileSync(join(stranger, "package.json"), JSON.stringify(manifest));
      const how = ["--no-audit", "--no-fund", "--prefer-offline"];
      await command(["npm", "install", ...how, `./${archiveIn(stranger)}`], stranger);
      writeFileSync(whole, "");
    },
  );
  return stranger;
}

/** A stranger's folder of one's own. */
export async function installPackedSdk(): Promise<PackedSdk> {
  const stranger = await installedOnce();
  const folder = mkdtempSync(join(tmpdir(), "waypost-sdk-"));
  await command(["cp", "-R", `${stranger}/.`, folder], folder);
  return {
    folder,
    archive: join(folder, archiveIn(folder)),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** What `npm pack` has made there. */
export function archiveIn(folder: string): string {
  const [archive = ""] = new Bun.Glob("*.tgz").scanSync({ cwd: folder });
  return archive;
}

/** Copies a program next to the installed SDK. */
export function place(sdk: PackedSdk, path: string, name: string): string {
  mkdirSync(sdk.folder, { recursive: true });
  const target = join(sdk.folder, name);
  cpSync(join(root, path), target);
  return target;
}

export type Runtime = { readonly name: string; readonly command: readonly string[] | null };

/** `command` is null where the runtime is not on this machine. */
export function findRuntimes(): Runtime[] {
  const packaged = (name: string, path: string, ...args: string[]): Runtime => {
    const program = join(runtimes, path);
    return { name, command: existsSync(program) ? [program, ...args] : null };
  };
  const node = Bun.which("node");
  return [
    { name: "the machine's node", command: node === null ? null : [node] },
    packaged("node 22", "node22/bin/node"),
    packaged("node 24", "node24/bin/node"),
    packaged("deno", "@deno/linux-x64-glibc/deno", "run", "--allow-net", "--allow-env"),
    { name: "bun", command: [process.execPath] },
  ];
}

/** What looks at a package as others will resolve it; `null` where it is not on this machine. */
export function findLinters(): { readonly publint: string[]; readonly attw: string[] } | null {
  const program = (name: string) => [process.execPath, join(runtimes, ".bin", name)];
  return existsSync(join(runtimes, ".bin", "attw"))
    ? { publint: program("publint"), attw: program("attw") }
    : null;
}

export async function command(
  words: readonly string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<string> {
  const child = Bun.spawn([...words], {
    cwd,
    env: { ...process.env, ...env },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (code !== 0) throw new Error(`${words.join(" ")}: exit ${code}\n${stdout}\n${stderr}`);
  return stdout;
}
