/**
 * Backups in a bucket of an S3 service: a folder that `waypost storage backup` made, under the time
 * of its copy. One counts from when its list of sums is there, which is written last; files come
 * back only with those sums, and `sha256sum --check` reads the list too. Address and keys of the
 * service come from the environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`,
 * `AWS_SECRET_ACCESS_KEY`).
 */
import { mkdir, open, readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { S3Client } from "bun";
import { sha256 } from "#sha256";
import { failed } from "../app/failure.ts";
import { encodeHex } from "../core/codec/bytes.ts";
import { errorText } from "../core/fault.ts";

type BucketPlace = { readonly bucket: string; readonly prefix: string };

const sumsName = "SHA256SUMS";
/** `2026-11-28T14-05-00Z`: sorted by name, they are sorted by time. */
const timeForm = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$/;

/**
 * `s3://bucket/prefix`; `null` for other texts, such as the path of a folder. Throws
 * for one that is malformed.
 */
export function parseBucketPlace(text: string): BucketPlace | null {
  if (!text.startsWith("s3://")) return null;
  const [, bucket = "", path = ""] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,62})(\/.*)?$/.exec(text) ?? [];
  if (bucket === "")
    throw failed(`${text} does not name a place in a bucket, such as s3://backups/waypost`);
  return { bucket, prefix: path.replace(/^\/+|\/+$/g, "") };
}

export const timeName = (nowMs: number): string =>
  `${new Date(nowMs).toISOString().slice(0, 19).replaceAll(":", "-")}Z`;

const keyOf = ({ prefix }: BucketPlace, ...names: readonly string[]): string =>
  [prefix, ...names].filter((name) => name !== "").join("/");

function bucketClient({ bucket }: BucketPlace): S3Client {
  const endpoint = process.env["AWS_ENDPOINT_URL"];
  return new S3Client({ bucket, ...(endpoint === undefined ? {} : { endpoint }) });
}

/** Puts what a finished backup holds, and its list last. Answers the place of the copy. */
export async function sendBackup(
  place: BucketPlace,
  folder: string,
  time: string,
): Promise<string> {
  const client = bucketClient(place);
  const lines: string[] = [];
  for (const name of await filesIn(folder)) {
    const sum = await upload(client, keyOf(place, time, name), join(folder, name));
    lines.push(`${sum}  ${name}\n`);
  }
  await asked(() => client.write(keyOf(place, time, sumsName), lines.join("")));
  return `s3://${place.bucket}/${keyOf(place, time)}`;
}

/** `store/file`: a backup has a folder for each store. */
async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile());
  return files
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1))
    .sort();
}

const partBytes = 8 << 20;
/** A service takes at most 10,000 parts. */
const partsMax = 9_000;

/** Answers the SHA-256 in hex. */
async function upload(client: S3Client, key: string, path: string): Promise<string> {
  const { size } = await stat(path);
  const partSize = Math.max(partBytes, Math.ceil(size / partsMax));
  const hash = sha256.create();
  const writer = client.file(key).writer({ partSize, queueSize: 2, retry: 3 });
  await asked(async () => {
    for await (const part of Bun.file(path).stream()) {
      hash.update(part);
      await writer.write(part);
      await writer.flush();
    }
    await writer.end();
  });
  return encodeHex(hash.digest());
}

/**
 * Brings a backup into a new folder: the newest whole one below the place, or the one that the
 * place names. Answers its time.
 */
export async function fetchBackup(place: BucketPlace, folder: string): Promise<string> {
  const client = bucketClient(place);
  const { of, time } = await chosenBackup(client, place);
  const list = await asked(() => client.file(keyOf(of, time, sumsName)).text());
  const sums = parseList(list);
  if (sums === null) throw failed(`the list of the backup of ${time} is damaged`);
  for (const [name, sum] of sums) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const found = await download(client, keyOf(of, time, name), path);
    if (found !== sum) throw failed(`${name} in the backup of ${time} is damaged: another SHA-256`);
  }
  return time;
}

