/** How a device of the world of `own-world.ts` hands a group over, and follows one that was handed over. */
import { goOnMs, type Succession } from "../../src/client/groups/handing.ts";
import { type GroupState, isIn } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Device } from "./own-device.ts";
import { alice, type Bundle, type SignedHandOver } from "./own-facts.ts";
import type { Removals } from "./own-removals.ts";
import type { World } from "./own-world.ts";

type Row = Required<Succession>;

/** The first of each. */
export function handOversOf(all: readonly SignedHandOver[]): SignedHandOver[] {
  const kept = new Map<string, SignedHandOver>();
  for (const one of all.toReversed()) kept.set(`${one.id} ${one.next}`, one);
  return [...kept.values()];
}

export class Handing {
  readonly #world: World;
  readonly #device: Device;
  readonly #removals: Removals;

  constructor(world: World, device: Device, removals: Removals) {
    this.#world = world;
    this.#device = device;
    this.#removals = removals;
  }

  /** The user of the admin hands the group over: once all own devices have answered, or after ten minutes without them. */
  want(to: Did): void {
    const { kept } = this.#device;
    const world = this.#world;
    if (kept.group.next !== undefined || kept.groupRoot !== kept.ring.head.number) return;
    if (kept.handing === null)
      kept.handing = {
        to,
        by: this.#device.did,
        sinceMs: world.nowMs + this.#device.skewMs,
        agreed: [],
      };
    else if (kept.handing.by === this.#device.did && world.nowMs - kept.handing.sinceMs > goOnMs)
      if (world.goesOn) {
        world.wentOn = true;
        this.#handOver(kept.handing.to);
      }
  }

  goOn(): void {
    const { kept } = this.#device;
    const { rules } = this.#world;
    const { handing, group, ring } = kept;
    if (
      handing !== null &&
      this.#device.identity === alice &&
      this.#device.isMaker &&
      group.next === undefined
    ) {
      kept.handing = rules.agreeTo(handing, this.#device.did);
      const others = ring.head.devices
        .map(({ did: one }) => one)
        .filter((one) => one !== this.#device.did);
      const isAnswered = rules.mayHandOver(kept.handing, this.#device.did, others);
      if (isAnswered && kept.groupRoot === ring.head.number) this.#handOver(handing.to);
    }
    if (kept.waiting.length === 0) this.found();
  }

  #handOver(next: Did): void {
    const { kept } = this.#device;
    const before = kept.group;
    const { id, maker, nonce } = before;
    if (!isIn(before, next)) return;
    const { thief } = this.#world;
    const isForged = kept.handing !== null && thief.wishes.has(kept.handing.sinceMs);
    if (isForged && thief.isRemoved && !thief.seeds.has(kept.ring.head.root))
      this.#world.leaks.add("what a removed device had wished was done");
    this.#world.handedOver.add(`${id} ${next}`);
    kept.group = { ...before, next };
    kept.handedOver = id;
    kept.handOvers = handOversOf([
      ...kept.handOvers,
      { id, maker, nonce, next, root: kept.ring.head.root },
    ]);
    this.#device.sign();
    this.#device.publish(before);
  }

  /** Under new keys: by the device that made them, and by the one that had signed it before. */
  signAgain(before: GroupState): void {
    const { kept, did, identity } = this.#device;
    const { head } = kept.ring;
    const { id, next } = before;
    const isMine = kept.handedOver === id && kept.group.id === id;
    if (isMine && next !== undefined && kept.group.next === undefined)
      kept.group = { ...kept.group, next };
    if (!kept.seeds.includes(head.root)) return;
    kept.handOvers = kept.handOvers.map((one) => {
      const isAgain = head.maker === did || kept.handedOver === one.id;
      return one.maker === identity && isAgain ? { ...one, root: head.root } : one;
    });
  }

  /** The next admin goes on with the state as it is. */
  found(): void {
    const { kept } = this.#device;
    const row = this.#world.rules.found(this.#row(), this.#device.identity, this.#world.nowMs);
    if (row.state === kept.group) return;
    const before = kept.group;
    this.#setRow(row);
    kept.groupRoot = kept.ring.head.number;
    this.#device.sign();
    this.#device.publish(before);
  }

  #row(): Row {
    const { group: state, former, second } = this.#device.kept;
    return { state, former, second };
  }

  #setRow({ state, former, second }: Row): void {
    Object.assign(this.#device.kept, { group: state, former, second });
  }

  /** What was not followed so far counts no longer when its key is known to have been replaced. */
  #forgetOld(): void {
    const { kept } = this.#device;
    const { id, maker, next } = kept.group;
    if (next === undefined || this.#device.isMaker) return;
    const { last } = this.#device.proven(maker);
    const isOf = (one: SignedHandOver) => one.id === id && one.next === next;
    if (kept.handOvers.some((one) => isOf(one) && one.root === last.root)) return;
    kept.handOvers = kept.handOvers.filter((one) => !isOf(one));
    kept.group = this.#world.rules.withoutNext(kept.group);
  }

  /** Of a bundle, the hand-overs that count here. */
  follow(bundle: Bundle): void {
    const { kept } = this.#device;
    const world = this.#world;
    this.#forgetOld();
    const counting = (bundle.handOvers ?? []).filter(({ maker, root }) => {
      const { roots } = this.#device.proven(maker);
      const at = roots.indexOf(root);
      return at >= 0 && world.rules.countsAt(roots.length - 1 - at);
    });
    const founded = new Set(
      bundle.statements
        .filter(({ statement, root }) => this.#device.proven(statement.maker).last.root === root)
        .map(({ statement }) => statement.id),
    );
    kept.handOvers = handOversOf([...counting, ...kept.handOvers]);
    const before = kept.group;
    this.#setRow(world.rules.follow(this.#row(), counting, { founded, nowMs: world.nowMs }));
    if (kept.group.id !== before.id) {
      this.#removals.keep(before.maker === this.#device.identity);
      kept.groupRoot = this.#device.isMaker ? kept.ring.head.number : 0;
    }
  }
}
