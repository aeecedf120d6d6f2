/**
 * The bus over nats-server keeps the contract while the server is killed, slow, restarted or
 * strict. Reports when this machine has no server.
 */
import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Socket } from "bun";
import { type NatsBusOptions, natsOptions, openNatsBus } from "../../src/plugins/bus/nats.ts";
import type { Bus } from "../../src/storage/bus.ts";
import { writeCertificate } from "../support/certificates.ts";
import { type NatsServer, natsAbsence, startNats } from "../support/nats.ts";
import { pause } from "../support/wait.ts";
import { runBusConformance } from "./bus.ts";

const absence = natsAbsence();
const environment = { log: () => {} };
const bytes = (text: string) => new TextEncoder().encode(text);
const answerTo = (answer: unknown) =>
  answer instanceof Uint8Array ? new TextDecoder().decode(answer) : answer;

function optionsFor(server: string, changes: Partial<NatsBusOptions> = {}): NatsBusOptions {
  return natsOptions.parse({ servers: [server], ...changes });
}

const openPair = (options: NatsBusOptions) =>
  Promise.all([openNatsBus(options, environment), openNatsBus(options, environment)]);

async function until(holds: () => boolean | Promise<boolean>, msMax = 60_000): Promise<void> {
  for (const endMs = performance.now() + msMax; !(await holds()); await Bun.sleep(30)) {
    if (performance.now() > endMs) throw new Error("it did not come to that in time");
  }
}

/**
 * A bus opens after two seconds without its server too, which a busy machine may take to connect.
 */
const untilConnected = (pair: readonly Bus[]) =>
  until(() => pair.every((bus) => bus.stats().connected));

/** Passes everything on until it is cut: then connections stay open and nothing gets through. */
function openLine(port: number, onSent: (text: string) => void = () => {}) {
  type End = { peer: Socket<End> | null; readonly early: Uint8Array[] };
  const clients = new Set<Socket<End>>();
  let isCut = false;
  const pass = (from: Socket<End>, message: Uint8Array) => {
    if (isCut) return;
    if (from.data.peer === null) from.data.early.push(new Uint8Array(message));
    else from.data.peer.write(message);
  };
  const close = (end: Socket<End>) => void end.data.peer?.end();
  const listener = Bun.listen<End>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      async open(client) {
        clients.add(client);
        client.data = { peer: null, early: [] };
        const data: End = { peer: client, early: [] };
        client.data.peer = await Bun.connect<End>({
          hostname: "127.0.0.1",
          port,
          data,
          socket: { data: pass, close },
        });
        for (const message of client.data.early) client.data.peer.write(message);
      },
      data(client, message) {
        pass(client, message);
        onSent(message.toString());
      },
      close(client) {
        clients.delete(client);
        close(client);
      },
    },
  });
  return {
    url: `nats://127.0.0.1:${listener.port}`,
    cut: (cut: boolean) => {
      isCut = cut;
    },
    drop: () => clients.forEach((client) => void client.terminate()),
    close: () => listener.stop(true),
  };
}

