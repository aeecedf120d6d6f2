/**
 * The link between Relay processes: who may link, what ends a link and what ends with it, and peers that
 * hang, do not read or talk nonsense.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { deliveryLimits } from "../../src/core/message/delivery.ts";
import { envelopeTo } from "../support/cache-node.ts";
import { authFrame, goLive } from "../support/live-client.ts";
import {
  bob,
  helloFrom,
  listener,
  type PeerRelay,
  peerStage,
  pretend,
  type StageOptions,
  startPeerRelays,
  until,
} from "../support/peer-relays.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
const { linked, pair, live, dial } = peerStage(cleanups);

describe("a link", () => {
  test("is a socket that only this user reaches", async () => {
    const { relays } = await linked(2);
    for (const { address } of relays) expect(statSync(address.slice(5)).mode & 0o777).toBe(0o600);
  });

  test("that ends takes with it what was known of the peer, and comes back by itself", async () => {
    const { relays, start } = await linked(1, {}, 2);
    const [a] = relays as [PeerRelay];
    for (let round = 0; round < 3; round++) {
      const b = await start(1);
      await b.peers.linked(5_000);
      const client = await live(b, `phone-${round}`);
      await until(() => a.known() === 1);
      expect(a.sessions.listens(bob.did)).toBe(true);
      b.peers.close();
      await until(() => !a.sessions.listens(bob.did));
      expect((await a.send(envelopeTo(bob, round + 1))).code).toBe("cached");
      client.terminate();
      await b.close();
    }
    expect(a.said.filter(({ message }) => message === "a peer is linked").length).toBe(3);
  });

  test("tells a peer that comes later who listens already", async () => {
    const { relays, start } = await linked(1, {}, 2);
    const [a] = relays as [PeerRelay];
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    const b = await start(1);
    await b.peers.linked(5_000);
    await until(() => b.known() === 1);
    expect((await b.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
  });

  test("does not keep what it is not told to within its bound", async () => {
    const { relays, start } = await linked(1, { limits: { presenceMax: 2 } }, 2);
    const [a] = relays as [PeerRelay];
    const people = [1, 2, 3].map((number) => listener(number));
    for (const person of people) a.recipients.add(person);
    const b = await start(1);
    await b.peers.linked(5_000);
    const clients = await Promise.all(people.map((person) => goLive(b.url, person)));
    cleanups.push(() => clients.forEach((client) => void client.terminate()));
    await until(() => a.known() === 2);
    expect((await a.send(envelopeTo(people[2]!, 1))).code).toBe("cached");
  });

  describe("to a peer that", () => {
    /** One Relay that knows two addresses before its own and one behind; tests speak for the first. */
    const beside = async (given: StageOptions = {}) => {
      const peers = await startPeerRelays(0, given, 4);
      cleanups.push(peers.close);
      const delivery = { ...deliveryLimits, liveAckMs: 2_000 };
      const relay = await peers.start(2, { options: { delivery } });
      relay.recipients.add(bob);
      const falsePeer = await pretend(relay.address);
      cleanups.push(() => falsePeer.hangUp());
      return { relay, falsePeer, from: peers.addresses[0] as string };
    };
    const introduced = async (given: StageOptions = {}) => {
      const { relay, falsePeer, from } = await beside(given);
      falsePeer.say(helloFrom(from));
      await falsePeer.until("hello");
      await until(() => relay.peers.stats()[0]?.linked === true);
      return { relay, falsePeer };
    };

    const strangers: [string, (from: string) => Parameters<typeof helloFrom>, string][] = [
      ["speaks another version", (from) => [from, 9], "version 9"],
      ["is not one of its peers", () => ["unix:/tmp/elsewhere.sock"], "relay.peers"],
      ["should have waited to be dialed", (from) => [from.replace("0.sock", "3.sock")], "waited"],
    ];
    test.each(strangers)("%s is refused, and told why", async (_name, hello, reason) => {
      const { relay, falsePeer, from } = await beside();
      falsePeer.say(helloFrom(...hello(from)));
      expect((await falsePeer.until("refuse")).reason).toContain(reason);
      await falsePeer.closed;
      expect(relay.said.filter((line) => String(line.reason).includes(reason)).length).toBe(1);
      expect(relay.peers.stats().some(({ linked }) => linked)).toBe(false);
    });

    test("says nothing is ended in time", async () => {
      const { falsePeer } = await beside();
      await falsePeer.closed;
      expect(falsePeer.frames.every(({ kind }) => kind === "ping")).toBe(true);
    });

    test("talks nonsense before its hello is ended", async () => {
      const { falsePeer } = await beside();
      falsePeer.write(new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"));
      await falsePeer.closed;
    });

    test("talks nonsense is ended, and its sessions are forgotten", async () => {
      const { relay, falsePeer } = await introduced();
      falsePeer.say({ kind: "presence", did: bob.did, sessions: 1 });
      await until(() => relay.known() === 1);
      falsePeer.write(Uint8Array.of(0, 0, 0, 9, 0, 0, 0, 2, 0x7b, 0x7d, 0, 0, 0));
      await falsePeer.closed;
      expect(relay.sessions.listens(bob.did)).toBe(false);
      expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
    });

    test("hangs holds nothing up for longer than the link's patience", async () => {
      const { relay, falsePeer } = await introduced();
      falsePeer.say({ kind: "presence", did: bob.did, sessions: 1 });
      falsePeer.say({ kind: "join", id: 1, did: bob.did, deviceId: "x", key: "0" });
      await until(() => relay.known() === 1);
      const startMs = performance.now();
      // One delivery waits for the join that never ends, and a client for answers that never come.
      const [sent, client] = await Promise.all([relay.send(envelopeTo(bob, 1)), goLive(relay.url, bob, "phone")]);
      expect(performance.now() - startMs).toBeLessThan(2_000);
      expect(sent.code === "cached" || client.frames.length > 1).toBe(true);
      await falsePeer.closed;
      client.onEnvelope = (envelope) => client.ack(envelope);
      expect((await relay.send(envelopeTo(bob, 2))).code).toBe("delivered");
      client.terminate();
    });

    test("has a session of the same device joining settles with it which of the two stays", async () => {
      const { relay, falsePeer } = await introduced();
      /** A client that waits for the peer's answer to its join. */
      const joining = async () => {
        const client = dial(relay, "phone");
        await client.opened;
        client.send(authFrame(bob, "phone"));
        const claim = await falsePeer.until("claim");
        falsePeer.frames.length = 0;
        falsePeer.say({ kind: "answer", id: claim.id, end: "yes" });
        const join = await falsePeer.until("join");
        falsePeer.frames.length = 0;
        return { client, join };
      };
      const rival = { kind: "join" as const, did: bob.did, deviceId: "phone" };
      const first = await joining();
      falsePeer.say({ ...rival, id: 1, key: "0" });
      expect((await falsePeer.until("answer")).end).toBe("no");
      falsePeer.say({ kind: "answer", id: first.join.id, end: "yes" });
      await first.client.until(1);
      first.client.terminate();
      await until(() => relay.sessions.stats().sockets === 0);
      const second = await joining();
      falsePeer.say({ ...rival, id: 2, key: `${second.join.key}+` });
      expect(await second.client.closed).toBe(4410);
      expect((await falsePeer.until("answer")).end).toBe("yes");
      falsePeer.say({ kind: "joined", id: 2 });
      falsePeer.say({ kind: "answer", id: second.join.id, end: "no" });
      const third = await joining();
      falsePeer.say({ kind: "answer", id: third.join.id, end: "no" });
      expect(await third.client.closed).toBe(4410);
    });

    test("can't judge a nonce makes the client come again", async () => {
      const { relay, falsePeer } = await introduced();
      const client = dial(relay, "phone");
      await client.opened;
      client.send(authFrame(bob, "phone"));
      const { id } = await falsePeer.until("claim");
      falsePeer.say({ kind: "answer", id, end: "unavailable" });
      expect(await client.closed).toBe(1013);
    });

    test("does not read is ended instead of filling the memory", async () => {
      const { relay, falsePeer } = await introduced({ limits: { bytesOutMax: 1_000 } });
      falsePeer.say({ kind: "presence", did: bob.did, sessions: 1 });
      await until(() => relay.known() === 1);
      const many = Array.from({ length: 50 }, (_, at) =>
        relay.send(envelopeTo(bob, at + 1, { payload: { ciphertext_b64: "A".repeat(40_000) } })),
      );
      const codes = (await Promise.all(many)).map(({ code }) => code);
      expect(codes).toEqual(codes.map(() => "cached"));
      expect(falsePeer.frames.filter(({ kind }) => kind === "deliver").length).toBeLessThanOrEqual(1);
    });
  });

  test("is counted", async () => {
    const [a, b] = await pair();
    await live(a);
    await until(() => b.known() === 1);
    const text = await b.metrics.render();
    expect(text).toContain(`waypost_relay_peer_linked{peer="${a.address}"} 1`);
    expect(text).toContain(`waypost_relay_peer_sessions{peer="${a.address}"} 1`);
  });
});