async function chosenBackup(
  client: S3Client,
  place: BucketPlace,
): Promise<{ readonly of: BucketPlace; readonly time: string }> {
  const names = place.prefix.split("/");
  const last = names.at(-1) ?? "";
  if (timeForm.test(last))
    return { of: { ...place, prefix: names.slice(0, -1).join("/") }, time: last };
  const { whole } = await backupsAt(client, place);
  const newest = whole.at(-1);
  if (newest === undefined)
    throw failed(`s3://${place.bucket}/${place.prefix} has no whole backup`);
  return { of: place, time: newest };
}

/** Sums by `store/file`; `null` for anything else, above all for a path that leads elsewhere. */
function parseList(text: string): Map<string, string> | null {
  const sums = new Map<string, string>();
  for (const line of text.trimEnd().split("\n")) {
    const [, sum = "", name = ""] = /^([0-9a-f]{64}) {2}(\w[\w.-]*\/\w[\w.-]*)$/.exec(line) ?? [];
    if (name === "") return null;
    sums.set(name, sum);
  }
  return sums;
}

async function download(client: S3Client, key: string, path: string): Promise<string> {
  const hash = sha256.create();
  const handle = await open(path, "wx", 0o600);
  try {
    await asked(async () => {
      for await (const part of client.file(key).stream()) {
        hash.update(part);
        await handle.write(part);
      }
    });
    await handle.sync();
  } finally {
    await handle.close();
  }
  return encodeHex(hash.digest());
}

// --------------------------------------------------------------------------------------- retention

/**
 * Leaves the newest `keep` whole backups, and removes older ones, and what uploads left behind that
 * ended before the newest whole one. Answers how many are gone.
 */
export async function removeOldBackups(place: BucketPlace, keep: number): Promise<number> {
  const client = bucketClient(place);
  const { whole, keys } = await backupsAt(client, place);
  const kept = whole.slice(-keep);
  const newest = kept.at(-1) ?? "";
  const old = [...keys.keys()].filter((time) => time < newest && !kept.includes(time));
  for (const time of old) {
    // Without its list it counts no more, also when this is interrupted.
    const own = keys.get(time) ?? [];
    const isList = (key: string) => key.endsWith(`/${sumsName}`);
    for (const key of [...own.filter(isList), ...own.filter((one) => !isList(one))])
      await asked(() => client.delete(key));
  }
  return old.length;
}

type FoundBackups = {
  /** Times of those that are whole, oldest first. */
  readonly whole: readonly string[];
  /** Keys by time, of all. */
  readonly keys: ReadonlyMap<string, readonly string[]>;
};

async function backupsAt(client: S3Client, place: BucketPlace): Promise<FoundBackups> {
  const below = keyOf(place, "");
  const prefix = below === "" ? "" : `${below}/`;
  const keys = new Map<string, string[]>();
  for (let startAfter: string | undefined; ; ) {
    const page = await asked(() =>
      client.list({ prefix, ...(startAfter === undefined ? {} : { startAfter }) }),
    );
    for (const { key } of page.contents ?? []) {
      const time = key.slice(prefix.length).split("/")[0] ?? "";
      if (timeForm.test(time)) keys.set(time, [...(keys.get(time) ?? []), key]);
    }
    startAfter = page.contents?.at(-1)?.key;
    if (page.isTruncated !== true || startAfter === undefined) break;
  }
  const isWhole = (time: string) => keys.get(time)?.includes(keyOf(place, time, sumsName));
  return { whole: [...keys.keys()].filter(isWhole).sort(), keys };
}

/** What the service answers to; its refusal in words. */
async function asked<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = error instanceof Error ? (Reflect.get(error, "code") ?? error.name) : "";
    throw failed(`the bucket refused: ${errorText(error)} (${String(code)})`);
  }
}
