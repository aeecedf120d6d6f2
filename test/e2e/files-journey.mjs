/**
 * `@waypost/client/node` of the packed SDK in every runtime with files: an identity in `fileKeys`, found again by a
 * second opening; a file sent from disk in chunks and received through `openInbox`, twice, so that nothing is stored
 * twice. Prints one line of JSON.
 */
import { mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ClientError, Waypost } from "@waypost/client";
import { fileKeys, fileSource, openInbox } from "@waypost/client/node";

const url = globalThis.Deno?.env.get("WAYPOST_URL") ?? globalThis.process?.env.WAYPOST_URL;
const folder = await mkdtemp(join(tmpdir(), "waypost-files-"));
const keys = join(folder, "keys");
const alice = await Waypost.open({ url, keys: fileKeys(keys), name: "alice" });
const bob = await Waypost.open({ url, keys: fileKeys(keys), name: "bob" });
const again = await Waypost.open({ url, keys: fileKeys(keys), name: "bob" });
const [keyFile] = await readdir(keys);

const bytes = crypto.getRandomValues(new Uint8Array(50_000));
await writeFile(join(folder, "data.bin"), bytes);
const source = await fileSource(join(folder, "data.bin"), "application/octet-stream");
const sent = await alice.send(bob.did, source, { chunkBytes: 20_000 });

const progress = [];
const options = {
  folder: join(folder, "received"),
  state: join(folder, "state"),
  onChunk: (done, total) => progress.push(`${done}/${total}`),
};
const inbox = await openInbox(bob, options);
const busy = await openInbox(again, options).catch((error) => error);
const first = await inbox.receive();
const second = await inbox.receive();
await inbox.close();
const stored = await readFile(first.received[0].path);

console.log(
  JSON.stringify({
    sameDid: again.did === bob.did,
    mode: ((await stat(join(keys, keyFile))).mode & 0o777).toString(8),
    chunks: sent.chunks,
    received: first.received.map(({ name, from, verified }) => [name, from === alice.did, verified]),
    progress,
    same: stored.length === bytes.length && stored.every((byte, i) => byte === bytes[i]),
    again: second.received.length,
    files: await readdir(options.folder),
    busy: [busy instanceof ClientError, busy.code],
  }),
);
