/**
 * The log of a Directory and its witnesses over HTTP: heads that witnesses have cosigned, tiles and
 * proofs, what a witness refuses, and how a node goes on when its store has lost what was signed.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, readFileSync } from "node:fs";
import { ed25519 } from "@noble/curves/ed25519.js";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { decodeLogEntry, keyOfDid, valueOfProof } from "../../src/core/trust/log.ts";
import { readMapProof } from "../../src/core/trust/map.ts";
import {
  parseCheckpoint,
  parseNote,
  type SignedNote,
  signedBy,
} from "../../src/core/trust/note.ts";
import { hashLeaf, verifyConsistency, verifyInclusion } from "../../src/core/trust/tree.ts";
import { freePort } from "../support/executable.ts";
import { type LogPair, loggedNodes, startLogPair, startWitness } from "../support/log-nodes.ts";
import { keyFiles, type TestKey, TestLog, testKey, vkeyOf } from "../support/logs.ts";
import { startTestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const files = keyFiles();
const paths = scratchPaths("log");
const running: { stop: () => Promise<unknown> }[] = [];
afterAll(async () => {
  await Promise.all(running.map((one) => one.stop()));
  files.remove();
});
function stopping<T extends { stop: () => Promise<unknown> }>(one: T): T {
  running.push(one);
  return one;
}

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (url: string) => Waypost.open({ url, keys: memoryKeys(), waiting });

async function until<T>(ask: () => Promise<T | null>): Promise<T> {
  for (const end = Date.now() + 60_000; Date.now() < end; await Bun.sleep(20)) {
    const answer = await ask();
    if (answer !== null) return answer;
  }
  throw new Error("it did not come");
}

const holds = (note: SignedNote, { key }: TestKey): boolean => {
  const signed = signedBy(note, key);
  return signed !== null && ed25519.verify(signed.signature, signed.message, signed.publicKey);
};
const noteOf = (text: string): SignedNote => {
  const note = parseNote(text);
  if (note === null) throw new Error(`no note: ${text}`);
  return note;
};
const checkpointOf = (note: SignedNote) => {
  const checkpoint = parseCheckpoint(note.text);
  if (checkpoint === null) throw new Error(`no checkpoint: ${note.text}`);
  return checkpoint;
};
async function headOf(url: string): Promise<SignedNote | null> {
  const answer = await fetch(`${url}/log/checkpoint`);
  return answer.ok ? noteOf(await answer.text()) : null;
}

describe("a Directory's log", () => {
  let made: LogPair;
  beforeAll(async () => {
    made = await startLogPair("alpha", files.fileOf);
    stopping(made.nodes);
    stopping(made.witness);
  });

  test("is signed and cosigned, and proves what it says about one key", async () => {
    const { nodes, log, cosigner } = made;
    const me = await open(nodes.url);
    const proof = await (await fetch(`${nodes.url}/dids/${me.did}/proof`)).bytes();
    const key = keyOfDid(me.did);
    const ask = async (from: number) => {
      const answer = await fetch(`${nodes.url}/log/entry/${key.toHex()}?from=${from}`);
      return answer.ok ? decodeLogEntry(await answer.bytes()) : null;
    };
    const entry = await until(async () => {
      const found = await ask(1);
      return found?.leaf != null && Buffer.compare(found.leaf.key, key) === 0 ? found : null;
    });
    const note = noteOf(entry.note);
    expect([holds(note, log), holds(note, cosigner), entry.logKey]).toEqual([
      true,
      true,
      vkeyOf(log),
    ]);
    const head = checkpointOf(note);
    expect(head.origin).toBe("alpha.example/log");
    expect(verifyInclusion(hashLeaf(entry.mapRoot), head.size - 1, head, entry.inclusion)).toBe(
      true,
    );
    expect(readMapProof(entry, key)).toEqual({ root: entry.mapRoot, value: valueOfProof(proof) });
    const first = { size: 1, root: hashLeaf(new Uint8Array(32)) };
    expect(verifyConsistency(first, head, entry.consistency)).toBe(true);
    expect((await ask(head.size + 1_000))?.consistency).toEqual([]);
    const tile = await fetch(`${nodes.url}/log/tile/0/000.p/${head.size}`);
    expect([(await tile.bytes()).length, tile.headers.get("cache-control")]).toEqual([
      32 * head.size,
      "public, max-age=31536000, immutable",
    ]);
    for (const path of ["tile/0/001", "tile/0/x000/000", "tile/0/000.p/250", "tile/entries/x1/2/3"])
      expect([path, (await fetch(`${nodes.url}/log/${path}`)).status]).toEqual([path, 404]);
    for (const path of ["entry/00", `entry/${key.toHex()}?from=x`])
      expect([path, (await fetch(`${nodes.url}/log/${path}`)).status]).toEqual([path, 400]);
  });

  test("names itself in the genesis hash of the ledger", async () => {
    const { nodes } = made;
    const { genesis_hash } = (await (await fetch(`${nodes.url}/limits`)).json()) as {
      genesis_hash: string;
    };
    const entry = await until(async () => {
      const answer = await fetch(`${nodes.url}/log/entry/${"00".repeat(32)}`);
      return answer.ok ? decodeLogEntry(await answer.bytes()) : null;
    });
    const named = sha256(
      Buffer.concat([utf8(`svc:log:genesis:v1|${entry.logKey}|`), entry.genesisSeed ?? utf8("")]),
    );
    expect(genesis_hash).toBe(`0x${named.toHex()}`);
  });
});

describe("a witness", () => {
  const [log, cosigner] = [
    testKey("beta.example/log", "log"),
    testKey("beta.example/witness", "witness"),
  ];
  const changes = Array.from({ length: 700 }, (_, i) => ({
    key: sha256(utf8(`k${i}`)),
    value: sha256(utf8(`v${i}`)),
  }));
  let nowMs = Date.now();

  /** One that has cosigned the first head of a log. */
  async function started(
    of = new TestLog(log).append(changes.slice(0, 300)).append(changes.slice(300, 600)),
  ) {
    const served = stopping(of.serve());
    const witness = stopping(
      await startWitness({ ...files, key: cosigner }, [[log, served.url]], { now: () => nowMs }),
    );
    const add = async (body: string) => {
      const answer = await fetch(`${witness.url}/witness/add-checkpoint`, { method: "POST", body });
      const text = await answer.text();
      const code = answer.headers.get("content-type")?.includes("problem")
        ? (JSON.parse(text) as { code: string }).code
        : text;
      return { status: answer.status, code, type: answer.headers.get("content-type") };
    };
    return { of, served, witness, add };
  }

  const signedNote = (of: TestLog) => of.note().signatures[0] as SignedNote["signatures"][number];

  test("cosigns what continues the head before, and a repeat with a new time", async () => {
    const { of, add, witness } = await started();
    const signed = async (old: number) => {
      const { status, code } = await add(of.added(old));
      expect(status).toBe(200);
      const note = noteOf(`${of.note().text}\n${code}`);
      expect(holds(note, cosigner)).toBe(true);
      return signedBy(note, cosigner.key)?.timeMs;
    };
    expect(await signed(0)).toBe(Math.floor(nowMs / 1_000) * 1_000);
    nowMs += 60_000;
    expect(await signed(of.size)).toBe(Math.floor(nowMs / 1_000) * 1_000);
    const before = of.size;
    of.append(changes.slice(600));
    // Signatures of others are not kept: it did not check them.
    const other = { ...signedNote(of), name: "gamma.example/witness" };
    expect(
      (await add(of.added(before, { ...of.note(), signatures: [...of.note().signatures, other] })))
        .status,
    ).toBe(200);
    const latest = noteOf(
      await (
        await fetch(`${witness.url}/witness/${encodeHex(sha256(utf8(log.key.name)))}/checkpoint`)
      ).text(),
    );
    expect([holds(latest, log), holds(latest, cosigner), checkpointOf(latest).size]).toEqual([
      true,
      true,
      of.size,
    ]);
    expect(latest.signatures.map(({ name }) => name)).toEqual([log.key.name, cosigner.key.name]);
    expect((await fetch(`${witness.url}/witness/${"00".repeat(32)}/checkpoint`)).status).toBe(404);
  });

  test("refuses everything else, each with its own status", async () => {
    const { of, add } = await started();
    const other = new TestLog(testKey("gamma.example/log", "log")).append([]);
    const impostor = new TestLog(testKey(log.key.name, "log", sha256(utf8("another"))));
    impostor.append([]);
    const { text, signatures } = of.note();
    const [signature] = signatures as [SignedNote["signatures"][number]];
    const broken = {
      text,
      signatures: [
        { ...signature, bytes: signature.bytes.with(3, (signature.bytes[3] as number) ^ 1) },
      ],
    };
    const cases: readonly (readonly [string, number, string])[] = [
      ["", 400, "invalid_request"],
      [of.added(0).replace("old 0", "old 00"), 400, "invalid_request"],
      [of.added(0).replace("old 0\n", "old 0\nAAAA\n"), 400, "invalid_request"],
      [of.added(0).replace(text, `${text}extension\n`), 400, "invalid_request"],
      [of.added(of.size + 1), 400, "invalid_request"],
      [other.added(0), 404, "not_found"],
      [impostor.added(0), 403, "invalid_signature"],
      [of.added(0, broken), 403, "invalid_signature"],
      [of.added(7), 409, "0\n"],
      [of.added(0, of.note(), [sha256(utf8("too much"))]), 422, "log_inconsistent"],
    ];
    for (const [body, status] of cases)
      expect([body.slice(0, 40), (await add(body)).status]).toEqual([body.slice(0, 40), status]);
    for (const [body, , code] of cases) expect((await add(body)).code).toBe(code);
    expect((await add(of.added(0))).status).toBe(200);
    const told = await add(of.added(0));
    expect(told).toEqual({ status: 409, code: `${of.size}\n`, type: "text/x.tlog.size" });
  });

  test("never cosigns a fork, a map that doesn't follow, or two map roots", async () => {
    const { of, add, served } = await started();
    expect((await add(of.added(0))).status).toBe(200);
    const kept = of.size;
    const [first, second] = [of.fork(), of.fork()];
    first.append(changes.slice(600, 650));
    second.append(changes.slice(650, 700));
    // Two heads of one size, with the entries of either.
    of.entries.push(...first.entries.slice(kept));
    expect((await add(first.added(kept))).status).toBe(200);
    // Of one size: a conflict, although the size that the caller says is right.
    const forked = await add(second.added(second.size, second.note(), []));
    expect(forked).toEqual({
      status: 409,
      code: `${first.size}\n`,
      type: "text/x.tlog.size",
    });
    expect((await add(second.added(kept))).status).toBe(409);
    // A map root that doesn't follow, in entries that do.
    const wrong = first.fork().append(changes.slice(650, 651), sha256(utf8("another map")));
    of.entries.push(...wrong.entries.slice(first.size));
    expect((await add(wrong.added(first.size))).code).toBe("log_inconsistent");
    // A head that the entries don't lead to.
    const withheld = first.fork().append(changes.slice(660, 662));
    expect((await add(withheld.added(first.size))).status).toBeGreaterThan(400);
    await served.stop();
    expect((await add(withheld.added(first.size))).code).toBe("service_unavailable");
    expect((await add(first.added(first.size))).status).toBe(200);
  });

  test("keeps a bounded part of an endless log, says so once a minute, and serves the others", async () => {
    const other = testKey("delta.example/log", "log");
    const [endless, honest] = [new TestLog(log), new TestLog(other).append(changes.slice(0, 50))];
    const [many, few] = [stopping(endless.serve()), stopping(honest.serve())];
    const logBytesMax = 40_000;
    const witness = stopping(
      await startWitness(
        { ...files, key: cosigner, logBytesMax },
        [
          [log, many.url],
          [other, few.url],
        ],
        { now: () => nowMs },
      ),
    );
    const add = async (body: string) => {
      const answer = await fetch(`${witness.url}/witness/add-checkpoint`, { method: "POST", body });
      return { status: answer.status, text: await answer.text() };
    };
    // Two keys that differ in the last digit alone: each such pair has 63 pages of the map.
    const deep = (n: number) =>
      [0, 1].map((last) => {
        const key = sha256(utf8(`deep ${n}`));
        key[31] = last;
        return { key, value: key };
      });
    let [cosigned, refused] = [0, 0];
    for (let n = 0; n < 40; n++) {
      endless.append(deep(n));
      const { status, text } = await add(endless.added(cosigned));
      if (status === 200) cosigned = endless.size;
      else {
        refused++;
        expect([status, JSON.parse(text).code]).toEqual([507, "storage_full"]);
        expect(text).toContain(`at most ${logBytesMax} bytes of one log`);
      }
    }
    // 120 entries of at most 64 bytes: without the map, all would have had room.
    expect([cosigned > 3, refused > 20]).toEqual([true, true]);
    const warned = () =>
      witness.lines.filter(({ message }) => message === "a head is not cosigned");
    expect(warned()).toHaveLength(1);
    nowMs += 60_000;
    expect((await add(endless.added(cosigned))).status).toBe(507);
    expect(warned()).toHaveLength(2);
    // What it has cosigned stays, and is renewed; the other log goes on.
    const again = endless.added(cosigned, endless.note(cosigned), []);
    expect((await add(again)).status).toBe(200);
    expect((await add(honest.added(0))).status).toBe(200);
    const before = honest.size;
    honest.append(changes.slice(50, 60));
    expect((await add(honest.added(before))).status).toBe(200);
  });
});

