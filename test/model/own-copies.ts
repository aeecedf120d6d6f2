/** The store of a device in the world of `own-world.ts`, and older copies of it. */
import type { Head, Keyring, ProvenRoot } from "../../src/client/devices/keyring.ts";
import { emptyGroup, isIn } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Device } from "./own-device.ts";
import { alice, digestIn, type Kept, keyOf } from "./own-facts.ts";
import { firstSealing } from "./own-sealing.ts";
import type { World } from "./own-world.ts";

type First = {
  readonly identity: Did;
  readonly name: string;
  readonly head: Head;
  readonly nowMs: number;
};

export function firstKept({ identity, name, head, nowMs }: First): Kept {
  return {
    ring: { head, candidates: [] },
    deviceKey: keyOf(name),
    seeds: [head.root],
    ownRoot: head.root,
    removed: [],
    makers: [],
    sealing: firstSealing(identity, head.root, nowMs),
    given: [],
    group: emptyGroup(alice, "nonce"),
    former: [],
    second: null,
    handOvers: [],
    handing: null,
    shownWays: {},
    handedOver: null,
    keysSince: undefined,
    groupRoot: 0,
    statements: [],
    leavings: [],
    removals: [],
    waiting: [],
    shown: [],
    seen: {},
    acked: {},
    proven: {},
    job: null,
    wish: [],
  };
}

/**
 * After a look at the own proof. Beside new keys is noted which devices were removed, and who made
 * them.
 */
export function settledRing({ rules, nowMs }: World, kept: Kept, last: ProvenRoot): Keyring {
  const { ring, job, ownRoot } = kept;
  const settled = rules.settle(ring, last, { nowMs, made: job?.next ?? null });
  const isOlder = rules.isBehind(settled, last) && ownRoot === last.root;
  const next = isOlder ? rules.followOwn(settled, last, kept) : settled;
  const { root } = next.head;
  if (root === ring.head.root) return next;
  kept.removed.push(...rules.missingIn(next.head, ring.head));
  kept.makers.push({ root, maker: next.head.maker });
  if (kept.seeds.includes(root)) kept.ownRoot = root;
  return next;
}

export class Copies {
  readonly #world: World;
  readonly #device: Device;
  readonly #kept: string[] = [];

  constructor(world: World, device: Device) {
    this.#world = world;
    this.#device = device;
  }

  /** What changes while a world comes to rest. */
  summary(): unknown {
    const { ring, group, groupRoot, job, wish, waiting, handing, former } = this.#device.kept;
    return [ring, digestIn(group), groupRoot, job, wish, waiting.length, handing, former.length];
  }

  /** Whether the copy does not know that this device has answered who hands the group over. */
  #forget({ handing }: Kept): void {
    const { did, kept } = this.#device;
    const hasAnswered = kept.handing?.agreed.includes(did) === true;
    this.#world.forgotAnswer ||= hasAnswered && handing?.agreed.includes(did) !== true;
  }

  /** Whether no device of the admin knows of a hand-over any more that was said. */
  #forgetHandOver({ handedOver }: Kept): void {
    const { identity, kept } = this.#device;
    const known = this.#world.honest(identity).filter((one) => one !== this.#device);
    const isKnown = known.some(({ kept: { handOvers } }) => handOvers.length > 0);
    this.#world.forgotHandOver ||= kept.handedOver !== null && handedOver === null && !isKnown;
  }

  keep(): void {
    if (this.#kept.length < 3) this.#kept.push(JSON.stringify(this.#device.kept));
  }

  /** An older copy of the local store, beside the keys as they are. */
  #withKeys(before: Kept): Kept {
    const { ownRoot, removed, makers, sealing, proven } = this.#device.kept;
    const seeds = [...new Set([...before.seeds, ownRoot])];
    const { later } = before.sealing;
    const keys = { seeds, ownRoot, removed, makers, proven };
    return { ...before, ...keys, sealing: { ...sealing, later } };
  }

  /**
   * An older copy of its store, or of the local one alone. Keys that only this device had would be
   * lost: then it is linked anew, which is not here.
   */
  setBack(): void {
    // Without a draw: schedules stay those that they were.
    const isLocal = this.#world.taped.length % 3 === 0;
    const copy = this.#world.pick(this.#kept);
    const others = this.#world.honest(this.#device.identity).filter((one) => one !== this.#device);
    const hasAll = others.some((one) =>
      [...this.#device.kept.seeds, this.#device.kept.job?.next ?? ""].every(
        (seed) => seed === "" || one.kept.seeds.includes(seed),
      ),
    );
    if (copy === undefined || !(hasAll || isLocal) || this.#device.kept.job !== null) return;
    const { shown, seen, deviceKey } = this.#device.kept;
    const before: Kept = JSON.parse(copy);
    // The key of this device is among its keys, which others seal to.
    if (before.deviceKey !== deviceKey || before.job !== null) return;
    this.#device.kill();
    const { secrets } = this.#device.kept.sealing;
    this.#forget(before);
    this.#forgetHandOver(before);
    this.#device.kept = isLocal ? this.#withKeys(before) : before;
    const isKnown = (name: string) => others.some((one) => one.opens(name));
    this.#world.wasSetBack ||= secrets.some(
      ({ name }) => !this.#device.opens(name) && !isKnown(name),
    );
    // A store shows what it has; what it lacks comes again from others.
    this.#device.kept.shown = [...new Set([...before.shown, ...shown])];
    this.#device.kept.seen = { ...seen, ...before.seen };
    this.#device.kept.acked = {};
    // What only this copy knew is not known any more.
    for (const gone of this.#world.wishedOut)
      if (this.#world.devices.every((one) => isIn(one.kept.group, gone)))
        this.#world.wishedOut.delete(gone);
  }
}
