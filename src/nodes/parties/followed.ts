/**
 * Records under one prefix that every process of an installation holds in memory: what an operator
 * decides. A look costs no read. A change is announced over the bus, and each process reads the
 * records again every ten seconds.
 */
import { secondMs } from "../../core/codec/time.ts";
import type { Bus } from "../../storage/bus.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import { decodeRecord, scanRecords } from "./records.ts";

export type FollowParts = {
  readonly receipts: Receipts;
  readonly bus: Bus;
  readonly now: () => number;
  readonly log: Log;
};

type Following<T> = {
  readonly prefix: string;
  /** Of the announcements. */
  readonly subject: string;
  /** For the log: "the block list". */
  readonly name: string;
  /**
   * Called with each list that differs from the last one, oldest record of the store
   * first or last as it comes.
   */
  readonly changed: (records: readonly T[]) => void;
};

type Followed = {
  /** Reads now; rejects when the store fails. */
  readonly read: () => Promise<void>;
  /** Reads, and has the other processes read. */
  readonly announce: () => Promise<void>;
  readonly close: () => void;
};

const readEveryMs = 10 * secondMs;

/** The first list is there when it resolves. */
export async function followRecords<T>(
  { receipts, bus, now, log }: FollowParts,
  { prefix, subject, name, changed }: Following<T>,
): Promise<Followed> {
  let text = "[]";
  const readChanged = async (): Promise<void> => {
    const found: T[] = [];
    for await (const page of scanRecords(receipts, prefix, now))
      found.push(...page.map(([, value]) => decodeRecord<T>(value)));
    const foundText = JSON.stringify(found);
    if (foundText === text) return;
    text = foundText;
    changed(found);
  };
  // One after the other, so that an older list never replaces a newer one.
  let reading = Promise.resolve();
  const readInTurn = (): Promise<void> => {
    reading = reading.then(readChanged, readChanged);
    return reading;
  };
  await readInTurn();
  const readLater = (): undefined => {
    readInTurn().catch((error: unknown) => {
      log("warn", `${name} could not be read`, { error });
    });
  };
  const subscription = bus.subscribe(subject, readLater, { missed: readLater });
  const timer = setInterval(readLater, readEveryMs);
  timer.unref();
  return {
    read: readInTurn,
    announce: async () => {
      await readInTurn();
      bus.publish(subject, new Uint8Array(0));
    },
    close: () => {
      clearInterval(timer);
      subscription.unsubscribe();
    },
  };
}
