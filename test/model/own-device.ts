/**
 * A device of the world of `own-world.ts`: its store, and what it does at each step. All that it
 * keeps is written at once, so it can be killed between any two steps.
 */
import { type Head, type ProvenRoot, removalsToRepeat } from "../../src/client/devices/keyring.ts";
import { goOnMs, isHandedOver } from "../../src/client/groups/handing.ts";
import {
  answerAgainMs,
  askAgainMs,
  emptyGroup,
  type GroupState,
  isIn,
  membersOf,
  outOnly,
  takeUpLeavings,
  undominated,
  withChange,
} from "../../src/client/groups/statements.ts";
import { newestUnder } from "../../src/client/keys/agreements.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { Copies, firstKept, settledRing } from "./own-copies.ts";
import {
  alice,
  type Bundle,
  bob,
  carol,
  dayMs,
  did,
  digestIn,
  eve,
  hourMs,
  type Kept,
  keyOf,
  leavingsOf,
  mallory,
  messageTtlMs,
  type Packet,
  type Roots,
  type SealedHead,
  type Signed,
  type SignedLeaving,
  type Text,
} from "./own-facts.ts";
import { Handing } from "./own-handing.ts";
import { Removals } from "./own-removals.ts";
import { madeSecret, secretsOf, stepSealing, takeSecrets } from "./own-sealing.ts";
import { Siblings } from "./own-siblings.ts";
import type { World } from "./own-world.ts";

export class Device {
  readonly identity: Did;
  readonly did: Did;
  readonly #world: World;
  kept: Kept;
  readonly copies: Copies;
  /** In memory only. */
  #later: { readonly to: Did; readonly untilMs: number }[] = [];
  readonly #answered = new Map<string, number>();
  readonly #wrongMs: number;
  readonly handing: Handing;
  readonly #siblings: Siblings;
  readonly #removals: Removals;

