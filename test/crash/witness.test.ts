/**
 * A witness is killed at random moments, between its state and its answer too: of two heads of one
 * size it never signs both, before and after.
 */
import { afterAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { executable, freePort } from "../support/executable.ts";
import { keyFiles, TestLog, testKey, vkeyOf } from "../support/logs.ts";
import { scratchPaths } from "../support/scratch.ts";

const files = keyFiles();
afterAll(files.remove);
const paths = scratchPaths("witness-crash");
const rounds = 10;

const [log, cosigner] = [
  testKey("killed.example/log", "log"),
  testKey("killed.example/witness", "witness"),
];
const change = (label: string) => [
  { key: sha256(utf8(`key ${label}`)), value: sha256(utf8(`value ${label}`)) },
];

test(`of two heads of one size at most one is signed, through ${rounds} kills`, async () => {
  const of = new TestLog(log).append(change("first"));
  const served = of.serve();
  const port = freePort();
  const url = `http://127.0.0.1:${port}/witness/add-checkpoint`;
  const file = `${paths()}.toml`;
  writeFileSync(
    file,
    `[server]
listen = ["127.0.0.1:${port}"]
[stores.main]
plugin = "lmdb"
path = "${paths()}"
[witness]
key_file = "${files.fileOf(cosigner)}"
logs = ["${vkeyOf(log)} ${served.url}"]
`,
  );
  const start = async () => {
    const child = Bun.spawn([await executable(), "serve", "--config", file], {
      stdout: "ignore",
      stderr: "ignore",
    });
    for (const end = Date.now() + 60_000; ; await Bun.sleep(20)) {
      if (
        await fetch(`http://127.0.0.1:${port}/healthz`).then(
          ({ ok }) => ok,
          () => false,
        )
      )
        return child;
      if (Date.now() > end) throw new Error("the witness did not start");
    }
  };
  const add = (body: string) =>
    fetch(url, { method: "POST", body }).then(
      async (answer) => ({ status: answer.status, text: await answer.text() }),
      () => ({ status: 0, text: "" }),
    );
  let child = await start();
  expect((await add(of.added(0))).status).toBe(200);
  const outcomes = new Set<string>();
  try {
    for (let round = 0; round < rounds; round++) {
      const known = of.size;
      const [a, b] = [of.fork().append(change(`a${round}`)), of.fork().append(change(`b${round}`))];
      of.entries.push(...a.entries.slice(known));
      const first = add(a.added(known));
      await Bun.sleep(Math.random() * 30);
      child.kill("SIGKILL");
      const isSigned = (await first).status === 200;
      await child.exited;
      child = await start();
      // The other head, with its own entries.
      of.entries.splice(known, of.size - known, ...b.entries.slice(known));
      const second = await add(b.added(known));
      outcomes.add(`${isSigned} ${second.status}`);
      if (isSigned) expect(second.status).toBeGreaterThanOrEqual(409);
      if (second.status === 200) {
        // No one gets the first one any more.
        expect((await add(a.added(known))).status).toBe(409);
        expect((await add(a.added(a.size, a.note(), []))).status).toBe(409);
        of.adopt(b);
        continue;
      }
      // What was kept without an answer is signed again, and nothing else.
      of.adopt(a);
      const again = await add(a.added(second.status === 409 ? a.size : known));
      expect(again.status).toBe(200);
      expect((await add(b.added(b.size, b.note(), []))).status).toBe(409);
    }
  } finally {
    child.kill("SIGKILL");
    await served.stop();
  }
  console.log(`outcomes: ${[...outcomes].join(", ")}`);
}, 240_000);
