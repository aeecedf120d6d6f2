/**
 * The platforms that are released: the compiler's name, the file, and how npm and Debian call them.
 */

export type Platform = {
  /** As `bun build --compile` calls it. */
  readonly target: string;
  /** In `dist/`. */
  readonly file: string;
  /** Package of npm: `@waypost/cli-<name>`. */
  readonly name: string;
  readonly os: "linux" | "darwin" | "win32";
  readonly cpu: "x64" | "arm64";
  readonly libc?: "glibc" | "musl";
};

export const platforms: readonly Platform[] = [
  {
    target: "bun-linux-x64",
    file: "waypost-linux-x64",
    name: "linux-x64",
    os: "linux",
    cpu: "x64",
    libc: "glibc",
  },
  {
    target: "bun-linux-arm64",
    file: "waypost-linux-arm64",
    name: "linux-arm64",
    os: "linux",
    cpu: "arm64",
    libc: "glibc",
  },
  {
    target: "bun-linux-x64-musl",
    file: "waypost-linux-x64-musl",
    name: "linux-x64-musl",
    os: "linux",
    cpu: "x64",
    libc: "musl",
  },
  {
    target: "bun-linux-arm64-musl",
    file: "waypost-linux-arm64-musl",
    name: "linux-arm64-musl",
    os: "linux",
    cpu: "arm64",
    libc: "musl",
  },
  {
    target: "bun-darwin-x64",
    file: "waypost-darwin-x64",
    name: "darwin-x64",
    os: "darwin",
    cpu: "x64",
  },
  {
    target: "bun-darwin-arm64",
    file: "waypost-darwin-arm64",
    name: "darwin-arm64",
    os: "darwin",
    cpu: "arm64",
  },
  {
    target: "bun-windows-x64",
    file: "waypost-windows-x64.exe",
    name: "win32-x64",
    os: "win32",
    cpu: "x64",
  },
];

/** The one that this machine runs; its C library is known by the loader of the running program. */
export function ownPlatform(): Platform {
  const { platform, arch } = process;
  const isMusl =
    platform === "linux" && [...new Bun.Glob("ld-musl-*").scanSync({ cwd: "/lib" })].length > 0;
  const own = platforms.find(
    ({ os, cpu, libc }) =>
      os === platform && cpu === arch && (libc === undefined || (libc === "musl") === isMusl),
  );
  if (own === undefined) throw new Error(`nothing is released for ${platform}-${arch}`);
  return own;
}
