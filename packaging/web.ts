/**
 * Bundles the chat app of `src/web/` for browsers: scripts with the hash of their content in the
 * name, the style sheet, the page, the service worker, manifest and icons. `waypost` from source
 * calls `webFiles` at its start; `build.ts` embeds what it returns, packed.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

export type WebFiles = Map<string, { contentType: string; bytes: Uint8Array }>;

const folder = join(import.meta.dir, "..", "src", "web");
const contentTypes: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  png: "image/png",
  webmanifest: "application/manifest+json",
};

/** By their paths on the host of the app. */
export async function webFiles(): Promise<WebFiles> {
  const files: WebFiles = new Map();
  const add = (path: string, bytes: Uint8Array) => {
    const contentType = contentTypes[path === "/" ? "html" : (path.split(".").at(-1) ?? "")];
    if (contentType === undefined) throw new Error(`${path} has no media type`);
    files.set(path, { contentType, bytes });
  };
  let page = readFileSync(join(folder, "app.html"), "utf8");
  for (const source of ["main.tsx", "app.css", "worker.ts"])
    for (const output of await bundle(source)) {
      const path = source === "worker.ts" ? "/worker.js" : `/${output.path.replace(/^\.\//, "")}`;
      add(path, new Uint8Array(await output.arrayBuffer()));
      if (output.kind === "entry-point" || output.kind === "asset")
        page = page.replace(`{${source}}`, path);
    }
  add("/", new TextEncoder().encode(page));
  for (const name of ["app.webmanifest", "icon.svg", "icon-512.png"])
    add(`/${name}`, readFileSync(join(folder, name)));
  return files;
}

async function bundle(source: string): Promise<Bun.BuildArtifact[]> {
  const result = await Bun.build({
    entrypoints: [join(folder, source)],
    target: "browser",
    format: source === "worker.ts" ? "iife" : "esm",
    splitting: source === "main.tsx",
    minify: true,
    naming: "[name]-[hash].[ext]",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return result.outputs;
}

/** One file: a line with paths, media types and lengths, then the files, together compressed. */
export async function packWeb(): Promise<Uint8Array> {
  const files = [...(await webFiles())];
  const list = files.map(([path, { contentType, bytes }]) => [path, contentType, bytes.length]);
  const parts = [
    new TextEncoder().encode(`${JSON.stringify(list)}\n`),
    ...files.map(([, { bytes }]) => bytes),
  ];
  return Bun.zstdCompressSync(Buffer.concat(parts), { level: 19 });
}
