/**
 * What a device of the world of `own-world.ts` takes of groups from another device of its identity.
 */
import { goOnMs } from "../../src/client/groups/handing.ts";
import { emptyGroup, isIn, isSameState } from "../../src/client/groups/statements.ts";
import type { Device } from "./own-device.ts";
import { type Body, leavingsOf, mallory, type SignedHandOver } from "./own-facts.ts";
import { type Handing, handOversOf } from "./own-handing.ts";
import type { Removals } from "./own-removals.ts";
import type { World } from "./own-world.ts";

export class Siblings {
  readonly #world: World;
  readonly #device: Device;
  readonly #removals: Removals;
  readonly #handing: Handing;

  constructor(world: World, device: Device, by: { removals: Removals; handing: Handing }) {
    this.#world = world;
    this.#device = device;
    this.#removals = by.removals;
    this.#handing = by.handing;
  }

  /** How many keys of the signer have come since. `null`: by none that is proven. */
  #ago({ maker, root }: { readonly maker: Body["group"]["maker"]; readonly root: string }) {
    const { roots } = this.#device.proven(maker);
    const at = roots.indexOf(root);
    return at < 0 ? null : roots.length - 1 - at;
  }

  merge(body: Body): void {
    const { kept, identity } = this.#device;
    const wasIn = isIn(kept.group, mallory);
    const provenBefore = { ...kept.proven };
    this.#merge(body);
    if (kept.group.maker === mallory)
      this.#world.leaks.add("an own device leads to somebody to whom no admin has handed over");
    if (wasIn || !isIn(kept.group, mallory) || kept.group.maker === identity) return;
    const { maker } = kept.group;
    // What was in force by what this device had proven when it looked.
    const [from, to] = [provenBefore[maker] ?? 1, kept.proven[maker] ?? 1];
    const inForce = this.#world.ledger.get(maker)?.slice(from - 1, to) ?? [];
    const isSigned = body.bundle.statements.some(
      ({ statement, root }) => inForce.includes(root) && statement.members[mallory]?.[0] === "in",
    );
    if (!isSigned)
      this.#world.leaks.add("an own device takes somebody in whom no admin has signed");
  }

  #merge(body: Body): void {
    const { rules } = this.#world;
    const device = this.#device;
    const { kept, identity } = device;
    const { former, wish, bundle, groupRoot } = body;
    const isOwn = body.group.maker === identity;
    const nowMs = this.#world.nowMs + device.skewMs;
    const group = isOwn ? rules.nearState(body.group, nowMs) : body.group;
    const said = { ...body, group };
    const isReached = wish === null || wish.sinceMs - nowMs < goOnMs;
    const isWished = isReached && rules.countsWish(groupRoot, kept.ring.head.number);
    const inForce = (bundle.handOvers ?? []).filter((one) => {
      const ago = this.#ago(one);
      return ago !== null && rules.countsAt(ago);
    });
    const counting = [...inForce, ...this.#done(body, inForce)];
    kept.handing = rules.joinWishes(kept.handing, isWished ? wish : null);
    const succession = { former, state: group };
    const further = rules.furtherOf({ ...kept, state: kept.group }, succession);
    const known = [...counting, ...kept.handOvers];
    if (further === "given" && !rules.isBacked(succession, known)) this.#ask(said);
    else if (further === "held") this.#take(bundle.statements);
    else {
      kept.handOvers = handOversOf(known);
      if (further === "given") this.#go(said);
      else this.#join(said);
    }
  }

  /** Of hand-overs by earlier keys those that have done their work. */
  #done(
    { group, groupRoot, bundle: { statements, handOvers = [] } }: Body,
    inForce: readonly SignedHandOver[],
  ): SignedHandOver[] {
    const { kept, identity } = this.#device;
    const said = statements.filter(
      ({ statement: { maker }, root }) => this.#handing.known(maker).at(-1) === root,
    );
    const founded = [...said.map(({ statement }) => statement.id), ...inForce.map(({ id }) => id)];
    const isOurs = group.maker === identity && groupRoot === kept.ring.head.number;
    const ids = new Set(isOurs ? [...founded, group.id] : founded);
    return this.#handing.done(handOvers, { from: identity, founded: ids });
  }

  /** What it has of the group before may be news to the next admin. */
  #take(statements: Body["bundle"]["statements"]): void {
    const device = this.#device;
    const before = device.kept.group;
    this.#removals.takeUp(statements);
    if (device.kept.group !== before) device.sign();
  }

  /** Along hand-overs that count. */
  #go({ group, former, groupRoot, bundle }: Body): void {
    const device = this.#device;
    const { kept } = device;
    const isOwn = group.maker === device.identity;
    this.#removals.keep(kept.group);
    kept.former = former;
    kept.group = isOwn ? group : emptyGroup(group.maker, group.nonce);
    kept.groupRoot = isOwn ? groupRoot : 0;
    this.#removals.takeUp(kept.removals, true);
    if (isOwn) device.sign();
    else device.hearBundle(bundle, true, device.identity);
  }

  #join(body: Body): void {
    const { rules } = this.#world;
    const device = this.#device;
    const { kept } = device;
    const { group, groupRoot, bundle } = body;
    if (!device.isMaker) {
      kept.group = rules.siblingState(kept.group, group);
      device.hearBundle(bundle, true, device.identity);
      this.#ask(body);
      return;
    }
    const held = { root: kept.groupRoot, state: kept.group };
    const merged = rules.mergeOwn(held, { root: groupRoot, state: group });
    const isNew = merged.root !== held.root || !isSameState(merged.state, held.state);
    device.countUnder(merged.root);
    kept.group = merged.state;
    if (merged.root !== held.root) this.#handing.signAgain(held.state);
    kept.leavings = leavingsOf([...kept.leavings, ...bundle.leavings]);
    if (isNew) device.sign();
  }

  /** Who has signed something by an earlier key is asked to say it by the one in force. */
  #ask({ bundle }: Body): void {
    const said = [
      ...bundle.statements.map(({ statement, root }) => ({ maker: statement.maker, root })),
      ...(bundle.handOvers ?? []),
    ];
    for (const one of said)
      if (one.maker !== this.#device.identity && (this.#ago(one) ?? 0) > 0)
        this.#device.askAnew(one.maker);
  }
}
