/**
 * A world without sockets, over the real rules of keyrings and groups: an identity with two or
 * three devices that makes a group of two others, one of them with two devices. Packets are lost,
 * repeated, late and in any order; devices are killed between two steps and go on from older copies
 * of their stores, or of the local one alone; the Directory shows old records; a thief has a linked
 * device and keeps what it knew. Secrets and signatures are names: who knows a name can use it.
 */
import type { Head, RingDevice } from "../../src/client/devices/keyring.ts";
import { emptyGroup, isIn, withChange } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";

import { Device } from "./own-device.ts";
import {
  alice,
  beginMs,
  bob,
  carol,
  dayMs,
  did,
  digestIn,
  eve,
  hourMs,
  keyOf,
  mallory,
  messageTtlMs,
  type Packet,
  type Rules,
  realRules,
  secondMs,
} from "./own-facts.ts";
import { firstSealing } from "./own-sealing.ts";
import { Thief } from "./own-thief.ts";
export class World {
  readonly rules: Rules;
  readonly random: () => number;
  nowMs = beginMs;
  /** A device has lost what only it had. */
  wasSetBack = false;
  isHostile = true;
  readonly ledger = new Map<Did, string[]>();
  readonly methods = new Map<Did, readonly string[]>();
  readonly devices: Device[] = [];
  packets: Packet[] = [];
  /** All that was ever sent: the Relay keeps it. */
  readonly taped: Packet[] = [];
  readonly thief: Thief;
  readonly wishedOut = new Set<Did>();
  readonly leaks = new Set<string>();
  /** The sealing key in each document. */
  readonly sealing = new Map<Did, string>();
  /** Published keys whose secrets no own device has, as one of them has said. */
  readonly lost = new Set<string>();
  /** Keys of messages that no device could open while they lived. */
  readonly unopened = new Set<string>();
  /** Messages that no device could open so far. */
  readonly mailbox: Packet[] = [];
  /** Group and next admin, of each hand-over that was signed. */
  readonly handedOver = new Set<string>();
  /** Whether the user hands a group over without the answers of other devices, and did. */
  readonly goesOn: boolean;
  wentOn = false;
  /** A device went back to a copy from before its answer to who hands the group over. */
  forgotAnswer = false;
  /**
   * The device that had handed the group over went back to a copy from before it, and no other one
   * knew.
   */
  forgotHandOver = false;
  counter = 0;

  constructor(rules: Rules, random: () => number) {
    this.rules = rules;
    this.random = random;
    this.goesOn = random() < 0.2;
    for (const one of [alice, bob, carol, eve, mallory]) {
      this.ledger.set(one, [keyOf(`${one.slice(8, 12)} root 1`)]);
      this.methods.set(one, [this.rootOf(one)]);
      this.sealing.set(one, firstSealing(one, this.rootOf(one), beginMs).secrets[0]?.name ?? "");
    }
    this.#begin(alice, ["a1", "a2", "a3"], "thief");
    this.#begin(bob, ["b1", "b2"], "thief3");
    this.#begin(carol, ["c1"], null);
    this.#begin(eve, ["e1"], null);
    this.thief = new Thief(this);
    this.#makeGroup();
  }

  /**
   * The group was handed over without a device that knows of it: it may do meanwhile what is undone
   * then.
   */
  get isUnanswered(): boolean {
    return this.wentOn || (this.forgotAnswer && this.handedOver.size > 0);
  }

  rootOf(one: Did): string {
    return this.ledger.get(one)?.at(-1) ?? "";
  }

