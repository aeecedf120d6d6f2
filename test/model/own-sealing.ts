/**
 * The sealing key of the world of `own-world.ts`: which secrets a device has, what it publishes,
 * and what it asks for. Its secrets are names, of which none leads to another. One step each time,
 * so that a device can be killed between any two.
 */
import type { SealingFacts } from "../../src/client/keys/due.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { dayMs, hourMs, type Kept } from "./own-facts.ts";
import type { World } from "./own-world.ts";

export type Secret = SealingFacts & { readonly name: string };
const nameOf = ({ name }: Secret): string => name;

/** As long as a message may wait, and a margin. */
const keptMs = dayMs + hourMs;
export const everyMs = 7 * dayMs;

export type SealingKept = {
  secrets: readonly Secret[];
  sinceMs: number;
  /** Of heads that the proof has not shown, by root key. */
  later: Record<string, readonly Secret[]>;
  lacking: { name: string; sinceMs: number; replacedMs: number } | null;
};

export const firstSealing = (identity: Did, root: string, nowMs: number): SealingKept => ({
  secrets: [{ name: `${identity} sealing`, under: root, madeMs: 0, destroyAtMs: null }],
  sinceMs: nowMs,
  later: {},
  lacking: null,
});

/** What a device is for its sealing key. */
export type SealingHost = {
  readonly identity: Did;
  readonly did: Did;
  readonly kept: Kept;
  /** As the proof shows it to this device. */
  readonly root: string;
  /** It may sign: its keyring is that of the proof. */
  readonly isAble: boolean;
  readonly others: readonly Did[];
  /** Sends what is here to another device, with the head. */
  readonly give: (to: Did) => void;
  readonly ask: (to: Did, name: string) => void;
};

/** Secrets that go with a head: of another root key than its own none. */
export function secretsOf({ sealing, job }: Kept, root: string): readonly Secret[] {
  return job !== null && root !== job.next
    ? sealing.secrets.filter(({ under }) => under !== job.next)
    : sealing.secrets;
}

/** Of a head: those of a candidate wait until it is in force, or whom it removes would be told. */
export function takeSecrets(world: World, kept: Kept, given: readonly Secret[], root: string) {
  const { nowMs, rules } = world;
  const { sealing, ring } = kept;
  if (root !== ring.head.root && !rules.takesEarly) {
    sealing.later[root] = [...(sealing.later[root] ?? []), ...given];
    return;
  }
  sealing.secrets = rules.joinSecrets(sealing.secrets, given, { nameOf, nowMs });
}

export function madeSecret(world: World, { sealing }: Kept, under: string, endMs: number | null) {
  const { secrets } = sealing;
  const madeMs = world.rules.nextMadeMs(secrets, world.nowMs);
  const name = world.rules.freshSecret(`sealing ${world.counter++} ${under}`, secrets);
  const made: Secret = { name, under, madeMs, destroyAtMs: endMs };
  sealing.secrets = [...secrets, made];
  return made;
}

/** One step of a device for its sealing key. */
export function stepSealing(world: World, host: SealingHost): void {
  const { kept, identity } = host;
  const { sealing } = kept;
  const { rules, nowMs } = world;
  const shown = world.sealing.get(identity) as string;
  const published = sealing.secrets.find(({ name }) => name === shown) ?? null;
  if (published === null) {
    recover(world, host, shown);
    return;
  }
  sealing.lacking = null;
  if (published.destroyAtMs !== null) sealing.sinceMs = nowMs;
  const next = kept.job?.next ?? null;
  sealing.secrets = rules.withEnds(sealing.secrets, published, { nowMs, keptMs, next });
  if (!host.isAble) return;
  const under = host.root;
  const held = sealing.secrets.find(({ name }) => name === shown) as Secret;
  const pending = rules.pendingAfter(sealing.secrets, held, { under, nowMs });
  const others = host.others.length;
  const isShared =
    pending !== null && host.others.every((to) => kept.given.includes(`${to} ${pending.name}`));
  const rank = [host.did, ...host.others].sort().indexOf(host.did);
  const situation = { nowMs, sinceMs: sealing.sinceMs, everyMs, rank, others, pending, isShared };
  const step = rules.decideSealing(situation);
  if (step === "make") madeSecret(world, kept, under, nowMs + keptMs);
  if (step === "share") for (const to of host.others) host.give(to);
  if (step === "publish" && pending !== null) {
    if (!isShared && nowMs - pending.madeMs < dayMs && others > 0)
      world.leaks.add("a key is published before the other devices were given its secret");
    world.publish(host, pending.name, shown);
  }
}

function recover(world: World, host: SealingHost, shown: string): void {
  const { kept } = host;
  const { nowMs, rules } = world;
  const { replacedMs = 0 } = kept.sealing.lacking ?? {};
  if (kept.sealing.lacking?.name !== shown)
    kept.sealing.lacking = { name: shown, sinceMs: nowMs, replacedMs };
  const { lacking } = kept.sealing;
  const others = host.others.length;
  const step = rules.decideLacking({ nowMs, ...lacking, others });
  if (step === "ask") for (const to of host.others) host.ask(to, shown);
  if (step !== "replace" || !host.isAble) return;
  const made = madeSecret(world, kept, host.root, nowMs + keptMs);
  world.lost.add(shown);
  for (const to of host.others) host.give(to);
  world.publish(host, made.name, shown);
  lacking.replacedMs = nowMs;
}
