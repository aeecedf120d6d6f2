/**
 * What one live session that opens and closes costs all processes of an installation, in processor
 * time, without that of nats-server. Each process has the bus and nothing else; sessions come at an
 * even pace, live for a second, and go. What the same sessions cost on the bus within their process
 * is subtracted. `bun bench/presence.ts [processes with sessions, of 16] [sessions a second of
 * each] [folder]`; `folder` is another checkout, measured in turn with this one.
 */
import { join } from "node:path";
import { startNats } from "../test/support/nats.ts";

type Load = { readonly perSecond: number; readonly bus: "own" | "shared" };
type Order = Load | "cost" | "end";

const seconds = 4;
const lifeMs = 1_000;

/** A process: opens the bus of the checkout, and works off orders. */
async function serve(folder: string, server: string, prefix: string): Promise<void> {
  const { natsOptions, openNatsBus } = await import(join(folder, "src/plugins/bus/nats.ts"));
  const { openLocalBus } = await import(join(folder, "src/plugins/bus/local.ts"));
  const options = natsOptions.parse({ servers: [server], subject_prefix: prefix });
  const bus = await openNatsBus(options, { log: () => {} });
  const own = openLocalBus({ log: () => {} });
  const live = async (on: Load["bus"]): Promise<void> => {
    const subscription = (on === "own" ? own : bus).subscribe(
      `live:${crypto.randomUUID()}`,
      () => undefined,
    );
    await subscription.ready;
    await Bun.sleep(lifeMs);
    subscription.unsubscribe();
  };
  process.on("message", async (order: Order) => {
    if (order === "end") process.exit(0);
    if (order === "cost") {
      const { user, system } = process.cpuUsage();
      process.send?.({ micros: user + system });
      return;
    }
    const sessions: Promise<void>[] = [];
    const begunMs = performance.now();
    for (let n = 0; n < order.perSecond * seconds; n++) {
      await Bun.sleep(begunMs + (n * 1_000) / order.perSecond - performance.now());
      sessions.push(live(order.bus));
    }
    await Promise.all(sessions);
    process.send?.({ micros: 0 });
  });
  process.send?.({ micros: 0 });
}

class Installation {
  private constructor(private readonly children: readonly Bun.Subprocess[]) {}
  private static readonly answers = new Map<number, (micros: number) => void>();

  static async start(count: number, folder: string, server: string): Promise<Installation> {
    const prefix = `bench-${crypto.randomUUID().slice(0, 8)}`;
    const children: Bun.Subprocess[] = [];
    for (let n = 0; n < count; n++) {
      const { promise, resolve } = Promise.withResolvers<number>();
      const child: Bun.Subprocess = Bun.spawn(
        [process.execPath, import.meta.path, "serve", folder, server, prefix],
        {
          ipc: (answer: { micros: number }) => Installation.answers.get(child.pid)?.(answer.micros),
        },
      );
      Installation.answers.set(child.pid, resolve);
      children.push(child);
      await promise;
    }
    return new Installation(children);
  }

  private ask(child: Bun.Subprocess, order: Order): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    Installation.answers.set(child.pid, resolve);
    child.send(order);
    return promise;
  }

  /** Processor time of all processes while the work is done. */
  private async cost(work: () => Promise<unknown>[]): Promise<number> {
    const before = await this.used();
    await Promise.all(work());
    return (await this.used()) - before;
  }

  private async used(): Promise<number> {
    const all = await Promise.all(this.children.map((child) => this.ask(child, "cost")));
    return all.reduce((sum, one) => sum + one, 0);
  }

  /** Microseconds a session, of all processes together. */
  async measure(busy: number, perSecond: number): Promise<number> {
    const active = this.children.slice(0, busy);
    const [own, shared] = [
      await this.cost(() => active.map((child) => this.ask(child, { perSecond, bus: "own" }))),
      await this.cost(() => active.map((child) => this.ask(child, { perSecond, bus: "shared" }))),
    ];
    return (shared - own) / (perSecond * seconds * active.length);
  }

  end(): void {
    for (const child of this.children) child.send("end");
  }
}

const processes = 16;
const rounds = 3;

async function compare(busy: number, perSecond: number, other: string | undefined) {
  const own = join(import.meta.dir, "..");
  const nats = await startNats();
  const folders = other === undefined ? [own] : [other, own];
  const ones: Installation[] = [];
  for (const folder of folders) ones.push(await Installation.start(processes, folder, nats.url));
  const found: number[][] = folders.map(() => []);
  for (let round = 0; round < rounds; round++)
    for (const [n, one] of ones.entries()) found[n]!.push(await one.measure(busy, perSecond));
  const medians = found.map((list) => list.toSorted((a, b) => a - b)[rounds >> 1]!);
  for (const [n, folder] of folders.entries())
    console.log(
      `${processes} processes, ${busy} with sessions, ${folder === own ? "this checkout" : folder}: ${medians[n]!.toFixed(0)} us a session`,
    );
  if (medians.length > 1) console.log(`ratio ${(medians[1]! / medians[0]!).toFixed(2)}`);
  for (const one of ones) one.end();
  await nats.end();
}

const [mode, ...given] = process.argv.slice(2);
if (mode === "serve") await serve(given[0]!, given[1]!, given[2]!);
else {
  await compare(Number(mode ?? 1), Number(given[0] ?? 20), given[1]);
  process.exit(0);
}