  #begin(identity: Did, names: readonly string[], linkedThief: string | null): void {
    const listed = [...names, ...(linkedThief === null ? [] : [linkedThief])];
    const devices = listed.map((name): RingDevice => {
      return { did: did(name), name, key: keyOf(name), addedMs: 0, addedBy: null };
    });
    const root = this.rootOf(identity);
    const first = devices[0]?.did as Did;
    const head: Head = { did: identity, number: 0, root, maker: first, untilMs: 0, devices };
    for (const name of names) this.devices.push(new Device(this, identity, name, head));
  }

  #makeGroup(): void {
    const empty = emptyGroup(alice, "nonce");
    const state = withChange(
      empty,
      { name: "G", add: [alice, bob, carol, eve] },
      this.nowMs - dayMs,
    );
    for (const device of this.devices) {
      device.kept.group = state;
      device.kept.statements = [{ statement: state, root: this.rootOf(alice) }];
    }
  }

  pick<T>(all: readonly T[]): T | undefined {
    return all[Math.floor(this.random() * all.length)];
  }

  /** A document on top of the one that its signer has seen, under the root key that it knows. */
  publish(by: { readonly identity: Did; readonly root: string }, name: string, before: string) {
    const { identity, root } = by;
    const isAccepted = this.rootOf(identity) === root && this.sealing.get(identity) === before;
    if (isAccepted) this.sealing.set(identity, name);
  }

  post(packet: Packet): void {
    this.packets.push(packet);
    this.taped.push(packet);
  }

  honest(identity: Did): Device[] {
    return this.devices.filter((one) => one.identity === identity);
  }

  /** One step of the hostile time. */
  step(): void {
    const { random } = this;
    this.nowMs += Math.floor(random() * 40) * secondMs;
    if (random() < 0.015) this.nowMs += Math.floor(random() * 5 * dayMs);
    const device = this.pick(this.devices) as Device;
    const drawn = random();
    if (drawn < 0.45) this.#deliver();
    else if (drawn < 0.7) device.tick();
    else if (drawn < 0.8) device.say();
    else if (drawn < 0.88) device.act();
    else if (drawn < 0.92) device.copies.keep();
    else if (drawn < 0.94) device.kill();
    else if (drawn < 0.955) device.copies.setBack();
    else this.thief.act();
  }

  #deliver(): void {
    for (const packet of this.mailbox.splice(0)) this.hand(packet);
    const { random, packets } = this;
    if (packets.length === 0) return;
    const at = Math.floor(random() * Math.min(packets.length, 12));
    const packet = packets[at] as Packet;
    const drawn = random();
    if (drawn < 0.8) packets.splice(at, 1);
    if (drawn >= 0.7 && drawn < 0.8) return; // Lost.
    this.hand(packet);
    // A Relay may deliver again what it has kept, also long after.
    const old = random() < 0.15 ? this.pick(this.taped) : undefined;
    if (old !== undefined) this.hand(old);
  }

  hand(packet: Packet): void {
    if (packet.is === "device") {
      this.devices.find((one) => one.did === packet.to)?.take(packet);
      return;
    }
    const of = this.honest(packet.to);
    const first = Math.floor(this.random() * Math.max(1, of.length));
    // What one device can't open waits in the mailbox for the others.
    const found = [...of.slice(first), ...of.slice(0, first)].find((one) =>
      one.opens(packet.sealedTo),
    );
    if (found !== undefined) found.read(packet.sealedTo, packet.text);
    else if (of.length > 0 && this.nowMs - packet.text.sentMs < messageTtlMs) {
      this.unopened.add(packet.sealedTo);
      // Until one of them gets the secret, or its time is over.
      this.mailbox.push(packet);
    }
  }

  /** Everything is delivered, and no one lies any more. Returns what is wrong. */
  calm(): string[] {
    this.isHostile = false;
    this.nowMs += 3 * dayMs;
    for (const device of this.devices) device.kill();
    let [before, isLate] = ["", false];
    for (let round = 0; round < 40; round++) {
      // Long enough for a key whose secret is lost to be replaced.
      this.nowMs += 6 * 60 * secondMs;
      for (const device of this.devices) device.tick();
      for (const device of this.devices) if (round % 3 === 2) device.say();
      if (round >= 10) for (const device of this.devices) device.expel();
      if (round >= 10) for (const device of this.devices) device.handing.again();
      for (let i = 0; i < 3_000 && this.packets.length > 0; i++)
        this.hand(this.packets.shift() as Packet);
      if (this.packets.length > 0) return ["packets don't end"];
      const now = JSON.stringify(this.devices.map((one) => one.copies.summary()));
      if (round % 3 === 2) {
        const isAtRest = now === before && round > 12;
        if (isAtRest && isLate) return this.#verdict();
        before = isAtRest ? "" : now;
        // What was sealed to a lost key is said again by then.
        if (isAtRest) this.nowMs += 2 * hourMs;
        isLate ||= isAtRest;
      }
    }
    return ["it doesn't come to rest"];
  }

  #verdict(): string[] {
    const wrong = [...this.leaks];
    const root = this.rootOf(alice);
    const own = this.honest(alice);
    const listed = own.map((one) => JSON.stringify(one.kept.ring.head));
    if (new Set(listed).size > 1) wrong.push("devices have different keyrings");
    const members = this.devices.filter((one) => isIn((own[0] as Device).kept.group, one.identity));
    const states = members.map((one) => digestIn(one.kept.group));
    const handedOver = [...this.handedOver].map((one) => one.split(" ")[0]);
    const isTwice = new Set(handedOver).size < handedOver.length;
    if (isTwice && !this.isUnanswered) wrong.push("a group was handed over twice");
    if (!isTwice && new Set(states).size > 1) wrong.push("members show different groups");
    const isShown = this.devices.some(({ kept }) => kept.second !== null);
    if (isTwice && !isShown) wrong.push("a second hand-over isn't shown");
    if (!isTwice && isShown) wrong.push("a second hand-over is shown, and there is none");
    for (const device of own) {
      const { ring, job, wish } = device.kept;
      if (ring.head.root !== root) wrong.push("a device is not at the root key in force");
      if (ring.candidates.length > 0 || job !== null || wish.length > 0)
        wrong.push("something waits for ever");
      const strange = ring.head.devices.filter((one) => this.thief.dids.has(one.did));
      if (this.thief.isRemoved && strange.length > 0) wrong.push("a removed device is listed");
    }
    if (this.thief.isRemoved && this.thief.seeds.has(root))
      wrong.push("the thief has the root seed");
    if (this.thief.isRemoved && this.methods.get(alice)?.includes("evil"))
      wrong.push("a thief's method is in the document");
    // Who goes on without a device's answer may undo what it alone has done.
    for (const gone of this.isUnanswered ? [] : this.wishedOut)
      if (members.some((one) => isIn(one.kept.group, gone))) wrong.push("a removal was undone");
    if (this.thief.isRemoved && members.some((one) => isIn(one.kept.group, mallory)))
      wrong.push("somebody outside came in by an earlier key");
    for (const name of this.unopened)
      if (!this.lost.has(name) && !this.wasSetBack)
        wrong.push("a message was not opened by anyone");
    for (const device of this.devices) {
      const { secrets } = device.kept.sealing;
      const isOpen = device.opens(this.sealing.get(device.identity) as string);
      if (!isOpen) wrong.push("a device lacks the secret of the published key");
      const endMs = this.nowMs - hourMs;
      if (secrets.some(({ destroyAtMs: end }) => end !== null && end < endMs))
        wrong.push("a secret outlives its end");
      if (secrets.filter(({ destroyAtMs: end }) => end === null).length > 1)
        wrong.push("a secret has no end");
    }
    for (const device of this.devices)
      if (new Set(device.kept.shown).size < device.kept.shown.length) wrong.push("shown twice");
    wrong.push(...this.#readers());
    return wrong;
  }

  /** What is said now: who can read it. */
  #readers(): string[] {
    const wrong: string[] = [];
    const from = this.taped.length;
    for (const device of this.devices) {
      device.kept.acked = {};
      device.tick();
      device.say();
    }
    for (const packet of this.taped.slice(from)) {
      if (packet.is === "text") {
        if (
          !this.isUnanswered &&
          this.wishedOut.has(packet.to) &&
          packet.text.bundle === null &&
          packet.text.from !== packet.to
        )
          wrong.push("sealed to who was removed");
        if (this.thief.isRemoved && packet.to === alice && this.thief.opens(packet.sealedTo))
          wrong.push("the thief reads the identity's messages");
        if (this.thief.opensByCopy(packet.sealedTo))
          wrong.push("who has a copy of the keys reads what is sealed to later ones");
      } else if (this.thief.isRemoved && this.thief.canOpen(packet))
        wrong.push("the thief reads what own devices say");
    }
    this.packets = [];
    return wrong;
  }
}

export function randomOf(seed: number): () => number {
  let state = Math.imul(seed + 1, 2_654_435_761) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What is wrong at the end of a schedule: nothing, when all laws hold. */
export function runSchedule(seed: number, rules: Rules = realRules, steps = 160): string[] {
  const world = new World(rules, randomOf(seed));
  for (let i = 0; i < steps; i++) world.step();
  return [...new Set(world.calm())];
}
