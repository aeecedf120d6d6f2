/**
 * A disk that fills up again and again below the compiled executable, under a mixed load at full
 * speed over HTTP, with kills: something beside the store takes all that is free, and lets go of it
 * again. Nothing answered is lost, doubled or back. While there is no room a refusal is 503 or 507
 * with a code, the Relay's 502 with that of the Cache, a start works, and mailboxes can be read and
 * emptied. Once they are, a file with room inside takes large messages too, though its disk is
 * full. Once there is room, everything works.
 *
 * `bun test/campaigns/full-disk.ts --rounds 50` prints the figures. Needs Linux and the right to
 * mount.
 */
import { appendFileSync, mkdirSync, rmSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openLoad } from "./model.ts";
import { Findings, type Stage } from "./stage.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    people: { type: "string", default: "12" },
    mb: { type: "string", default: "80" },
  },
});
const rounds = Number(values.rounds);
const findings = new Findings();
const missingProgram = 2;
const floorBytes = 2 ** 20;
/**
 * A file of this size has more room inside, once all is acknowledged, than the guard leaves free.
 */
const roomyBytes = 48 * 2 ** 20;
let insideTimes = 0;

let disk = "";

/** The store of a stage is on a file system of its own from now on. */
async function mountBelow(stage: Stage): Promise<void> {
  await stage.node().kill("SIGKILL");
  disk = join(stage.folder, "data");
  rmSync(disk, { recursive: true });
  mkdirSync(disk, { mode: 0o700 });
  const mount = ["mount", "-t", "tmpfs", "-o", `size=${values.mb}m,mode=700`, "tmpfs", disk];
  if (!Bun.spawnSync(mount).success) {
    console.log("SKIPPED: this user can't mount a small file system");
    process.exit(missingProgram);
  }
  process.once("exit", unmount);
  await stage.start();
}

const unmount = () => Bun.spawnSync(["umount", "-l", disk]);

const freeBytes = (): number => {
  const { bavail, bsize } = statfsSync(disk);
  return bavail * bsize;
};

const ballast = (): string => join(disk, "ballast");

/** Takes all but so many bytes of what is free. */
function take(leave: number): void {
  const bytes = freeBytes() - leave;
  if (bytes > 0) appendFileSync(ballast(), new Uint8Array(bytes));
}

const { stage, model } = await openLoad(Number(values.people), findings, {
  main: [`free_space_floor_bytes = ${floorBytes}`],
  pauseMsMax: 1,
  mustRead: true,
  contentBytesMax: 600_000,
  onStage: mountBelow,
});

/** Resolves when stores and changes are taken again. */
async function isUsable(withinMs: number): Promise<void> {
  const endsAtMs = performance.now() + withinMs;
  const { stored, changed } = { ...model.counts };
  while (model.counts.stored < stored + 20 || model.counts.changed < changed + 2) {
    if (performance.now() > endsAtMs) {
      findings.expect(false, `there is room, and nothing is taken after ${withinMs} ms`);
      return;
    }
    await Bun.sleep(20);
  }
}

/** What was acknowledged is room inside the file. */
async function storesInside(): Promise<void> {
  await model.stop();
  take(0);
  await model.empty();
  await model.takes(150_000 + Math.random() * 400_000, 20_000);
  insideTimes++;
  model.start();
}

for (let round = 1; round <= rounds; round++) {
  model.start();
  await Bun.sleep(Math.random() * 500);
  model.acknowledges = Math.random() < 0.2;
  take(Math.random() < 0.5 ? 0 : Math.random() * 8 * 2 ** 20);
  await Bun.sleep(Math.random() * 6_000);
  if (Math.random() < 0.7) {
    await stage.node().kill("SIGKILL");
    await model.stop();
    await stage.start();
    await model.auditMailboxes();
    model.start();
    await Bun.sleep(Math.random() * 1_000);
  }
  model.acknowledges = true;
  if (statSync(join(disk, "data.mdb")).size > roomyBytes) await storesInside();
  rmSync(ballast(), { force: true });
  await isUsable(10_000);
  if (Math.random() < 0.5) {
    await stage.node().kill("SIGKILL");
    await model.stop();
    await stage.start();
  }
  await model.stop();
  await model.audit();
  if (round % 10 === 0)
    console.log(
      `${round} rounds, ${findings.list.length} findings; answered ${JSON.stringify(model.counts)}`,
    );
}
console.log(`${rounds} rounds; answered: ${JSON.stringify(model.counts)}`);
console.log(`${insideTimes} times a large message went into a file on a full disk`);
console.log(`not answered, or refused: ${JSON.stringify(model.refusals)}`);
model.close();
await stage.node().kill("SIGKILL");
unmount();
await stage.close();
findings.exit();