if (absence !== null) {
  test(`skipped: ${absence}`, () => {});
} else {
  let server: NatsServer;
  let prefixes = 0;
  const opened: Bus[] = [];
  beforeAll(async () => {
    server = await startNats();
  });
  afterAll(async () => {
    await Promise.all(opened.map((bus) => bus.close()));
    await server.end();
  });

  runBusConformance({
    name: "nats",
    open: async (given) => {
      const options = optionsFor(server.url, { subject_prefix: `case${prefixes++}` });
      const pair = await Promise.all([openNatsBus(options, given), openNatsBus(options, given)]);
      await untilConnected(pair);
      return pair;
    },
  });

  describe("a bus whose server", () => {
    /** Both connected. */
    const ends = async (changes: Partial<NatsBusOptions> = {}) => {
      const pair = await openPair(
        optionsFor(server.url, { subject_prefix: `fault${prefixes++}`, ...changes }),
      );
      opened.push(...pair);
      await untilConnected(pair);
      return pair;
    };

    test("is killed answers nobody at once, and works again by itself when the server is back", async () => {
      const [here, there] = await ends();
      let missed = 0;
      await there.subscribe("s", () => bytes("yes"), { missed: () => missed++ }).ready;
      expect(answerTo(await here.request("s", bytes("?"), 5_000))).toBe("yes");
      missed = 0;
      await server.stop();
      await until(() => !here.stats().connected && !there.stats().connected);
      const begunMs = performance.now();
      expect(await here.request("s", bytes("?"), 20_000)).toBe("unanswered");
      here.publish("s", bytes("lost"));
      const { ready } = here.subscribe("t", () => bytes("later"));
      await ready;
      expect(performance.now() - begunMs).toBeLessThan(15_000);
      expect(here.stats().dropped).toBe(1);
      await server.start();
      await until(() => here.stats().connected && there.stats().connected);
      await until(async () => answerTo(await here.request("s", bytes("?"), 1_000)) === "yes");
      await until(async () => answerTo(await there.request("t", bytes("?"), 1_000)) === "later");
      expect(missed).toBeGreaterThan(0);
    }, 120_000);

    test("is asked often keeps no request in memory", async () => {
      const [here] = await ends();
      await until(() => here.stats().connected);
      const errorsKept = async (requests: number): Promise<number> => {
        for (let n = 0; n < requests; n++) await here.request("s", bytes("?"), 5_000);
        Bun.gc(true);
        return heapStats().objectTypeCounts["Error"] ?? 0;
      };
      const before = await errorsKept(100);
      expect((await errorsKept(2_000)) - before).toBeLessThan(200);
    }, 120_000);

    test("is frozen answers nobody after the timeout, keeps bounded memory, and goes on", async () => {
      const [here, there] = await ends();
      for (const subject of ["s", "flood"])
        await there.subscribe(subject, () => bytes("yes")).ready;
      await server.freeze();
      try {
        expect(await here.request("s", bytes("?"), 300)).toBe("unanswered");
        const message = new Uint8Array(512 * 1024);
        for (let n = 0; n < 400; n++) here.publish("flood", message);
        expect(here.stats().dropped).toBeGreaterThan(200);
      } finally {
        server.thaw();
      }
      await until(async () => answerTo(await here.request("s", bytes("?"), 1_000)) === "yes");
    }, 120_000);

    test("is killed before it has read everything counts nothing of that when it is back", async () => {
      const [here, there] = await ends();
      for (const subject of ["s", "flood"])
        await there.subscribe(subject, () => bytes("yes")).ready;
      const answers = async () => answerTo(await here.request("s", bytes("?"), 10_000)) === "yes";
      await until(answers);
      const message = new Uint8Array(512 * 1024);
      await server.freeze();
      here.publish("flood", message);
      await server.stop();
      await until(() => !here.stats().connected && !there.stats().connected);
      await server.start();
      await until(answers);
      const { dropped } = here.stats();
      for (let n = 0; n < 150; n++) {
        here.publish("flood", message);
        if (n % 10 === 0) expect(await answers()).toBe(true);
      }
      expect(await answers()).toBe(true);
      expect(here.stats().dropped).toBe(dropped);
    }, 120_000);

    test("has just been reached again makes a subscription ready only when others know it", async () => {
      const subject_prefix = `fault${prefixes++}`;
      let greeted = () => {};
      const line = openLine(server.port, (text) => text.includes('"greets":true') && greeted());
      const apart = await openNatsBus(optionsFor(line.url, { subject_prefix }), environment);
      const other = await openNatsBus(optionsFor(server.url, { subject_prefix }), environment);
      opened.push(apart, other);
      await until(() => other.stats().connected && apart.stats().connected);
      await apart.subscribe("known", () => bytes("yes")).ready;
      await until(() => other.mayReach("known"));
      const ready = new Promise<void>((resolve) => {
        greeted = () => {
          greeted = () => {};
          resolve(apart.subscribe("new", () => bytes("yes")).ready);
        };
      });
      line.drop();
      await ready;
      expect(other.mayReach("new")).toBe(true);
      await apart.close();
      line.close();
    }, 60_000);

    test("is cut off from one process answers nobody to that one alone, and announces what it missed", async () => {
      const line = openLine(server.port);
      const subject_prefix = `fault${prefixes++}`;
      const apart = await openNatsBus(optionsFor(line.url, { subject_prefix }), environment);
      const [near, other] = await openPair(optionsFor(server.url, { subject_prefix }));
      opened.push(apart, near, other);
      let missed = 0;
      const changes: string[] = [];
      const note = (message: Uint8Array): undefined => void changes.push(String(answerTo(message)));
      await apart.subscribe("changed", note, { missed: () => missed++ }).ready;
      await other.subscribe("s", () => bytes("yes")).ready;
      await until(async () => answerTo(await apart.request("s", bytes("?"), 1_000)) === "yes");
      line.cut(true);
      const alsoMissed = missed;
      expect(await apart.request("s", bytes("?"), 300)).toBe("unanswered");
      expect(answerTo(await near.request("s", bytes("?"), 10_000))).toBe("yes");
      near.publish("changed", bytes("while it was cut off"));
      await until(() => !apart.stats().connected, 40_000);
      line.cut(false);
      await until(() => missed > alsoMissed);
      near.publish("changed", bytes("afterwards"));
      await until(() => changes.includes("afterwards"));
      expect(changes).toEqual(["afterwards"]);
      await apart.close();
      line.close();
    }, 80_000);

    test("loses one process makes the others read again what that one could not publish", async () => {
      const line = openLine(server.port);
      const subject_prefix = `fault${prefixes++}`;
      const apart = await openNatsBus(optionsFor(line.url, { subject_prefix }), environment);
      const other = await openNatsBus(optionsFor(server.url, { subject_prefix }), environment);
      opened.push(apart, other);
      let missed = 0;
      const changes: string[] = [];
      const note = (message: Uint8Array): undefined => void changes.push(String(answerTo(message)));
      await other.subscribe("changed", note, { missed: () => missed++ }).ready;
      await until(() => apart.stats().connected && apart.mayReach("changed"));
      const before = missed;
      line.drop();
      await until(() => !apart.stats().connected);
      apart.publish("changed", bytes("into the void"));
      await until(() => missed > before && apart.stats().connected && apart.mayReach("changed"));
      apart.publish("changed", bytes("afterwards"));
      await until(() => changes.includes("afterwards"));
      expect(changes).toEqual(["afterwards"]);
      await apart.close();
      line.close();
    }, 80_000);

    test("accepts connections and is silent opens at once, keeps one connection, and is left for one that answers", async () => {
      const silent = new Set<Socket>();
      const socket = {
        open: (one: Socket) => void silent.add(one),
        close: (one: Socket) => void silent.delete(one),
        data() {},
      };
      const half = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
      const lines: string[] = [];
      const log = (_level: string, message: string) => void lines.push(message);
      const options = optionsFor(`nats://127.0.0.1:${half.port}`, {
        subject_prefix: `fault${prefixes++}`,
      });
      const bus = await openNatsBus(options, { log });
      const both = await openNatsBus(
        { ...options, servers: [...options.servers, server.url] },
        environment,
      );
      opened.push(bus, both);
      expect(await bus.request("s", bytes("?"), 20_000)).toBe("unanswered");
      await until(() => both.stats().connected);
      // Each try takes five seconds and gives its connection up.
      await until(() => lines.length > 0);
      await pause(6_000, "another try would keep a second connection or log a second line");
      expect(silent.size).toBeLessThanOrEqual(1);
      expect(lines).toHaveLength(1);
      half.stop(true);
    }, 120_000);

    test("is not running yet opens at once and works when it runs", async () => {
      await server.stop();
      const [here, there] = await openPair(
        optionsFor(server.url, { subject_prefix: `fault${prefixes++}` }),
      );
      opened.push(here, there);
      let asked = 0;
      const subscription = there.subscribe("s", () => bytes(String(++asked)));
      expect(await here.request("s", bytes("?"), 20_000)).toBe("unanswered");
      await server.start();
      await subscription.ready;
      await until(async () => (await here.request("s", bytes("?"), 1_000)) !== "unanswered");
      expect(asked).toBeGreaterThan(0);
    }, 120_000);
  });

  test("user, password and certificates are used, and wrong ones reach nobody", async () => {
    const folder = mkdtempSync(join(tmpdir(), "waypost-tls-"));
    const { cert, key } = writeCertificate(folder, "first");
    const strict = await startNats([
      'authorization { user: "node", password: "right" }',
      `tls { cert_file: "${cert}", key_file: "${key}", timeout: 5 }`,
    ]);
    try {
      const url = `tls://127.0.0.1:${strict.port}`;
      const rights = { user: "node", password: "right", tls_ca_file: cert };
      const [here, there] = await openPair(optionsFor(url, rights));
      const [wrong, untrusting] = await Promise.all([
        openNatsBus(optionsFor(url, { ...rights, password: "wrong" }), environment),
        openNatsBus(optionsFor(url, { user: "node", password: "right" }), environment),
      ]);
      opened.push(here, there, wrong, untrusting);
      await there.subscribe("s", () => bytes("yes")).ready;
      await until(async () => answerTo(await here.request("s", bytes("?"), 2_000)) === "yes");
      for (const bus of [wrong, untrusting]) {
        expect(bus.stats().connected).toBe(false);
        expect(await bus.request("s", bytes("?"), 2_000)).toBe("unanswered");
      }
    } finally {
      await strict.end();
      rmSync(folder, { recursive: true });
    }
  }, 120_000);
}