  constructor(world: World, identity: Did, name: string, head: Head) {
    this.#world = world;
    this.identity = identity;
    this.did = did(name);
    this.#removals = new Removals(world, this);
    this.handing = new Handing(world, this, this.#removals);
    this.#siblings = new Siblings(world, this, {
      removals: this.#removals,
      handing: this.handing,
    });
    this.copies = new Copies(world, this);
    this.#wrongMs = name === "a2" && world.random() < 0.2 ? 2 * dayMs : 0;
    this.kept = firstKept({ identity, name, head, nowMs: world.nowMs });
  }

  /** A clock that is wrong for a time. */
  get skewMs(): number {
    return this.#world.isHostile ? this.#wrongMs : 0;
  }

  get isMaker(): boolean {
    return this.identity === this.kept.group.maker;
  }

  opens(name: string): boolean {
    return this.kept.sealing.secrets.some((one) => one.name === name);
  }

  /** What the Directory shows: nothing earlier than was seen; maybe not the last while hostile. */
  proven(of: Did): { readonly roots: Roots; readonly last: ProvenRoot } {
    const all = this.#world.ledger.get(of) as string[];
    const least = this.kept.proven[of] ?? 1;
    const isLate = this.#world.isHostile && this.#world.random() < 0.2;
    const shown = isLate ? least : all.length;
    this.kept.proven[of] = Math.max(least, shown);
    const roots = all.slice(0, this.kept.proven[of]);
    return { roots, last: { number: roots.length - 1, root: roots.at(-1) as string } };
  }

  // ------------------------------------------------------------------------------ copies and kills

  kill(): void {
    this.#later = [];
    this.#answered.clear();
  }

  // ----------------------------------------------------------------------------------- own devices

  #look(): ProvenRoot {
    const { last } = this.proven(this.identity);
    const { ring, job } = this.kept;
    const next = settledRing(this.#world, this.kept, last);
    const isAdopted = next.head.root !== ring.head.root;
    this.kept.ring = next;
    if (isAdopted) {
      this.kept.acked = {};
      const { later } = this.kept.sealing;
      takeSecrets(this.#world, this.kept, later[next.head.root] ?? [], next.head.root);
      this.kept.sealing.later = {};
      const candidate = ring.candidates.find(({ root }) => root === job?.next);
      // Overtaken: what was to be removed is removed again.
      if (job !== null && job.next !== next.head.root && candidate !== undefined)
        this.kept.wish.push(...removalsToRepeat(candidate, ring.head, next.head));
      if (job !== null && job.next !== next.head.root) this.kept.job = null;
      this.#beginKeys();
    }
    return last;
  }

  /** The device that made the key signs the same states anew. */
  #beginKeys(): void {
    const { head } = this.kept.ring;
    if (this.isMaker && head.maker === this.did) {
      this.countUnder(head.number);
      this.sign();
    }
    this.handing.signAgain(this.kept.group);
  }

  /** From another key on the wish that was made under the one before ends. */
  countUnder(root: number): void {
    const { kept } = this;
    if (!this.#world.rules.countsWish(kept.groupRoot, root)) kept.handing = null;
    if (kept.groupRoot !== root) kept.keysSince = Math.floor(this.#world.nowMs / 1_000);
    kept.groupRoot = root;
  }

  /** The state as it is here, signed by the root key in force. */
  sign(): void {
    const { ring, group, groupRoot, seeds } = this.kept;
    if (groupRoot !== ring.head.number || !seeds.includes(ring.head.root)) return;
    this.kept.statements = [{ statement: group, root: ring.head.root }];
  }

  tick(): void {
    const proven = this.#look();
    this.#continueJob(proven);
    this.#rehear();
    this.handing.goOn();
    if (this.isMaker) this.#takeUp();
    const due = this.#later.filter(({ untilMs }) => untilMs <= this.#world.nowMs);
    this.#later = this.#later.filter((one) => !due.includes(one));
    for (const { to } of due) this.#show(to);
    for (const [id, untilMs] of Object.entries(this.kept.seen))
      if (untilMs < this.#world.nowMs) delete this.kept.seen[id];
    const others = this.#audience(proven);
    for (const to of others) if (this.kept.acked[to] !== this.#hash()) this.#tell(to);
    const { ring, seeds } = this.kept;
    const isAble = !this.#world.rules.isBehind(ring, proven) && seeds.includes(proven.root);
    const { identity, did: own, kept } = this;
    stepSealing(this.#world, {
      ...{ identity, did: own, kept, others, isAble, root: proven.root },
      give: (to) => this.#tell(to),
      ask: (to, name) => this.#tell(to, null, name),
    });
  }

  #audience(proven: ProvenRoot): Did[] {
    const { ring } = this.kept;
    const { rules } = this.#world;
    const leaving = [...(this.kept.job?.gone ?? []), ...this.kept.wish];
    const all = rules.isBehind(ring, proven) ? [] : rules.audienceOf(ring, this.did);
    return all.filter((one) => !leaving.includes(one));
  }

  #hash(): string {
    const { ring, group, groupRoot, shown, handing, former } = this.kept;
    const facts = [digestIn(group), groupRoot, handing, former.map(({ id }) => id)];
    return JSON.stringify([ring.head, facts, [...shown].sort()]);
  }

  #tell(to: Did, head: Head | null = null, lacks = ""): void {
    const { ring, group, groupRoot, statements, leavings, shown, seeds } = this.kept;
    const { former, handing, handOvers } = this.kept;
    const given = head ?? ring.head;
    const device = given.devices.find((one) => one.did === to);
    const secrets = secretsOf(this.kept, given.root);
    if (ring.candidates.some((one) => one.devices.every((device) => device.did !== to)))
      this.#world.leaks.add("who is being removed is told more");
    const sealed: SealedHead | null =
      device === undefined
        ? null
        : { head: given, signedBy: given.root, sealedTo: device.key, seeds: [given.root], secrets };
    if (!seeds.includes(ring.head.root)) return;
    if (sealed !== null) for (const { name } of secrets) this.kept.given.push(`${to} ${name}`);
    const body = {
      group,
      former,
      wish: handing,
      groupRoot,
      bundle: { statements, leavings, handOvers },
      shown: [...shown],
      hash: this.#hash(),
      acks: "",
      lacks,
      secrets: this.#world.rules.secretsInBody ? secrets : [],
    };
    this.#world.post({
      is: "device",
      to,
      from: this.did,
      root: ring.head.root,
      head: sealed,
      body,
    });
  }

  take(packet: Extract<Packet, { is: "device" }>): void {
    const { rules, nowMs } = this.#world;
    const { from, head, body } = packet;
    const isListed = (one: Head) => one.devices.some((device) => device.did === from);
    const { ring } = this.kept;
    if (!isListed(ring.head) && !ring.candidates.some(isListed)) return;
    if (
      head !== null &&
      head.sealedTo === this.kept.deviceKey &&
      rules.isSigned(head.head, head.signedBy)
    ) {
      const { head: known } = this.kept.ring;
      const all = this.#world.ledger.get(this.identity) as string[];
      const proven = { number: all.length - 1, root: this.#world.rootOf(this.identity) };
      const isHeard = rules.mayHear(head.head, { head: known, proven, isListed: true });
      const heard = isHeard ? rules.hearHead(this.kept.ring, head.head, from) : this.kept.ring;
      if (heard !== this.kept.ring)
        this.kept.seeds = [...new Set([...this.kept.seeds, ...head.seeds])];
      const isSame = (one: Head) => one.root === head.head.root && one.number === head.head.number;
      this.kept.ring = heard;
      if (isSame(heard.head) || heard.candidates.some(isSame))
        takeSecrets(this.#world, this.kept, head.secrets, head.head.root);
      this.#look();
    }
    const { ring: now } = this.kept;
    if (!isListed(now.head)) return;
    // What an earlier keyring says doesn't count.
    if (packet.root !== now.head.root || !this.kept.seeds.includes(packet.root)) return;
    if (body.acks !== "") {
      this.kept.acked[from] = body.acks;
      return;
    }
    this.#siblings.merge(body);
    if (body.lacks !== "" && this.opens(body.lacks)) this.#tell(from);
    for (const id of body.shown) {
      if (this.kept.shown.includes(id)) continue;
      this.kept.shown.push(id);
      this.kept.seen[id] ??= nowMs + 33 * dayMs;
    }
    const ack = { ...body, shown: [], bundle: { statements: [], leavings: [] }, acks: body.hash };
    if (this.#hash() === body.hash)
      this.#world.post({
        is: "device",
        to: from,
        from: this.did,
        root: now.head.root,
        head: null,
        body: ack,
      });
  }

  // -------------------------------------------------------------------------------- replacing keys

  /** The user removes devices: those that are not ticked. */
  remove(gone: readonly Did[]): void {
    const { ring, job } = this.kept;
    if (job !== null) {
      this.kept.wish.push(...gone);
      return;
    }
    const proven = this.#look();
    const here = gone.filter((one) => ring.head.devices.some((device) => device.did === one));
    if (here.length === 0 || this.#world.rules.isBehind(this.kept.ring, proven)) return;
    const next = keyOf(`root ${this.#world.counter++} ${this.did}`);
    const head: Head = {
      did: this.identity,
      number: this.kept.ring.head.number + 1,
      root: next,
      maker: this.did,
      untilMs: this.#world.nowMs + hourMs / 2,
      devices: this.kept.ring.head.devices.filter(({ did: one }) => !here.includes(one)),
    };
    this.kept.removed.push(...here);
    this.kept.makers.push({ root: next, maker: this.did });
    this.kept.seeds.push(next);
    madeSecret(this.#world, this.kept, next, null);
    this.kept.ring = { ...this.kept.ring, candidates: [...this.kept.ring.candidates, head] };
    this.kept.job = { next, gone: here, step: 0 };
  }

  /** One step each time: heads, rotation, document. */
  #continueJob(proven: ProvenRoot): void {
    const { job, ring } = this.kept;
    const world = this.#world;
    if (job === null) {
      const wish = this.kept.wish.filter((one) =>
        ring.head.devices.some((device) => device.did === one),
      );
      this.kept.wish = [];
      if (wish.length > 0) this.remove(wish);
      return;
    }
    const candidate = ring.candidates.find(({ root }) => root === job.next);
    if (job.step === 0) {
      for (const to of this.#audience(proven)) this.#tell(to, candidate ?? ring.head);
      job.step = 1;
    } else if (job.step === 1) {
      const all = world.ledger.get(this.identity) as string[];
      if (candidate !== undefined && world.nowMs > candidate.untilMs) {
        // Its time is over: with a new one.
        const again = { ...candidate, untilMs: world.nowMs + hourMs / 2 };
        const others = ring.candidates.filter((one) => one !== candidate);
        this.kept.ring = { ...ring, candidates: [...others, again] };
        job.step = 0;
        return;
      }
      if (candidate !== undefined && all.length === candidate.number) all.push(job.next);
      this.#look();
      if (this.kept.ring.head.root === job.next) job.step = 2;
    } else {
      const before = world.methods.get(this.identity) ?? [];
      if (world.rootOf(this.identity) === job.next)
        world.methods.set(this.identity, world.rules.methodsAfter(before, [job.next]));
      const { secrets } = this.kept.sealing;
      const sealing = newestUnder(secrets, job.next)?.name ?? "";
      if (world.rootOf(this.identity) === job.next) world.sealing.set(this.identity, sealing);
      this.kept.job = null;
      if (job.gone.some((one) => world.thief.dids.has(one))) world.thief.isRemoved = true;
    }
  }

  // ---------------------------------------------------------------------------------------- groups

  /** The method in the document, which was made with the root key. */
  #signerOf(of: Did): string {
    return this.#world.methods.get(of)?.[0] ?? "";
  }

  /** A message to all who are in. */
  say(bundle: Bundle | null = null, to: readonly Did[] = membersOf(this.kept.group)): void {
    const { group, ring } = this.kept;
    const proven = this.#look();
    if (this.#world.rules.isBehind(ring, proven)) return;
    if (bundle === null && !isIn(group, this.identity)) return;
    const world = this.#world;
    const text: Text = {
      id: `message ${world.counter++}`,
      from: this.identity,
      sentMs: world.nowMs,
      digest: digestIn(group),
      group: group.id,
      bundle,
      signer: this.#signerOf(this.identity),
    };
    if (bundle === null) this.kept.shown.push(text.id);
    for (const one of to)
      if (one !== this.identity)
        world.post({ is: "text", to: one, sealedTo: world.sealing.get(one) ?? "", text });
  }

  #bundle(): Bundle {
    const { statements, leavings, handOvers, ring } = this.kept;
    // Its own ones by the key in force alone.
    const said = handOvers.filter(
      ({ maker, root }) => maker !== this.identity || root === ring.head.root,
    );
    return { statements, leavings, handOvers: said };
  }

  /** Who sees another state than theirs answers with all that they have signed. */
  askAnew(maker: Did): void {
    const name = `ask ${maker} ${digestIn(this.kept.group)}`;
    if (!this.#isDue(name, askAgainMs)) return;
    this.say({ statements: [], leavings: [] }, [maker]);
  }

  #isDue(name: string, apartMs: number): boolean {
    const { rules, nowMs } = this.#world;
    const isDue = rules.isDue(this.#answered.get(name), nowMs, apartMs);
    if (isDue) this.#answered.set(name, nowMs);
    return isDue;
  }

  #show(to: Did): void {
    if (!isIn(this.kept.group, to)) return;
    this.say(this.#bundle(), [to]);
    const statements = this.#removals.signed(this.#removals.missingFor(to));
    if (statements.length > 0) this.say({ statements, leavings: [] }, [to]);
  }

  read(sealedTo: string, text: Text): void {
    const { kept } = this;
    const { rules, nowMs } = this.#world;
    const isOpen = this.opens(sealedTo);
    const signers = this.#world.methods.get(text.from) ?? [];
    if (!isOpen || !signers.includes(text.signer)) return;
    const life = rules.decideLife({ sentMs: text.sentMs, ttlMs: messageTtlMs, nowMs });
    if (life.isOver || kept.seen[text.id] !== undefined) return;
    kept.seen[text.id] = life.seenUntilMs;
    if (text.bundle !== null) this.hearBundle(text.bundle, isIn(kept.group, text.from), text.from);
    else if (isIn(kept.group, text.from)) kept.shown.push(text.id);
    this.#answer(text);
  }

  #answer({ from, digest }: Text): void {
    const { kept } = this;
    const { rules } = this.#world;
    const answer =
      this.#removals.missingFor(from).length > 0
        ? "now"
        : rules.answerTo(kept.group, { own: this.identity, from, digest });
    // Under new keys once more: what earlier ones have signed doesn't count everywhere.
    const name = `${from} ${digest} ${digestIn(kept.group)} ${kept.ring.head.root}`;
    if (answer === null || !this.#isDue(name, answerAgainMs)) return;
    if (answer === "later")
      this.#later.push({ to: from, untilMs: this.#world.nowMs + this.#world.random() * 60_000 });
    else if (answer === "now") this.#show(from);
    else if (kept.statements[0] !== undefined) {
      const [{ root }] = kept.statements as [Signed];
      this.say({ statements: [{ statement: outOnly(kept.group, from), root }], leavings: [] }, [
        from,
      ]);
    }
  }

  #rehear(): void {
    const waiting = this.kept.waiting;
    this.kept.waiting = [];
    for (const bundle of waiting) this.hearBundle(bundle, false, null);
  }

  /** `from`: a member, this identity for an own device, or `null` where that is unknown by now. */
  hearBundle(bundle: Bundle, isOfGroup: boolean, from: Did | null): void {
    const isOwn = from === this.identity;
    const { kept } = this;
    const { rules, nowMs } = this.#world;
    const before = kept.group;
    const later: { statements: Signed[]; leavings: SignedLeaving[] } = {
      statements: [],
      leavings: [],
    };
    this.handing.follow(bundle, from);
    if (isOfGroup) this.#removals.takeUp(bundle.statements);
    for (const signed of bundle.statements) {
      if (signed.statement.id !== kept.group.id) continue;
      const { roots, last } = this.proven(signed.statement.maker);
      const at = roots.indexOf(signed.root);
      if (this.isMaker && signed.root === last.root && kept.groupRoot < last.number) {
        // A state under a key that came later, of another device.
        const merged = rules.mergeOwn(
          { root: kept.groupRoot, state: kept.group },
          {
            root: last.number,
            state: {
              ...emptyGroup(signed.statement.maker, signed.statement.nonce),
              ...signed.statement,
            },
          },
        );
        this.countUnder(merged.root);
        const held = kept.group;
        kept.group = merged.state;
        this.handing.signAgain(held);
        continue;
      }
      const ago = roots.length - 1 - at;
      const isBelieved = at >= 0 && (ago === 0 || (isOwn && rules.siblingCounts(ago)));
      const signedBy = isBelieved ? "in_force" : at >= 0 ? "earlier" : "other";
      const heard = rules.hear(kept.group, signed.statement, {
        own: this.identity,
        signedBy,
        nowMs,
        keysSince: isOwn ? undefined : kept.keysSince,
      });
      if (heard === "wait") later.statements.push(signed);
      else {
        kept.group = heard;
        if (signedBy === "in_force" && !this.isMaker)
          kept.statements = this.#withStatement(signed, signed.root === last.root);
      }
    }
    for (const leaving of bundle.leavings) {
      const { last: of } = this.proven(leaving.did);
      if (of.root !== leaving.root) continue;
      const heard = rules.hearLeaving(kept.group, { id: kept.group.id, ...leaving }, nowMs);
      if (heard === "wait") later.leavings.push(leaving);
      else {
        kept.group = heard;
        kept.leavings = leavingsOf([...kept.leavings, leaving]);
      }
    }
    if (later.statements.length + later.leavings.length > 0) kept.waiting.push(later);
    // With all that the former admin has said of it.
    if (later.statements.length === 0) this.handing.found();
    if (this.isMaker && kept.group !== before && kept.group.id === before.id) {
      this.sign();
      this.publish(before);
    }
  }

  /** The key in force first: others can't judge by an earlier one. */
  #withStatement(signed: Signed, isInForce: boolean): Signed[] {
    const { statements } = this.kept;
    return undominated(isInForce ? [signed, ...statements] : [...statements, signed]);
  }

  #takeUp(): void {
    const { kept } = this;
    const { head } = kept.ring;
    if (kept.groupRoot !== head.number || isHandedOver(kept.group)) return;
    const isAnswered = kept.handing !== null && kept.group.next === undefined;
    if (isAnswered && this.identity === alice) return;
    const before = kept.group;
    kept.group = takeUpLeavings(before);
    if (kept.group === before) return;
    this.sign();
    this.publish(before);
  }

  publish(before: GroupState): void {
    const to = new Set([...membersOf(before), ...membersOf(this.kept.group)]);
    if (this.kept.groupRoot === this.kept.ring.head.number) this.say(this.#bundle(), [...to]);
  }

  /** The user takes out whom a thief had put in. */
  expel(): void {
    if (this.isMaker && isIn(this.kept.group, mallory)) this.#change({ remove: [mallory] });
  }

  #change(wish: { readonly name?: string; readonly remove?: readonly Did[] }): void {
    const { kept } = this;
    // It waits for the states that the device that made the key has signed.
    if (kept.groupRoot !== kept.ring.head.number || isHandedOver(kept.group)) return;
    const before = kept.group;
    kept.group = withChange(before, wish, this.#world.nowMs + this.skewMs);
    this.sign();
    this.publish(before);
  }

  /** What a user does. */
  act(): void {
    const world = this.#world;
    const { kept } = this;
    const drawn = world.random();
    if (this.identity === alice && drawn < 0.12) {
      const gone = kept.ring.head.devices.filter((one) => world.thief.dids.has(one.did));
      if (gone.length > 0) this.remove(gone.map((one) => one.did));
      return;
    }
    if (!this.isMaker) {
      if (drawn < 0.04 && isIn(kept.group, this.identity) && this.identity === carol) {
        const version = kept.group.members[this.identity]?.[1] ?? 0;
        const leaving = { did: this.identity, version, root: kept.ring.head.root };
        const others = membersOf(kept.group);
        this.hearBundle({ statements: [], leavings: [leaving] }, true, this.identity);
        this.say(this.#bundle(), others);
      }
      return;
    }
    // It is the next admin's.
    if (isHandedOver(kept.group)) return;
    if (
      kept.handing !== null &&
      kept.group.next === undefined &&
      drawn >= 0.17 &&
      this.identity === alice
    ) {
      // Who has answered changes nothing any more, unless the user goes on.
      if (!world.goesOn || world.nowMs - kept.handing.sinceMs < goOnMs) return;
      world.wentOn = true;
    }
    if (this.identity === alice && drawn < 0.17)
      this.handing.want(world.random() < 0.5 ? bob : carol);
    else if (drawn < 0.5) this.#change({ name: `name ${world.counter++}` });
    else if (drawn < 0.7 && kept.groupRoot === kept.ring.head.number && isIn(kept.group, eve)) {
      world.wishedOut.add(eve);
      this.#change({ remove: [eve] });
    } else if (drawn < 0.9 && isIn(kept.group, mallory)) this.#change({ remove: [mallory] });
  }
}
