/**
 * An attacker of the campaign `beside.ts`, in a process of its own:
 * `bun test/campaigns/beside-attacker.ts <plan file>`. It opens sessions, listens as an inbox and
 * posts its bodies again and again until its standard input ends, and prints what it counted as one
 * line of JSON.
 */
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { clientFrom, tally } from "./stage.ts";

export type Plan = {
  readonly url: string;
  readonly posts: {
    readonly path: string;
    /** In turn; `$id` becomes a new id each time. */
    readonly bodies: readonly string[];
    /** Loopback addresses, in turn. */
    readonly from: readonly string[];
    readonly connections: number;
    readonly perSecond: number;
  } | null;
  /**
   * Heads of upgrades, each with a proof; their sockets are read up to the welcome, or on and never
   * answered.
   */
  readonly sessions: {
    readonly heads: readonly string[];
    readonly from: readonly string[];
    readonly reads: boolean;
  };
  /** Answers each request with 500 after the delay. */
  readonly inbox: { readonly port: number; readonly delayMs: number } | null;
};

let stopped = false;

const plan = JSON.parse(readFileSync(process.argv[2] as string, "utf8")) as Plan;
const { hostname, port } = new URL(plan.url);

function openSession(head: string, place: number, ended: () => void): Promise<Socket> {
  const { from, reads } = plan.sessions;
  const socket = connect({
    host: hostname,
    port: Number(port),
    localAddress: from[place % from.length],
  });
  socket.on("error", () => undefined);
  socket.on("close", ended);
  socket.write(head);
  return new Promise((resolve) => {
    socket.on("data", (bytes) => {
      if (!reads && bytes.toString("latin1").includes("welcome")) socket.pause();
      resolve(socket);
    });
    socket.on("close", () => resolve(socket));
  });
}

async function post({ path, bodies, from, connections, perSecond }: NonNullable<Plan["posts"]>) {
  const clients = from.map((address) => clientFrom(address, plan.url, connections));
  const statuses: number[] = [];
  let next = 0;
  const startMs = performance.now();
  const one = async (): Promise<void> => {
    while (!stopped) {
      const place = next++;
      await Bun.sleep(Math.max(0, startMs + (place * 1_000) / perSecond - performance.now()));
      const client = clients[place % clients.length] as (typeof clients)[number];
      const body = (bodies[place % bodies.length] as string).replace("$id", crypto.randomUUID());
      if (!stopped) statuses.push((await client.post(path, body)).status);
    }
  };
  const all = Promise.all(Array.from({ length: connections * from.length }, one));
  await Promise.race([all, new Response(Bun.stdin.stream()).text().then(() => Bun.sleep(500))]);
  return tally(statuses);
}

const inbox =
  plan.inbox === null
    ? null
    : createServer((request, response) => {
        request.resume();
        setTimeout(() => response.writeHead(500).end(), plan.inbox?.delayMs);
      }).listen(plan.inbox.port);
let ended = 0;
const sockets = await Promise.all(
  plan.sessions.heads.map((head, place) => openSession(head, place, () => ended++)),
);
console.log("ready");
const posted = plan.posts === null ? {} : await post(plan.posts);
stopped = true;
console.log(JSON.stringify({ posted, sessions: sockets.length, ended }));
inbox?.close();
process.exit(0);
