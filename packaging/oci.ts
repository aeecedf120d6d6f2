/**
 * An OCI image layout, written without a daemon: one layer with the executable and the system
 * libraries that it is linked with, copied from this machine, and nothing else: no shell and no
 * package manager. For the platform of this machine alone. Load it with: skopeo copy
 * oci-archive:waypost-oci.tar docker-daemon:waypost:latest
 */
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { gzipSync } from "bun";
import { renderNotices } from "./notices.ts";
import type { Platform } from "./platforms.ts";
import { run } from "./run.ts";

const root = join(import.meta.dir, "..");
/** Of the user in the image, as in the Dockerfile. */
const userId = 7400;

type Blob = { readonly digest: string; readonly size: number };

export type ImageOptions = {
  /** The time in the image, so that the same files make the same image. */
  readonly sourceDateSeconds: number;
  /** Of the layer: fast for tests, small for releases. */
  readonly compression: 1 | 6;
};

/** Path of the archive. */
export function makeOciImage(platform: Platform, options: ImageOptions): string {
  const { sourceDateSeconds, compression } = options;
  const out = join(root, "dist");
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    version: string;
  };
  const folder = join(out, "oci");
  const files = join(out, "oci-root");
  for (const one of [folder, files]) rmSync(one, { recursive: true, force: true });
  fillRoot(platform, files);
  mkdirSync(join(folder, "blobs", "sha256"), { recursive: true });
  const tar = makeTar(files, join(out, "oci-layer.tar"), sourceDateSeconds);
  const layer = putBlob(folder, gzipSync(tar, { level: compression }));
  const created = new Date(sourceDateSeconds * 1_000).toISOString();
  const config = putBlob(
    folder,
    json(imageConfig({ platform, created, diffId: digestOf(tar), version })),
  );
  const manifest = putBlob(folder, json(imageManifest(config, layer)));
  const architecture = architectureOf(platform);
  writeFileSync(join(folder, "oci-layout"), json({ imageLayoutVersion: "1.0.0" }));
  writeFileSync(join(folder, "index.json"), json(imageIndex(manifest, { architecture, version })));
  const archive = join(out, `waypost-oci-${platform.name}.tar`);
  run([...reproducibleTar(sourceDateSeconds), "-cf", archive, "-C", folder, "."]);
  for (const one of [folder, files]) rmSync(one, { recursive: true, force: true });
  return archive;
}

/**
 * Folders, the executable, its libraries where the loader looks for them, and what names the user.
 */
function fillRoot({ file }: Platform, files: string): void {
  const program = join(root, "dist", file);
  const place = (path: string): string => {
    const target = join(files, path);
    mkdirSync(join(target, ".."), { recursive: true });
    return target;
  };
  copyFileSync(program, place("usr/local/bin/waypost"));
  chmodSync(place("usr/local/bin/waypost"), 0o755);
  for (const library of librariesOf(program)) {
    copyFileSync(realpathSync(library), place(library));
    chmodSync(place(library), 0o755);
  }
  writeFileSync(place("etc/passwd"), `waypost:x:${userId}:${userId}::/data:/usr/sbin/nologin\n`);
  writeFileSync(place("etc/group"), `waypost:x:${userId}:\n`);
  copyFileSync(join(root, "examples", "container.toml"), place("etc/waypost/waypost.toml"));
  copyFileSync(join(root, "LICENSE"), place("usr/share/doc/waypost/LICENSE"));
  writeFileSync(place("usr/share/doc/waypost/NOTICES"), renderNotices());
  mkdirSync(place("data"), { recursive: true });
  // What a container runtime mounts needs a place.
  for (const name of ["tmp", "dev", "proc", "sys"]) mkdirSync(place(name), { recursive: true });
}

/** Of the executable, and of the native addon inside it, which needs the C++ library. */
function librariesOf(program: string): string[] {
  const linked = run(["ldd", program]).matchAll(/(\/\S+\.so\S*)/g);
  const libraries = [...linked].map(([, path = ""]) => path);
  // Next to the C library: a machine can have those of other architectures too.
  const folder = dirname(libraries.find((path) => /\/libc\.so/.test(path)) ?? "");
  const cpp = [
    ...run(["ldconfig", "-p"]).matchAll(
      /=> (\S*lib(?:stdc\+\+\.so\.6|gcc_s\.so\.1|resolv\.so\.2))$/gm,
    ),
  ];
  return [
    ...new Set([
      ...libraries,
      ...cpp.map(([, path = ""]) => path).filter((path) => dirname(path) === folder),
    ]),
  ];
}

function reproducibleTar(seconds: number): string[] {
  return [
    "tar",
    "--sort=name",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    `--mtime=@${seconds}`,
    "--format=posix",
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
  ];
}

/** Everything belongs to root but `/data`; `/tmp` is everybody's. */
function makeTar(files: string, path: string, seconds: number): Uint8Array<ArrayBuffer> {
  chmodSync(join(files, "tmp"), 0o1777);
  const tar = reproducibleTar(seconds);
  run([...tar, "--exclude=./data", "-cf", path, "-C", files, "."]);
  const owned = tar.map((word) => word.replace(/^--(owner|group)=0$/, `--$1=${userId}`));
  run([...owned, "-rf", path, "-C", files, "./data"]);
  const bytes = new Uint8Array(readFileSync(path));
  rmSync(path);
  return bytes;
}

function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

function json(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

function putBlob(folder: string, bytes: Uint8Array): Blob {
  const digest = digestOf(bytes);
  writeFileSync(join(folder, "blobs", "sha256", digest.slice("sha256:".length)), bytes);
  return { digest, size: bytes.length };
}

function architectureOf({ cpu }: Platform): "amd64" | "arm64" {
  return cpu === "x64" ? "amd64" : "arm64";
}

type ImageFacts = {
  readonly platform: Platform;
  readonly created: string;
  readonly diffId: string;
  readonly version: string;
};

function imageConfig({ platform, created, diffId, version }: ImageFacts): unknown {
  return {
    created,
    architecture: architectureOf(platform),
    os: "linux",
    config: {
      User: `${userId}:${userId}`,
      ExposedPorts: { "7400/tcp": {} },
      Env: ["PATH=/usr/local/bin"],
      Entrypoint: ["/usr/local/bin/waypost"],
      Cmd: ["serve", "--config", "/etc/waypost/waypost.toml"],
      Volumes: { "/data": {} },
      WorkingDir: "/data",
      StopSignal: "SIGTERM",
      Labels: {
        "org.opencontainers.image.title": "waypost",
        "org.opencontainers.image.version": version,
      },
    },
    rootfs: { type: "layers", diff_ids: [diffId] },
    history: [{ created, created_by: "packaging/oci.ts" }],
  };
}

function imageManifest(config: Blob, layer: Blob): unknown {
  return {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...config },
    layers: [{ mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", ...layer }],
  };
}

type IndexFacts = { readonly architecture: string; readonly version: string };

function imageIndex(manifest: Blob, { architecture, version }: IndexFacts): unknown {
  // Podman names the image by the first, containerd and Docker by the second.
  const annotations = {
    "org.opencontainers.image.ref.name": `waypost:${version}`,
    "io.containerd.image.name": `docker.io/library/waypost:${version}`,
  };
  const mediaType = "application/vnd.oci.image.manifest.v1+json";
  return {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.index.v1+json",
    manifests: [{ mediaType, ...manifest, platform: { architecture, os: "linux" }, annotations }],
  };
}
