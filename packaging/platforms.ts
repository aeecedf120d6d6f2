/** The platforms that are released, as the compiler names them. */

const targets = [
  ...["bun-linux-x64", "bun-linux-arm64", "bun-linux-x64-musl", "bun-linux-arm64-musl"],
  ...["bun-darwin-x64", "bun-darwin-arm64", "bun-windows-x64"],
];

export const platforms = targets.map(platformOf);
export type Platform = ReturnType<typeof platformOf>;

export function platformOf(target: string) {
  const name = target.slice("bun-".length);
  const [system = "", cpu = ""] = name.split("-");
  const os = system === "windows" ? "win32" : system;
  const libc = os !== "linux" ? null : name.endsWith("-musl") ? "musl" : "glibc";
  /** `file`: in `dist/`. */
  return { target, name, os, cpu, libc, file: `waypost-${name}${os === "win32" ? ".exe" : ""}` };
}

/** The one that this machine runs; its C library is known by the loader of the running program. */
export function ownPlatform(): Platform {
  const { platform, arch } = process;
  const isMusl = platform === "linux" && [...new Bun.Glob("ld-musl-*").scanSync({ cwd: "/lib" })].length > 0;
  const own = platforms.find(
    ({ os, cpu, libc }) => os === platform && cpu === arch && (libc === null || (libc === "musl") === isMusl),
  );
  if (own === undefined) throw new Error(`nothing is released for ${platform}-${arch}`);
  return own;
}
