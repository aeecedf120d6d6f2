/**
 * The thief of the world of `own-world.ts`.
 */
import type { Head, Keyring } from "../../src/client/devices/keyring.ts";
import type { Former } from "../../src/client/groups/handing.ts";
import {
  type GroupState,
  membersOf,
  type Statement,
  successorOf,
  withChange,
} from "../../src/client/groups/statements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Device } from "./own-device.ts";
import {
  alice,
  type Body,
  bob,
  carol,
  dayMs,
  did,
  hourMs,
  keyOf,
  mallory,
  type Packet,
  type SealedHead,
  secondMs,
  type Text,
} from "./own-facts.ts";
import type { World } from "./own-world.ts";
/** With a linked device, what it knew, and all that the Relay has. */
export class Thief {
  readonly #world: World;
  readonly dids = new Set<Did>([did("thief"), did("thief2")]);
  readonly #keys = new Set([keyOf("thief"), keyOf("thief2")]);
  readonly seeds: Set<string>;
  /** Names of sealing secrets that its linked device got. */
  readonly secrets = new Set<string>();
  /**
   * A copy of the keys of a device at some moment, without the key of the device; and what it shows
   * of later ones.
   */
  #copied: { readonly seeds: Set<string>; readonly had: Set<string>; learned: Set<string> } | null =
    null;
  isRemoved = false;
  /** Times of wishes that it has made up. */
  readonly wishes = new Set<number>();
  #read = 0;

  constructor(world: World) {
    this.#world = world;
    this.seeds = new Set([world.rootOf(alice)]);
    this.secrets.add(world.sealing.get(alice) as string);
  }

  opens(name: string): boolean {
    return [...this.secrets].some((secret) => leadsTo(secret, name));
  }

  /** Keys of a device are copied: from a backup, say. */
  copy({ kept }: Device): void {
    const had = new Set(kept.sealing.secrets.map(({ name }) => name));
    this.#copied ??= { seeds: new Set(kept.seeds), had, learned: new Set() };
  }

  /** With all that the Relay has carried, a key that was made after the copy. */
  opensByCopy(name: string): boolean {
    if (this.#copied === null || this.#copied.had.has(name)) return false;
    const { seeds, had, learned } = this.#copied;
    for (const packet of this.#world.taped)
      if (packet.is === "device" && seeds.has(packet.root))
        for (const { name: one } of packet.body.secrets) learned.add(one);
    return [...had, ...learned].some((secret) => leadsTo(secret, name));
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
        this.#learn(packet.head);
    if (world.random() < 0.2) {
      this.#sayAsBob();
      return;
    }
    const target = world.pick(world.honest(alice)) as Device;
    if (world.random() < 0.1) this.copy(target);
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
        {
          head,
          signedBy: root,
          sealedTo: keyOfDevice(ring, target.did),
          seeds: [root],
          secrets: [],
        },
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
      // With the key that the ledger shows, whose seed it doesn't have; to a device that has no
      // head of it so far.
      const all = world.ledger.get(alice) as string[];
      const shown = { ...forged, number: all.length - 1, root: world.rootOf(alice), untilMs };
      const isLate = shown.number > ring.head.number;
      const given = world.pick(isLate ? [shown] : [forged, head]) as Head;
      const sealedTo = keyOfDevice(ring, target.did);
      this.#say(
        target,
        { head: given, signedBy: evil, sealedTo, seeds: [given.root, evil], secrets: [] },
        root,
      );
    } else if (drawn < 0.8) {
      // Only before the removal: a whole document drops it.
      if (!this.isRemoved && world.random() < 0.5 && this.seeds.has(world.rootOf(alice)))
        world.methods.set(alice, [...(world.methods.get(alice) ?? []), "evil"]);
      const left = target.kept.former.find(({ maker: before }) => before === alice);
      const statement =
        left !== undefined && this.#isDrawn(2)
          ? this.#takesOut(left, group)
          : withChange(group, { add: [mallory], name: "stolen" }, world.nowMs + dayMs / 2);
      const to = world.pick([bob, carol, alice]) as Did;
      const signer = world.pick(world.methods.get(alice) ?? []) ?? "";
      const { id, maker, nonce } = group;
      // With the key in force a thief could give the group away for good; with an earlier one it
      // must not count. Who is shown an old record may follow it (docs/trust.md, "What is left"),
      // so all who hear it know that the key was replaced.
      const isEarlier = maker === alice && this.#isKnownOld(root, to);
      const handOvers = isEarlier ? [{ id, maker, nonce, next: mallory, root }] : [];
      // Who is shown an old record may follow one for good.
      const least = Math.min(...world.honest(to).map(({ kept }) => kept.proven[maker] ?? 1));
      const isKnown = isEarlier && (world.ledger.get(maker) ?? []).indexOf(root) < least - 1;
      const founded = isKnown ? successorOf({ ...group, next: mallory }) : null;
      const said = [{ statement, root }];
      if (founded !== null) said.push({ statement: founded, root: world.rootOf(mallory) });
      const text: Text = {
        id: `thief ${world.counter++}`,
        from: alice,
        sentMs: world.nowMs,
        digest: "",
        group: group.id,
        bundle: { statements: said, leavings: [], handOvers },
        signer,
      };
      world.post({ is: "text", to, sealedTo: world.sealing.get(to) ?? "", text });
    } else {
      const bad = withChange(group, { add: [mallory] }, world.nowMs);
      const last = Number.MAX_SAFE_INTEGER;
      const members = { ...group.members, [mallory]: ["in", last] as const };
      const ofTheEnd = { ...group, members, name: ["stolen", last] as const };
      this.#say(target, null, root, this.#isDrawn(2) ? bad : ofTheEnd);
      this.#sayWish(target, root);
      this.#sayWay(target, root);
    }
  }

