/**
 * Who is at the other end of a Unix socket, as the kernel says (`SO_PEERCRED`,
 * `SO_PEERGROUPS`): it can't be forged by the client. Names come from the files of the
 * system; a user or group that is kept elsewhere has its number alone.
 * Source: unix(7), socket(7).
 */
import { dlopen, FFIType, ptr } from "bun:ffi";
import { readFileSync } from "node:fs";

export type Peer = {
  readonly uid: number;
  /** Name of the user; `uid 1005` where the system's files have none. */
  readonly user: string;
  /** Numbers of its groups, the primary one first. */
  readonly groups: readonly number[];
};

const { i32, ptr: pointer } = FFIType;
const libraries = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];
/** Numbers of Linux on x64 and arm64. */
const [solSocket, soPeerCredentials, soPeerGroups] = [1, 17, 59];
/** The most groups that Linux gives a process. */
const groupsMax = 65_536;

type SocketOption = (
  descriptor: number,
  level: number,
  name: number,
  value: Uint32Array,
  bytes: Uint32Array,
) => number;

const readOption: SocketOption | null = loaded();

/** Whether this system names the user at the other end. */
export const namesPeers: boolean = readOption !== null;

function loaded(): SocketOption | null {
  if (process.platform !== "linux") return null;
  for (const name of libraries) {
    try {
      const { getsockopt } = dlopen(name, {
        getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
      }).symbols;
      return (descriptor, level, option, value, bytes) =>
        getsockopt(descriptor, level, option, ptr(value), ptr(bytes));
    } catch {}
  }
  return null;
}

/** `null` where the system does not say. */
export function peerOf(descriptor: number): Peer | null {
  const credentials = numbersOf(descriptor, soPeerCredentials, 3);
  if (credentials === null) return null;
  const [, uid = 0, gid = 0] = credentials;
  const others = numbersOf(descriptor, soPeerGroups, groupsMax) ?? [];
  return { uid, user: userName(uid), groups: [gid, ...others] };
}

function numbersOf(descriptor: number, option: number, countMax: number): number[] | null {
  const value = new Uint32Array(countMax);
  const bytes = new Uint32Array([value.byteLength]);
  if (readOption?.(descriptor, solSocket, option, value, bytes) !== 0) return null;
  return [...value.subarray(0, (bytes[0] ?? 0) / Uint32Array.BYTES_PER_ELEMENT)];
}

// ----------------------------------------------------------------------------- names of the system

type NamedId = { readonly name: string; readonly id: number };

/** `name:password:number:…`, one a line. */
function readNames(path: string): NamedId[] {
  let text = "";
  try {
    text = readFileSync(path, "utf8");
  } catch {}
  return text.split("\n").flatMap((line) => {
    const [name = "", , id = ""] = line.split(":");
    return /^\d+$/.test(id) ? [{ name, id: Number(id) }] : [];
  });
}

function userName(uid: number): string {
  return readNames("/etc/passwd").find(({ id }) => id === uid)?.name ?? `uid ${uid}`;
}

const numericId = (path: string, name: string): number | null =>
  /^\d+$/.test(name)
    ? Number(name)
    : (readNames(path).find((one) => one.name === name)?.id ?? null);

/** Number of a user by name or number; `null` when the system's files have no such user. */
export const userId = (name: string): number | null => numericId("/etc/passwd", name);
export const groupId = (name: string): number | null => numericId("/etc/group", name);
