/**
 * The attackers of the abuse campaign, in a process of their own, so that the honest person next to
 * them is not measured by their event loop:
 * `bun test/campaigns/abuse-attacker.ts '<plan as JSON>'`. It attacks until its standard input
 * ends, and prints what it counted as one line of JSON.
 */
import { connect, type Socket } from "node:net";
import { clientFrom, envelopeTo, tally } from "./stage.ts";

/** Every plan is one attack from one loopback address. */
export type Plan =
  /** Unsigned envelopes to one recipient, as fast as they are answered. */
  | { readonly kind: "flood"; readonly url: string; readonly from: string; readonly to: string }
  /** Envelopes by the Relay to people whose inboxes are slow, at a pace. */
  | {
      readonly kind: "relay";
      readonly url: string;
      readonly from: string;
      readonly to: readonly string[];
      readonly perSecond: number;
    }
  /** Connections that send a request line and then a byte of a header each second. */
  | {
      readonly kind: "headers";
      readonly url: string;
      readonly from: string;
      readonly connections: number;
    }
  /** Connections that announce a body and send a byte of it each second. */
  | {
      readonly kind: "bodies";
      readonly url: string;
      readonly from: string;
      readonly connections: number;
    }
  /** Requests, given as whole heads, whose answers are taken a KiB each second. */
  | {
      readonly kind: "readers";
      readonly url: string;
      readonly from: string;
      readonly heads: readonly string[];
    }
  /** Inboxes that answer after a while; everybody's address and port. */
  | { readonly kind: "inbox"; readonly port: number; readonly answerAfterMs: number };

const floodConnections = 64;
let stopped = false;

async function flood({ url, from, to }: Extract<Plan, { kind: "flood" }>): Promise<unknown> {
  const client = clientFrom(from, url, floodConnections);
  const statuses: number[] = [];
  const one = async (): Promise<void> => {
    while (!stopped) {
      const { status } = await client.post("/cache/store", envelopeTo({ did: to }));
      statuses.push(status);
    }
  };
  await Promise.all(Array.from({ length: floodConnections }, one));
  return tally(statuses);
}

async function relay(plan: Extract<Plan, { kind: "relay" }>): Promise<unknown> {
  const client = clientFrom(plan.from, plan.url, 1_000);
  const statuses: number[] = [];
  const pending = new Set<Promise<void>>();
  for (let turn = 0; !stopped; turn++) {
    const to = plan.to[turn % plan.to.length] as string;
    const sending = client
      .post("/relay", envelopeTo({ did: to }))
      .then(({ status }) => void statuses.push(status));
    pending.add(sending);
    sending.finally(() => pending.delete(sending));
    await Bun.sleep(1_000 / plan.perSecond);
  }
  await Promise.race([Promise.all(pending), Bun.sleep(12_000)]);
  return tally(statuses);
}

/**
 * Opens connections, lets each begin, and then go on each second. Counts those that are still open
 * at the end.
 */
async function trickle(
  {
    url,
    from,
    connections,
  }: { readonly url: string; readonly from: string; readonly connections: number },
  begin: (socket: Socket, place: number) => void,
  goOn: (socket: Socket, place: number) => void,
): Promise<unknown> {
  const { hostname, port } = new URL(url);
  const sockets: Socket[] = [];
  let [opened, ended] = [0, 0];
  for (let place = 0; place < connections; place++) {
    const socket = connect({ host: hostname, port: Number(port), localAddress: from });
    socket.on("connect", () => {
      opened++;
      begin(socket, place);
    });
    socket.on("error", () => undefined);
    socket.on("close", () => ended++);
    sockets.push(socket);
    if (place % 100 === 99) await Bun.sleep(20);
  }
  while (!stopped) {
    await Bun.sleep(1_000);
    for (const [place, socket] of sockets.entries()) if (!socket.destroyed) goOn(socket, place);
  }
  for (const socket of sockets) socket.destroy();
  return { opened, endedByServer: ended };
}

const head = (path: string, lines = "") => `POST ${path} HTTP/1.1\r\nHost: a.example\r\n${lines}`;
const announced = "Content-Type: application/json\r\nContent-Length: 500000\r\n\r\n{";
const readBytes = 1_024;

function attack(plan: Plan): Promise<unknown> {
  switch (plan.kind) {
    case "flood":
      return flood(plan);
    case "relay":
      return relay(plan);
    case "headers":
      return trickle(
        plan,
        (socket) => socket.write(head("/cache/store", "X-A: ")),
        (socket) => socket.write("a"),
      );
    case "bodies":
      return trickle(
        plan,
        (socket) => socket.write(head("/cache/store", announced)),
        (socket) => socket.write(" "),
      );
    case "readers":
      return trickle(
        { ...plan, connections: plan.heads.length },
        (socket, place) => {
          socket.pause();
          socket.write(plan.heads[place] as string);
        },
        (socket) => void socket.read(readBytes),
      );
    case "inbox":
      return inbox(plan);
  }
}

async function inbox({ port, answerAfterMs }: Extract<Plan, { kind: "inbox" }>): Promise<unknown> {
  let taken = 0;
  const server = Bun.serve({
    hostname: "0.0.0.0",
    port,
    fetch: async () => {
      await Bun.sleep(answerAfterMs);
      taken++;
      return new Response("taken");
    },
  });
  while (!stopped) await Bun.sleep(50);
  await server.stop(true);
  return { taken };
}

if (import.meta.main) {
  const plan = JSON.parse(process.argv[2] ?? "") as Plan;
  process.stdin.on("end", () => (stopped = true));
  process.stdin.resume();
  console.log(JSON.stringify(await attack(plan)));
  process.exit(0);
}
