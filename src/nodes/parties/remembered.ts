/**
 * What Relay and Cache remember of a ledger that is in a database of its own: while it is away, the
 * mailboxes in the other databases are served with answers that are some minutes old. An answer is
 * never used once a change of its DID was announced: the key in it may be replaced. What is not
 * remembered is `unavailable`.
 */
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import type { DeliveryPolicy } from "../../core/ledger/account.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { Bus } from "../../storage/bus.ts";
import { StoreError } from "../../storage/contract.ts";
import {
  personaBytes,
  type RecipientSource,
  subjectBytes,
  subjectBytesMax,
  subjectsMax,
} from "./recipients.ts";
import { changedSubject } from "./signals.ts";

type RememberingOptions = {
  /** Announces which DIDs change. */
  readonly bus: Bus;
  /**
   * The time in which a submission becomes final: until then a read may still
   * answer what it replaces.
   */
  readonly changeMs: number;
  /** A clock that never steps back. */
  readonly now?: () => number;
};

/** How long after it was read an answer may be used. */
const rememberedMs = 5 * minuteMs;
/** How long nothing is remembered after announcements may have been lost. */
const missedMs = 30 * secondMs;
const changingMax = 10_000;
const policyBytes = 8 * 1024;

export function rememberRecipients(
  source: RecipientSource,
  { bus, changeMs, now = () => performance.now() }: RememberingOptions,
): RecipientSource {
  const changes = new Changes(changeMs, now);
  const memory = <T>(bytesOf: (value: T) => number) =>
    new Memory<T>({ now, isChanging: (did) => changes.includes(did), bytesOf });
  const subjects = memory(subjectBytes);
  const policies = {
    recipient: memory<DeliveryPolicy | null>(() => policyBytes),
    tag: memory<DeliveryPolicy | null>(() => policyBytes),
  };
  const personas = memory(personaBytes);
  const blockTimes = memory<number>(() => 0);
  const all = [subjects, policies.recipient, policies.tag, personas];
  const forgetAll = (ms: number) => {
    changes.addAll(ms);
    for (const one of all) one.clear();
  };
  bus.subscribe(
    changedSubject,
    (message) => {
      const did = decodeUtf8(message) ?? "";
      for (const one of all) one.forget(did);
      if (!changes.add(did)) forgetAll(changeMs);
      return undefined;
    },
    { missed: () => forgetAll(missedMs) },
  );
  return {
    subject: (did, asked) => subjects.read(did, () => source.subject(did, asked)),
    policy: (scope, key) => policies[scope].read(key, () => source.policy(scope, key)),
    persona: (key) => personas.read(key, () => source.persona(key)),
    blockTimeMs: () => blockTimes.read("", () => source.blockTimeMs()),
    servesGuests: () => source.servesGuests(),
  };
}

/** Of which DIDs a change was announced that may not be final yet. */
class Changes {
  private readonly untilMs = new BoundedMap<string, number>(changingMax);
  /** Until then, any may change: announcements were lost, or are too many. */
  private allUntilMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly changeMs: number,
    private readonly now: () => number,
  ) {}

  includes(did: string): boolean {
    const nowMs = this.now();
    return nowMs < this.allUntilMs || nowMs < (this.untilMs.get(did) ?? nowMs);
  }

  /** `false` when one that may not be final yet had to be dropped for it. */
  add(did: string): boolean {
    const [oldest] = this.untilMs;
    const isFull = this.untilMs.size >= changingMax && !this.untilMs.has(did);
    this.untilMs.set(did, this.now() + this.changeMs);
    return !isFull || oldest === undefined || oldest[1] <= this.now();
  }

  addAll(ms: number): void {
    this.allUntilMs = Math.max(this.allUntilMs, this.now() + ms);
  }
}

type RememberedAnswer<T> = { readonly value: T; readonly bytes: number; seenAtMs: number };

class Memory<T> {
  private readonly answers = new BoundedMap<string, RememberedAnswer<T>>(subjectsMax, {
    max: subjectBytesMax,
    of: ({ bytes }) => bytes,
  });
  /**
   * How often something was forgotten: an answer that was on its way then may
   * be older than the reason.
   */
  private forgotten = 0;

  constructor(
    private readonly options: {
      readonly now: () => number;
      readonly isChanging: (key: string) => boolean;
      readonly bytesOf: (value: T) => number;
    },
  ) {}

  async read(key: string, load: () => Promise<T>): Promise<T> {
    const { forgotten } = this;
    const askedAtMs = this.options.now();
    try {
      const value = await load();
      if (forgotten === this.forgotten) this.keep(key, value, askedAtMs);
      return value;
    } catch (error) {
      const known = this.answers.get(key);
      const isAway = error instanceof StoreError && error.code === "unavailable";
      if (!isAway || known === undefined || this.options.isChanging(key)) throw error;
      if (this.options.now() - known.seenAtMs > rememberedMs) throw error;
      return known.value;
    }
  }

  private keep(key: string, value: T, seenAtMs: number): void {
    if (this.options.isChanging(key)) return;
    const known = this.answers.get(key);
    // Every message reads its sender and recipient: the same answer is not measured again.
    if (known !== undefined && isSameValue(known.value, value)) known.seenAtMs = seenAtMs;
    else this.answers.set(key, { value, bytes: this.options.bytesOf(value), seenAtMs });
  }

  forget(key: string): void {
    this.forgotten++;
    this.answers.delete(key);
  }

  clear(): void {
    this.forgotten++;
    this.answers.clear();
  }
}

/** The ledger answers the same record object until the record changes. */
function isSameValue(before: unknown, now: unknown): boolean {
  if (before === now) return true;
  if (typeof before !== "object" || typeof now !== "object" || before === null || now === null)
    return false;
  const entries = Object.entries(before);
  return (
    entries.length === Object.keys(now).length &&
    entries.every(([name, value]) => value === (now as Record<string, unknown>)[name])
  );
}
