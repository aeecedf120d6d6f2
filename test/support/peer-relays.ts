/**
 * Relays that are linked as processes of one machine are, in this process: sockets in a folder of their
 * own, shared recipients and Cache, and patience in milliseconds. `pretend` is a peer that tests speak for.
 */
import { concatBytes } from "../../src/core/codec/bytes.ts";
import type { Service } from "../../src/core/ledger/document.ts";
import { deliveryLimits } from "../../src/core/message/delivery.ts";
import type { Peers } from "../../src/nodes/relay/live/live.ts";
import {
  createPeerReader,
  encodePeerFrame,
  frameSlackBytes,
  type PeerFrame,
  peerVersion,
} from "../../src/nodes/relay/live/peer-frames.ts";
import { createPeers, type PeerLimits, peerLimits } from "../../src/nodes/relay/live/peers.ts";
import { sessionLimits } from "../../src/nodes/relay/live/registry.ts";
import { createPerson, type Person } from "./cache-node.ts";
import { scratchFolder } from "./executable.ts";
import { goLive, LiveClient, sessionUrl } from "./live-client.ts";
import { createTestRelay, relayEndpoint, type TestRelay, type TestRelayOptions } from "./relay-node.ts";

export const testPeerLimits: PeerLimits = {
  ...peerLimits,
  frameBytesMax: 25 * 1024 ** 2 + frameSlackBytes,
  presenceMax: 1_000,
  joinMs: sessionLimits.joinMs,
  pingMs: 50,
  silentMs: 400,
  helloMs: 300,
  redialMsMin: 10,
  redialMsMax: 50,
};

export type PeerRelay = TestRelay & {
  readonly url: string;
  readonly address: string;
  readonly peers: Peers;
  /** What its links said. */
  readonly said: { readonly message: string; readonly reason: unknown }[];
  /** How many sessions it knows at its peers. */
  readonly known: () => number;
};

export type PeerRelays = {
  readonly relays: readonly PeerRelay[];
  /** Addresses in order; of two the one before dials. */
  readonly addresses: readonly string[];
  /** One more, at an address that the others know. */
  readonly start: (at: number, given?: PeerRelayOptions) => Promise<PeerRelay>;
  readonly close: () => Promise<void>;
};

export type PeerRelayOptions = TestRelayOptions & { readonly limits?: Partial<PeerLimits> };

/** Relays at the first `count` of `places` addresses, linked. */
export async function startPeerRelays(
  count: number,
  given: PeerRelayOptions = {},
  places = count,
): Promise<PeerRelays> {
  const folder = scratchFolder();
  const addresses = Array.from({ length: places }, (_, at) => `unix:${folder.path}/${at}.sock`);
  const relays: PeerRelay[] = [];
  const start = async (at: number, more: PeerRelayOptions = {}): Promise<PeerRelay> => {
    const { limits, ...options } = { ...given, ...more };
    const address = addresses[at] as string;
    const said: { message: string; reason: unknown }[] = [];
    const peers = createPeers({
      address,
      peers: addresses.filter((one) => one !== address),
      limits: { ...testPeerLimits, joinMs: options.sessions?.joinMs ?? testPeerLimits.joinMs, ...limits },
      log: (_level, message, fields) => said.push({ message, reason: fields?.["reason"] }),
    });
    const beside = relays[0];
    const relay = await createTestRelay({ ...options, peers, ...(beside === undefined ? {} : { beside }) });
    const known = () => peers.stats().reduce((sum, { sessions }) => sum + sessions, 0);
    const one = { ...relay, url: relay.serve(), address, peers, said, known };
    relays.push(one);
    return one;
  };
  for (let at = 0; at < count; at++) await start(at);
  if (places === count) await Promise.all(relays.map(({ peers }) => peers.linked(5_000)));
  const close = async (): Promise<void> => {
    await Promise.all(relays.map((relay) => relay.close()));
    folder.remove();
  };
  return { relays, addresses, start, close };
}

// ------------------------------------------------------------------------------------------- a false peer

export type FalsePeer = {
  readonly frames: PeerFrame[];
  readonly closed: Promise<void>;
  readonly say: (frame: PeerFrame) => void;
  readonly write: (bytes: Uint8Array) => void;
  /** The first frame of the kind, once it is there. */
  readonly until: <K extends PeerFrame["kind"]>(kind: K) => Promise<Extract<PeerFrame, { kind: K }>>;
  readonly hangUp: () => void;
};

export const helloFrom = (from: string, version = peerVersion): PeerFrame => ({
  kind: "hello",
  version,
  from,
  bytesMax: testPeerLimits.frameBytesMax,
});

/** Connects to a Relay's private socket and says nothing by itself. */
export async function pretend(address: string): Promise<FalsePeer> {
  const frames: PeerFrame[] = [];
  const reader = createPeerReader(testPeerLimits.frameBytesMax);
  const closed = Promise.withResolvers<void>();
  let arrived: () => void = () => undefined;
  const socket = await Bun.connect({
    unix: address.slice("unix:".length),
    socket: {
      data: (_socket, chunk) => {
        frames.push(...(reader.push(chunk) ?? []));
        arrived();
      },
      close: () => closed.resolve(),
    },
  });
  const of = <K extends PeerFrame["kind"]>(kind: K) =>
    frames.find((frame): frame is Extract<PeerFrame, { kind: K }> => frame.kind === kind);
  const until: FalsePeer["until"] = async (kind) => {
    for (;;) {
      const found = of(kind);
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => (arrived = resolve));
    }
  };
  const write = (bytes: Uint8Array): void => void socket.write(bytes);
  return {
    frames,
    closed: closed.promise,
    say: (frame) => write(concatBytes(...(encodePeerFrame(frame) ?? []))),
    write,
    until,
    hangUp: () => socket.terminate(),
  };
}

// ------------------------------------------------------------------------------------------------- a stage

const relayService: Partial<Service> = { type: "SvcRelayService", serviceEndpoint: [relayEndpoint] };
export const listener = (number: number): Person => createPerson(number, [relayService, {}]);
/** Listens at the Relays, and has a Cache. */
export const bob = listener(1);

export type StageOptions = PeerRelayOptions & { readonly liveAckMs?: number };

/** What tests put on: `cleanups` run when the test is over. */
export function peerStage(cleanups: (() => unknown)[]) {
  const linked = async (count: number, given: StageOptions = {}, places = count): Promise<PeerRelays> => {
    const delivery = { ...deliveryLimits, liveAckMs: given.liveAckMs ?? 2_000 };
    const peers = await startPeerRelays(count, { ...given, options: { delivery, ...given.options } }, places);
    peers.relays[0]?.recipients.add(bob);
    cleanups.push(peers.close);
    return peers;
  };
  const pair = async (given: StageOptions = {}): Promise<[PeerRelay, PeerRelay]> => {
    const { relays } = await linked(2, given);
    return [relays[0] as PeerRelay, relays[1] as PeerRelay];
  };
  const live = async (relay: PeerRelay, deviceId = "phone", person = bob): Promise<LiveClient> => {
    const client = await goLive(relay.url, person, deviceId);
    cleanups.push(() => client.terminate());
    return client;
  };
  const dial = (relay: PeerRelay, deviceId: string, headers: Record<string, string> = {}): LiveClient => {
    const client = new LiveClient(sessionUrl(relay.url, bob, deviceId), headers);
    cleanups.push(() => client.terminate());
    return client;
  };
  return { linked, pair, live, dial };
}

export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await Bun.sleep(1);
}
