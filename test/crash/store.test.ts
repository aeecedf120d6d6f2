/**
 * A child that writes is killed at random moments, again and again on the same store. After each
 * kill, everything that was answered is in the store, nothing that was acknowledged is back, and
 * nothing is there that was never begun or is incomplete. The same rig catches a driver that
 * answers too early.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { times } from "../support/whole.ts";
import { findings, killedWriter, openStore, Said } from "./store-rig.ts";

const kills = times(15, 30);
const base = mkdtempSync(join(tmpdir(), "waypost-crash-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

describe("a writer killed at random", () => {
  test(`loses nothing that was answered, over ${kills} kills of one store`, async () => {
    const path = join(base, "safe");
    const said = new Said();
    const kinds = ["did store", "did ack", "did claim", "did put", "did forget"];
    const hasWorked = () => kinds.every((kind) => said.of(kind).size > kills);
    // On a busy machine a writer does little in its life, so more of them live.
    for (let round = 0; round < kills || (round < 5 * kills && !hasWorked()); round++) {
      const lifeMs = Math.random() < 0.3 ? Math.random() * 20 : Math.random() * 250;
      await killedWriter({ path, seed: round, mode: "safe", lifeMs }, said);
      const store = await openStore(path);
      expect(await findings(store, said)).toEqual([]);
      await store.close();
    }
    // The rig did see work of every kind, and kills between beginning and answering.
    for (const kind of kinds) {
      expect(said.of(kind).size).toBeGreaterThan(kills);
    }
    expect(said.of("try store").size).toBeGreaterThan(said.of("did store").size);
  }, 300_000);

  test("is noticed when it answers before the commit", async () => {
    const wrong: string[] = [];
    for (let round = 0; round < 20 && wrong.length === 0; round++) {
      const path = join(base, `unsafe ${round}`);
      const said = new Said();
      await killedWriter(
        { path, seed: round, mode: "unsafe", lifeMs: 20 + Math.random() * 60 },
        said,
      );
      const store = await openStore(path);
      wrong.push(...(await findings(store, said)));
      await store.close();
    }
    expect(wrong).not.toEqual([]);
  }, 60_000);
});
