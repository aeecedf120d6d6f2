/**
 * The thief of the world of `own-world.ts`.
 */
import type { Head, Keyring } from "../../src/client/devices/keyring.ts";
import { changed, type GroupState } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";

import type { Device } from "./own-device.ts";
import {
  alice,
  bob,
  carol,
  dayMs,
  did,
  hourMs,
  keyOf,
  mallory,
  type Packet,
  type SealedHead,
  type Text,
} from "./own-facts.ts";
import type { World } from "./own-world.ts";
/** With a linked device, what it knew, and all that the Relay has. */
export class Thief {
  readonly #world: World;
  readonly dids = new Set<Did>([did("thief"), did("thief2")]);
  readonly #keys = new Set([keyOf("thief"), keyOf("thief2")]);
  readonly seeds: Set<string>;
  isRemoved = false;
  #read = 0;

  constructor(world: World) {
    this.#world = world;
    this.seeds = new Set([world.rootOf(alice)]);
  }

  canOpen(packet: Extract<Packet, { is: "device" }>): boolean {
    const { head, root } = packet;
    return this.seeds.has(root) || (head !== null && this.#keys.has(head.sealedTo));
  }

  /** Reads what the Relay has for it, and says what it likes. */
  act(): void {
    const world = this.#world;
    const news = world.taped.slice(this.#read);
    this.#read = world.taped.length;
    for (const packet of news)
      if (packet.is === "device" && packet.head !== null && this.#keys.has(packet.head.sealedTo))
        for (const seed of packet.head.seeds) this.seeds.add(seed);
    const target = world.pick(world.honest(alice)) as Device;
    const { ring, group } = target.kept;
    const root = world.pick([...this.seeds]) as string;
    const drawn = world.random();
    if (drawn < 0.3) {
      const second = {
        did: did("thief2"),
        name: "",
        key: keyOf("thief2"),
        addedMs: 0,
        addedBy: null,
      };
      const known = world.taped.findLast(
        (one) => one.is === "device" && one.head?.head.root === root,
      );
      const base = known?.is === "device" && known.head !== null ? known.head.head : ring.head;
      if (base.root !== root) return;
      const head = {
        ...base,
        devices: [...base.devices.filter((one) => one.did !== second.did), second],
      };
      this.#say(
        target,
        { head, signedBy: root, sealedTo: keyOfDevice(ring, target.did), seeds: [root] },
        root,
      );
    } else if (drawn < 0.5) {
      const evil = keyOf("evil");
      const number = ring.head.number + 1;
      const untilMs = world.nowMs + hourMs / 4;
      const head = { ...ring.head, number, root: evil, untilMs };
      const forged = {
        ...ring.head,
        devices: [
          ...ring.head.devices,
          { did: did("thief2"), name: "", key: keyOf("thief2"), addedMs: 1, addedBy: null },
        ],
      };
      // With the key that the ledger shows, whose seed it doesn't have; to a device that has no head of it so far.
      const all = world.ledger.get(alice) as string[];
      const shown = { ...forged, number: all.length - 1, root: world.rootOf(alice), untilMs };
      const isLate = shown.number > ring.head.number;
      const given = world.pick(isLate ? [shown] : [forged, head]) as Head;
      const sealedTo = keyOfDevice(ring, target.did);
      this.#say(target, { head: given, signedBy: evil, sealedTo, seeds: [given.root, evil] }, root);
    } else if (drawn < 0.8) {
      // Only before the removal: a whole document drops it.
      if (!this.isRemoved && world.random() < 0.5 && this.seeds.has(world.rootOf(alice)))
        world.methods.set(alice, [...(world.methods.get(alice) ?? []), "evil"]);
      const statement = changed(group, { add: [mallory], name: "stolen" }, world.nowMs + dayMs / 2);
      const to = world.pick([bob, carol, alice]) as Did;
      const signer = world.pick(world.methods.get(alice) ?? []) ?? "";
      const text: Text = {
        id: `thief ${world.counter++}`,
        from: alice,
        sentMs: world.nowMs,
        digest: "",
        bundle: { statements: [{ statement, root }], leavings: [] },
        signer,
      };
      world.post({ is: "text", to, sealedTo: world.methods.get(to)?.[0] ?? "", text });
    } else {
      const bad = changed(group, { add: [mallory] }, world.nowMs);
      this.#say(target, null, root, bad);
    }
  }

  #say(to: Device, head: SealedHead | null, root: string, group: GroupState = to.kept.group): void {
    const body = {
      group,
      groupRoot: to.kept.groupRoot,
      bundle: { statements: [], leavings: [] },
      shown: [],
      hash: "",
      acks: "",
    };
    const from = this.#world.random() < 0.5 ? did("thief") : did("thief2");
    const packet: Packet = { is: "device", to: to.did, from, root, head, body };
    // The Relay is the thief's.
    if (this.#world.random() < 0.5) this.#world.post(packet);
    else this.#world.hand(packet);
  }
}

const keyOfDevice = ({ head }: Keyring, of: Did): string =>
  head.devices.find((one) => one.did === of)?.key ?? "";