describe("after a restore", () => {
  async function lossy(name: string) {
    const [log, cosigner] = [
      testKey(`${name}.example/log`, "log"),
      testKey(`${name}.example/witness`, "witness"),
    ];
    const port = freePort();
    const witness = stopping(
      await startWitness({ ...files, key: cosigner }, [[log, `http://127.0.0.1:${port}/log`]]),
    );
    const file = files.fileOf(log);
    const start = (path: string) =>
      startTestNodes(
        loggedNodes({ logFile: file, cosigner, witnessUrl: witness.url, port, store: { path } }),
      );
    const path = paths();
    let nodes = await start(path);
    await open(nodes.url);
    const kept = checkpointOf(await until(() => headOf(nodes.url))).size;
    await nodes.stop();
    const backup = paths();
    Bun.spawnSync(["cp", "-r", path, backup]);
    nodes = await start(path);
    const lost = await open(nodes.url);
    const signed = await until(async () => {
      const note = await headOf(nodes.url);
      return note !== null && note.signatures.length > 1 && checkpointOf(note).size > kept
        ? checkpointOf(note)
        : null;
    });
    await nodes.stop();
    return { witness, start, backup, lost, signed, file, log, cosigner, port };
  }

  test("a node takes the lost entries from its witness and goes on without a fork", async () => {
    const { start, backup, lost, signed } = await lossy("delta");
    const nodes = stopping(await start(backup));
    // It may register somebody before it has compared.
    await open(nodes.url);
    const now = await until(async () => {
      const note = await headOf(nodes.url);
      return note !== null && note.signatures.length > 1 && checkpointOf(note).size > signed.size
        ? checkpointOf(note)
        : null;
    });
    const { did } = lost;
    const entry = decodeLogEntry(
      await (
        await fetch(`${nodes.url}/log/entry/${keyOfDid(did).toHex()}?from=${signed.size}`)
      ).bytes(),
    );
    if (entry === null) throw new Error("no entry");
    const head = checkpointOf(noteOf(entry.note));
    expect(head.size).toBeGreaterThanOrEqual(now.size);
    expect(verifyConsistency(signed, head, entry.consistency)).toBe(true);
    expect(readMapProof(entry, keyOfDid(did))?.root.toHex()).toBe(entry.mapRoot.toHex());
    expect(readMapProof(entry, keyOfDid(did))?.value).toBeNull();
  }, 60_000);

  test("a node whose ledger is empty doesn't start, because its volume may not be mounted", async () => {
    const { start, backup } = await lossy("zeta");
    const empty = paths();
    for (let tries = 0; tries < 2; tries++)
      expect(String(await start(empty).catch((error: unknown) => error))).toContain(
        "is the volume of the store mounted?",
      );
    stopping(await start(backup));
  }, 60_000);

  test("without a witness it signs nothing shorter, until its log begins anew under another name", async () => {
    const { start, backup, signed, file, log, cosigner, witness, port } = await lossy("epsilon");
    await witness.stop();
    let nodes = await start(backup);
    await until(async () =>
      nodes.lines.some(({ message }) => message === "the log is not signed") ? true : null,
    );
    expect((await fetch(`${nodes.url}/log/checkpoint`)).status).toBe(503);
    expect(checkpointOf(noteOf(readFileSync(`${file}.head`, "utf8"))).size).toBe(signed.size);
    await nodes.stop();
    const renamed = testKey(`${log.key.name}/2`, "log", log.seed);
    copyFileSync(files.fileOf(renamed), file);
    const second = stopping(
      await startWitness({ ...files, key: cosigner }, [[renamed, `http://127.0.0.1:${port}/log`]]),
    );
    nodes = stopping(
      await startTestNodes(
        loggedNodes({
          logFile: file,
          cosigner,
          witnessUrl: second.url,
          port,
          store: { path: backup },
        }),
      ),
    );
    const note = await until(() => headOf(nodes.url));
    expect([checkpointOf(note).origin, holds(note, renamed)]).toEqual([
      "epsilon.example/log/2",
      true,
    ]);
    const said = await fetch(`${nodes.url}/log/entry/${"00".repeat(32)}`);
    const entry = decodeLogEntry(await said.bytes());
    expect(entry?.restart?.oldHead.toHex()).toBe(
      `${signed.size.toString(16).padStart(16, "0")}${signed.root.toHex()}`,
    );
  }, 60_000);
});
