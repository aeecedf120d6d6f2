/**
 * How a device of the world of `own-world.ts` hands a group over, and follows one that was handed
 * over.
 */
import { goOnMs, type Succession } from "../../src/client/groups/handing.ts";
import { type GroupState, isIn } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Device } from "./own-device.ts";
import { alice, type Bundle, type Roots, type SignedHandOver } from "./own-facts.ts";
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

  /**
   * The user of the admin hands the group over: once all own devices have answered, or after ten
   * minutes without them.
   */
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

  /** The user does again what no device of the admin knows any more. */
  again(): void {
    const { forgotHandOver, handedOver } = this.#world;
    const { id, next } = this.#device.kept.group;
    if (!forgotHandOver || !this.#device.isMaker || next !== undefined) return;
    const said = [...handedOver].find((one) => one.startsWith(`${id} `));
    if (said !== undefined) this.want(said.slice(id.length + 1) as Did);
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

  /** The root keys that this device has seen proven. */
  known(of: Did): Roots {
    const all = this.#world.ledger.get(of) as string[];
    return all.slice(0, this.#device.kept.proven[of] ?? 1);
  }

  /**
   * Of a bundle, the hand-overs by earlier keys that have done their work, by what is proven here
   * so far. `from`: a member, this identity for an own device, or `null`. `founded`: of which
   * groups an admin has said something by their key in force.
   */
  done(
    handOvers: readonly SignedHandOver[],
    { from, founded }: { readonly from: Did | null; readonly founded: ReadonlySet<string> },
  ): SignedHandOver[] {
    const { kept, identity: own } = this.#device;
    const { rules } = this.#world;
    const earlier = handOvers.filter(({ maker, root }) =>
      this.known(maker).slice(0, -1).includes(root),
    );
    if (from !== null && from !== own && isIn(kept.group, from))
      kept.shownWays = rules.withShown(kept.shownWays, from, earlier);
    const asked = { state: kept.group, shown: kept.shownWays, own };
    const isHeard = ({ id, next }: SignedHandOver) =>
      kept.handOvers.some((one) => one.id === id && one.next === next);
    return rules.doneHandOvers(
      earlier.filter((one) => !this.#isOver(one)),
      founded,
      (one) => {
        const isTold = one.next === own && from === own;
        return isTold || (one.maker !== own && isHeard(one)) || rules.isWitnessed(one, asked);
      },
    );
  }

  /**
   * Its maker has said something of the group by a later key; of an own group, this device has gone
   * on under a later one.
   */
  #isOver({ id, maker, root }: SignedHandOver): boolean {
    const { kept, identity } = this.#device;
    if (maker === identity && kept.groupRoot === kept.ring.head.number) return true;
    const roots = this.known(maker);
    return [...kept.statements, ...kept.removals].some(
      (one) => one.statement.id === id && roots.indexOf(one.root) > roots.indexOf(root),
    );
  }

  /** Of a bundle, the hand-overs that count here. */
  follow(bundle: Bundle, from: Did | null): void {
    const { kept } = this.#device;
    const world = this.#world;
    const heard = kept.handOvers;
    this.#forgetOld();
    const inForce = (bundle.handOvers ?? []).filter(({ maker, root }) => {
      const { roots } = this.#device.proven(maker);
      const at = roots.indexOf(root);
      return at >= 0 && world.rules.countsAt(roots.length - 1 - at);
    });
    const founded = new Set(
      bundle.statements
        .filter(({ statement, root }) => this.#device.proven(statement.maker).last.root === root)
        .map(({ statement }) => statement.id),
    );
    const ids = new Set([...founded, ...inForce.map(({ id }) => id)]);
    const held = kept.handOvers;
    // What it had heard by the key in force, also where that was replaced since.
    kept.handOvers = heard;
    const counting = [...inForce, ...this.done(bundle.handOvers ?? [], { from, founded: ids })];
    kept.handOvers = handOversOf([...counting, ...held]);
    const before = kept.group;
    this.#setRow(world.rules.follow(this.#row(), counting, { founded, nowMs: world.nowMs }));
    if (kept.group.id !== before.id) {
      this.#removals.keep(before);
      kept.groupRoot = this.#device.isMaker ? kept.ring.head.number : 0;
    }
  }
}
