/**
 * The local store of an identity, as its parts are given it: the rows, the tabs that share them,
 * and until when it is open.
 * Source: docs/client.md "A local store".
 */
import type { Did } from "../../core/codec/did.ts";
import type { GroupRow } from "../groups/bundles.ts";
import type { StoreChange, WaypostEvent } from "../mail/message.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import type { Sent } from "../mail/send.ts";
import type { EvidenceRow } from "./rows.ts";
import type { Table } from "./table.ts";

/** For the program, in every tab. */
export type StoreNews = Extract<
  WaypostEvent,
  { type: "changed" | "typing" | "receipt" | "read" | "store_full" }
>;

/** A copy waits at a place in the outbox, or what became of it. */
export type OutNews = {
  readonly type: "out";
  readonly place: string;
  readonly sent?: Sent;
  readonly error?: { readonly code: string; readonly message: string };
};

/** Content of a message that another device has. */
type WantNews = { readonly type: "want"; readonly key: string };

/** The programs that use a store at once: tabs of one page. */
export type Tabs = {
  /** Called with the news of other tabs. */
  onNews: (news: unknown) => void;
  /** Informs the other tabs. */
  readonly tell: (news: unknown) => void;
  /** Resolves when this tab leads; never when it is closed before. */
  readonly leading: Promise<void>;
  readonly close: () => void;
};

/** Of a store that one program has open. */
export const soleTab: Tabs = {
  onNews: () => undefined,
  tell: () => undefined,
  leading: Promise.resolve(),
  close: () => undefined,
};

export class OwnStore {
  readonly identity: OwnIdentity;
  readonly table: Table;
  /** The outbox, and own devices, in each tab. */
  onOut: (news: OutNews) => void = () => undefined;
  onWant: (key: string) => void = () => undefined;
  /** Another own device has proven something of others. */
  onEvidence: (row: EvidenceRow) => Promise<void> = async () => undefined;
  /**
   * Something is known or chosen of a person now, by this device, another
   * tab or another own device.
   */
  onPerson: (did: string) => void = () => undefined;
  /** What another own device has of a group: returns what changed. */
  onGroup: (row: GroupRow) => Promise<StoreChange | null> = async () => null;
  /**
   * Keys in force have changed: connections begin anew, with proofs by the new ones. Resolves when
   * a bundle counts again, or can't be had now.
   */
  onNewKeys: () => Promise<void> = async () => undefined;
  readonly #tabs: Tabs;
  readonly #stop = new AbortController();

  constructor(identity: OwnIdentity, table: Table, tabs: Tabs) {
    this.identity = identity;
    this.table = table;
    this.#tabs = tabs;
    tabs.onNews = (news) => this.#hear(news as StoreNews | OutNews | WantNews);
  }

  get did(): Did {
    return this.identity.did;
  }

  get nowMs(): () => number {
    return this.identity.nowMs;
  }

  /**
   * Now, for the order of messages: by the nodes' clock where Directory and Relay agree that the
   * own one is wrong. One of them alone may lie.
   */
  arrivalMs(): number {
    const { directory, relay } = this.identity.client;
    const [, ahead = 0] = [0, directory.endpoint.clock.aheadMs, relay.clock.aheadMs].toSorted(
      (a, b) => a - b,
    );
    return this.nowMs() + ahead;
  }

  /**
   * Now, for versions that others compare with their clocks: not ahead of one
   * on which the nodes agree.
   */
  versionMs(): number {
    return Math.min(this.nowMs(), this.arrivalMs());
  }

  /** The latest that it may be now; `null` before Directory and Relay have answered in this run. */
  latestMs(): number | null {
    const { directory, relay } = this.identity.client;
    const isAsked = [directory.endpoint, relay].every(({ clock }) => clock.answers > 0);
    return isAsked ? Math.max(this.nowMs(), this.arrivalMs()) : null;
  }

  /** Resolves when this tab receives and delivers for all. */
  get leading(): Promise<void> {
    return this.#tabs.leading;
  }

  /** Aborted when it is closed. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** To the program here and in the other tabs. */
  announce(news: StoreNews | OutNews | WantNews): void {
    this.#hear(news);
    this.#tabs.tell(news);
  }

  #hear(news: StoreNews | OutNews | WantNews): void {
    if (news.type === "out") this.onOut(news);
    else if (news.type === "want") this.onWant(news.key);
    else this.identity.emit(news);
    if (news.type === "changed" && news.what === "person") this.onPerson(news.conversation ?? "");
  }

  /** No part begins anything from then on. */
  stop(): void {
    this.#stop.abort();
  }

  async close(): Promise<void> {
    await this.table.close();
    this.#tabs.close();
  }
}
