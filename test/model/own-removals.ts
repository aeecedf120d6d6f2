/**
 * Removals of a group that was handed over, in the world of `own-world.ts`: who keeps them, and who
 * takes them up.
 */
import { type GroupState, isIn } from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Device } from "./own-device.ts";
import { dayMs, type Signed, secondMs } from "./own-facts.ts";
import type { World } from "./own-world.ts";

export class Removals {
  readonly #world: World;
  readonly #device: Device;

  constructor(world: World, device: Device) {
    this.#world = world;
    this.#device = device;
  }

  /** What a former admin has signed, and the one who is asked has not heard. */
  missingFor(to: Did): Signed[] {
    const { group: state, former, removals } = this.#device.kept;
    const { rules, nowMs } = this.#world;
    return to === state.maker ? rules.missingRemovals({ state, former }, removals, nowMs) : [];
  }

  /**
   * What the device keeps of the group that it leaves: of its own, what it had, to be signed when
   * it is shown.
   */
  keep(before: GroupState): void {
    const { kept, identity } = this.#device;
    const { rules } = this.#world;
    const isOwn = before.maker === identity;
    const { root } = kept.ring.head;
    const own = rules.ownStatements(before, root).map(({ statement }) => ({ statement, root }));
    const said = isOwn ? own : kept.statements;
    kept.removals = rules.keepFormer(said, kept.removals);
    kept.statements = [];
  }

  /** Under the keys in force. */
  signed(all: readonly Signed[]): Signed[] {
    const { kept, identity } = this.#device;
    const { root } = kept.ring.head;
    const isAble = kept.seeds.includes(root);
    return all.map((one) => (isAble && one.statement.maker === identity ? { ...one, root } : one));
  }

  /**
   * Of the groups before, as the next admin: by the key in force, and what it has heard by that
   * itself (`isHeld`).
   */
  takeUp(all: readonly Signed[], isHeld = false): void {
    if (!this.#device.isMaker) return;
    for (const one of all) this.#takeUp(one, isHeld);
  }

  #takeUp({ statement, root }: Signed, isHeld: boolean): void {
    const { kept, identity } = this.#device;
    const { rules, nowMs, leaks } = this.#world;
    const { group: state, former } = kept;
    const handedOver = former.find(({ id }) => id === statement.id);
    if (handedOver === undefined) return;
    const { roots, last } = this.#device.proven(statement.maker);
    if (
      !roots.includes(root) ||
      !(isHeld || rules.removesAt(roots.length - 1 - roots.indexOf(root)))
    )
      return;
    if (!isHeld && last.root !== root)
      leaks.add("who has a replaced key of a former admin takes somebody out");
    kept.group = rules.withRemovals({ state, former }, statement, nowMs);
    if (kept.group === state) return;
    const lastMs = Math.max(handedOver.atMs + dayMs, nowMs);
    for (const [of, part] of Object.entries(kept.group.members)) {
      const [, saidAt] = state.members[of] ?? ["out", 0];
      if (part[1] === saidAt) continue;
      if (part[1] * secondMs > lastMs)
        leaks.add("a former admin takes somebody out in a version to come");
      if (saidAt * secondMs > handedOver.atMs)
        leaks.add("a former admin changes what the next one has said since");
    }
    if (isIn(state, identity) && !isIn(kept.group, identity))
      leaks.add("a former admin takes the next one out");
  }
}