  /** Whether each device of an identity has proven a later root key of Alice's. */
  #isKnownOld(root: string, to: Did): boolean {
    const number = (this.#world.ledger.get(alice) ?? []).indexOf(root);
    return this.#world.honest(to).every(({ kept }) => (kept.proven[alice] ?? 1) > number + 1);
  }

  /** Of the group that was handed over: all who are in the next one. */
  #takesOut({ id, maker, nonce }: Former, group: GroupState): Statement {
    const version = Math.floor((this.#world.nowMs + dayMs / 2) / secondMs);
    const members = membersOf(group).map((one) => [one, ["out", version]] as const);
    return { id, maker, nonce, name: ["stolen", version], members: Object.fromEntries(members) };
  }

  /** By a device that was linked to Bob, of a group that another person has made. */
  #sayAsBob(): void {
    const world = this.#world;
    const target = world.pick(world.honest(bob)) as Device;
    const { group, former } = target.kept;
    const { id, maker, nonce } = group;
    if (maker === bob) return;
    const state = withChange(group, { add: [mallory], name: "stolen" }, world.nowMs);
    // By a key that both devices know to be replaced: who is shown an old record may follow a
    // hand-over for good.
    const least = Math.min(...world.honest(bob).map(({ kept }) => kept.proven[maker] ?? 1));
    const roots = (world.ledger.get(maker) ?? []).slice(0, least - 1);
    const root = world.pick(roots.filter((one) => this.seeds.has(one))) ?? keyOf("evil");
    const statements = [{ statement: state, root }];
    const next = mallory;
    const handOvers = [{ id, maker, nonce, next, root }];
    const gone = { id, maker, nonce, next, atMs: 1 };
    const moved = successorOf({ ...state, next }) ?? state;
    const founded = [{ statement: moved, root: world.rootOf(mallory) }];
    const said = world.pick([
      { group: state, bundle: { statements: [], leavings: [] } },
      { group: state, bundle: { statements, leavings: [] } },
      { group: moved, former: [...former, gone], bundle: { statements: [], leavings: [] } },
      {
        group: moved,
        former: [...former, gone],
        bundle: { statements: founded, leavings: [], handOvers },
      },
    ]);
    const body = { ...this.#bodyFor(target), ...said };
    const from = did("thief3");
    world.hand({ is: "device", to: target.did, from, root: world.rootOf(bob), head: null, body });
  }

  /** One time of so many, without a draw: schedules stay those that they were. */
  #isDrawn(times: number): boolean {
    return this.#world.taped.length % times === 0;
  }

  /** As if another device had asked whether it may hand the group over. */
  #sayWish(target: Device, root: string): void {
    const world = this.#world;
    const others = world.honest(alice).filter((one) => one !== target);
    const other = others[world.taped.length % others.length];
    if (other === undefined || target.kept.group.maker !== alice) return;
    const sinceMs = world.nowMs + (this.#isDrawn(5) ? 365 * dayMs : 0);
    this.wishes.add(sinceMs);
    const wish = { to: carol, by: other.did, sinceMs, agreed: [did("thief")] };
    const body = { ...this.#bodyFor(target), wish };
    world.hand({ is: "device", to: target.did, from: did("thief"), root, head: null, body });
  }

  /**
   * As if the identity itself had handed its group over to somebody else, and before it did; who
   * says it founded that.
   */
  #sayWay(target: Device, root: string): void {
    const world = this.#world;
    const { group, former } = target.kept;
    const at = [...former, group].findIndex(({ maker }) => maker === alice);
    const first = [...former, group][at];
    if (first === undefined) return;
    const { id, maker, nonce } = first;
    const next = mallory;
    const state = successorOf({ ...group, id, maker, nonce, next }) ?? group;
    const body = {
      ...this.#bodyFor(target),
      group: state,
      former: [...former.slice(0, at), { id, maker, nonce, next, atMs: 1 }],
      bundle: { statements: [{ statement: state, root: world.rootOf(mallory) }], leavings: [] },
    };
    world.hand({ is: "device", to: target.did, from: did("thief"), root, head: null, body });
  }

  #bodyFor({ kept }: Device): Body {
    return {
      group: kept.group,
      former: kept.former,
      wish: null,
      groupRoot: kept.groupRoot,
      bundle: { statements: [], leavings: [] },
      shown: [],
      hash: "",
      acks: "",
      lacks: "",
      secrets: [],
    };
  }

  #learn({ seeds, secrets }: SealedHead): void {
    for (const seed of seeds) this.seeds.add(seed);
    for (const { name } of secrets) this.secrets.add(name);
  }

  #say(to: Device, head: SealedHead | null, root: string, group: GroupState = to.kept.group): void {
    const body = { ...this.#bodyFor(to), group };
    const from = this.#world.random() < 0.5 ? did("thief") : did("thief2");
    const packet: Packet = { is: "device", to: to.did, from, root, head, body };
    // The Relay is the thief's.
    if (this.#world.random() < 0.5) this.#world.post(packet);
    else this.#world.hand(packet);
  }
}

/** Of a rule with a defect the name of a secret has those of which it is derived. */
const leadsTo = (secret: string, name: string): boolean =>
  name === secret || name.includes(`from ${secret}`);

const keyOfDevice = ({ head }: Keyring, of: Did): string =>
  head.devices.find((one) => one.did === of)?.key ?? "";
