/**
 * The compiled executable under clocks that jump, and that go slow and fast, with a mixed load and
 * the model outside (`model.ts`). After every change of the clock nothing may be lost, doubled or
 * back, no proof may be taken twice, mail that a jump of days has hidden must be there when it is
 * over, and nothing may be stuck: new registrations and changes settle, new messages come through.
 * Clients have the node's time, as if both were set by the same source.
 *
 * `bun test/campaigns/clock.ts --rounds 3 --seconds 5` prints what each step did, and ends with 1
 * on a finding.
 */
import { parseArgs } from "node:util";
import { scratchFolder } from "../support/executable.ts";
import { Model } from "./model.ts";
import { shiftClock, shiftLibrary } from "./shifted-clock.ts";
import { Findings, openStage, residentMib } from "./stage.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "1" },
    seconds: { type: "string", default: "5" },
    /** Begins with the step of this number, and ends before that one. */
    from: { type: "string", default: "0" },
    to: { type: "string", default: "14" },
    library: { type: "string", default: shiftLibrary },
  },
});
const secondMs = 1_000;
const hourMs = 3_600 * secondMs;
const seconds = Number(values.seconds);
const findings = new Findings();
const scratch = scratchFolder();
/** Clients have the node's time. */
const { offsetMs, setOffset, environment } = shiftClock(scratch.path, values.library);

/** Lets the clock go this many times as fast, in steps of 50 ms. */
async function drift(factor: number, forSeconds: number): Promise<void> {
  const [beginMs, from] = [performance.now(), offsetMs()];
  for (let passedMs = 0; passedMs < forSeconds * secondMs; passedMs = performance.now() - beginMs) {
    setOffset(from + passedMs * (factor - 1));
    await Bun.sleep(50);
  }
}

// ------------------------------------------------------------------------------------------- steps

const jump = (ms: number) => async (): Promise<void> => setOffset(offsetMs() + ms);

/** In this order: each goes on from the clock that the one before left. */
const steps: readonly {
  readonly name: string;
  readonly change: () => Promise<void>;
  /** Whether mail is hidden that was stored before, because its life is over by the clock. */
  readonly hides?: boolean;
}[] = [
  { name: "a minute ahead", change: jump(60 * secondMs) },
  { name: "a minute back", change: jump(-60 * secondMs) },
  { name: "six hours ahead", change: jump(6 * hourMs) },
  { name: "a quarter of an hour further ahead", change: jump(hourMs / 4) },
  { name: "six hours and a quarter back", change: jump(-6.25 * hourMs) },
  { name: "an hour back", change: jump(-hourMs) },
  { name: "killed, and started an hour further back", change: async () => restart(-hourMs) },
  { name: "killed, and started two hours ahead", change: async () => restart(2 * hourMs) },
  { name: "three times as fast", change: () => drift(3, seconds) },
  { name: "half as fast", change: () => drift(0.5, seconds) },
  { name: "a third backwards", change: () => drift(-0.3, seconds) },
  { name: "ten jumps of seconds", change: wobble },
  { name: "three days ahead", change: jump(72 * hourMs), hides: true },
  { name: "three days back", change: jump(-72 * hourMs), hides: false },
];

async function wobble(): Promise<void> {
  for (let i = 0; i < 10; i++) {
    setOffset(offsetMs() + (Math.random() - 0.5) * 20 * secondMs);
    await Bun.sleep(200);
  }
}

async function restart(ms: number): Promise<void> {
  await stage.node().kill("SIGKILL");
  setOffset(offsetMs() + ms);
  await stage.start();
}

/** A node that a clock has ended is a finding; the campaign goes on with a new one. */
async function untilAlive(): Promise<void> {
  if (residentMib(stage.node().pid) > 0) return;
  // It has ended already: the signal only asks for its code.
  const code = await stage.node().kill("SIGKILL");
  findings.expect(
    false,
    `${step}: the node ended with ${code}: ${(await stage.node().output()).slice(-4_000)}`,
  );
  await stage.start();
}

/** Waits until something of everything was answered again, for a while. */
async function untilMore(before: Readonly<Record<string, number>>): Promise<void> {
  const endsAtMs = performance.now() + 60 * secondMs;
  const isStuck = () =>
    Object.entries(model.counts).some(([what, count]) => count <= (before[what] ?? 0));
  while (isStuck() && performance.now() < endsAtMs) await Bun.sleep(100);
}

const wide = {
  directory: ["rate_limit_loopback = false"],
  relay: ["rate_limit_loopback = false", "recipient_rate = 100000"],
};
const stage = await openStage({ lines: wide, env: environment });
let step = "the beginning";
const model = new Model({
  url: stage.url,
  people: 6,
  find: (finding) => findings.expect(false, `${step}: ${finding}`),
  mayExpire: true,
});
await model.open();
for (let round = 0; round < Number(values.rounds); round++) {
  for (const { name, change, hides } of steps.slice(Number(values.from), Number(values.to))) {
    step = name;
    const before = { ...model.counts };
    model.start();
    await Bun.sleep((seconds * secondMs) / 2);
    await change();
    if (hides !== undefined) model.hideAll(hides);
    await Bun.sleep((seconds * secondMs) / 2);
    await model.stop();
    await untilAlive();
    await model.audit();
    // With nothing left of before, the same again must go through: nothing is stuck.
    const between = { ...model.counts };
    model.start();
    await untilMore(between);
    await model.stop();
    await model.audit();
    for (const [what, count] of Object.entries(model.counts)) {
      findings.expect(
        count > between[what as keyof typeof between],
        `${name}: nothing was ${what} after it`,
      );
    }
    const done = Object.entries(model.counts).map(([what, count]) => [
      what,
      count - before[what as keyof typeof before],
    ]);
    console.log(`${name}: ${JSON.stringify(Object.fromEntries(done))}`);
  }
}
console.log(`not answered, or refused: ${JSON.stringify(model.refusals)}`);
model.close();
await stage.close();
scratch.remove();
findings.exit();
