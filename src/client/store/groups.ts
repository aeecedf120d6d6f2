/**
 * The groups of an identity, as objects. A message to a group is sealed for each
 * member (`Sending.send`).
 * Source: docs/client.md "People and groups".
 */

import { type Did, isDid } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import { type GroupRow, type Standing, standingOf, upgradeRow } from "../groups/bundles.ts";
import { isHandedOver } from "../groups/handing.ts";
import { emptyGroup, type GroupState, isIn, membersOf, withChange } from "../groups/statements.ts";
import { randomUuid } from "../keys/crypto.ts";
import { type Content, reactionContent, reactionType } from "../mail/content.ts";
import type { MessageOptions, Sent } from "../mail/send.ts";
import { trustIn } from "../trust/client.ts";
import type { GroupHanding } from "./group-handing.ts";
import { factsOf, groupAt, isEmpty, putGroup } from "./group-rows.ts";
import type { GroupTalk } from "./group-talk.ts";
import { rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Sending } from "./sending.ts";
import type { StoredMessage } from "./shown.ts";
import type { LocalStore } from "./store.ts";
import type { Batch } from "./table.ts";

type MessagePage = { readonly before?: StoredMessage; readonly limit?: number };

type Changes = {
  /** A member who is the admin from then on, for good. After the other changes. */
  readonly admin?: string;
  readonly name?: string;
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
};

/** A group as it is when it is asked for. */
export class Group {
  readonly id: string;
  readonly name: string;
  readonly admin: Did;
  readonly members: readonly Did[];
  /**
   * `asked`: somebody who isn't known put this identity into it. `out`: it left, or was taken out.
   */
  readonly standing: Standing;
  /** To whom the admin hands it over: they are the admin as soon as their device knows. */
  readonly next: Did | null;
  /** To whom an admin has handed it over as well, which no one here follows. */
  readonly second: Did | null;
  readonly #groups: Groups;

  /** @internal */
  constructor(row: GroupRow, groups: Groups) {
    const { id, name, admin, members, standing, next, second } = factsOf(row, groups.own.did);
    [this.id, this.name, this.admin] = [id, name, admin];
    [this.members, this.standing] = [members, standing];
    [this.next, this.second] = [next, second];
    this.#groups = groups;
  }

  /** Sends to all who are in it now. Throws `not_member`. */
  async send(content: Content, options: MessageOptions = {}): Promise<Sent[]> {
    const { state } = await this.#row(["joined"]);
    const others = othersIn(state, this.#groups.own);
    return this.#groups.sending.send(others, content, { ...options, group: this.id });
  }

  /** Empty text withdraws the reaction. */
  react(messageId: string, reaction: string, author: Did | null = null): Promise<Sent[]> {
    const content = reactionContent(messageId, reaction, author);
    return this.send(content, { mediaType: reactionType, receipt: false });
  }

  /** A page of its history, with its changes, as `store.messages`. */
  messages(page?: MessagePage): Promise<StoredMessage[]> {
    return this.#groups.store.messages(this.id, page);
  }

  /**
   * For its admin, who made it or to whom it was handed over. Throws `not_admin`; `behind` while
   * another device that made new keys is awaited; `devices_awaited` while own devices have not
   * answered to `admin`, and `handing_over` meanwhile.
   */
  async change({ admin, name, add = [], remove = [] }: Changes): Promise<void> {
    const { own, talk } = this.#groups;
    const find = (to: string) => this.#groups.find(to);
    const { state } = await this.#row(["joined"]);
    if (state.maker !== own.did)
      throw localError("not_admin", "only the admin of a group changes it");
    const gone = await Promise.all(remove.map((to) => (isDid(to) ? to : find(to))));
    if (!gone.every((one) => one !== own.did && isIn(state, one)))
      throw localError("not_member", "who is to be removed is not in the group");
    const come = await Promise.all(add.map(find));
    const wish = { add: come, remove: gone, ...(name === undefined ? {} : { name }) };
    const isOther = name !== undefined || add.length + remove.length > 0;
    if (isOther || admin === undefined)
      await talk.change(this.id, (now, nowMs) => withChange(now, wish, nowMs));
    if (admin !== undefined) await this.#groups.handing.handOver(this.id, await find(admin));
  }

  /** Accepts to be in a group into which somebody unknown put this identity. */
  join(): Promise<void> {
    const { did } = this.#groups.own;
    return this.#mark((row) => ({ ...row, joined: row.state.members[did]?.[1] ?? 0 }));
  }

  /**
   * Leaves, and says so to the others. Who had only been asked says nothing to anybody. The history
   * stays. An admin hands the group over first, while others are in it: `admin_leaves`.
   */
  async leave(): Promise<void> {
    const { own, talk } = this.#groups;
    const { did } = own;
    const row = await this.#row(["joined", "asked"]);
    const { state } = row;
    const isNeeded = state.maker === did && !isHandedOver(state) && membersOf(state).length > 1;
    if (isNeeded) throw localError("admin_leaves", "make another member the admin, and leave then");
    if (standingOf(row, did) === "joined") return talk.leave(row);
    return this.#mark((now) => {
      const left = { ...now.state.left, [did]: now.state.members[did]?.[1] ?? 0 };
      return { ...now, state: { ...now.state, left } };
    });
  }

  async #mark(change: (row: GroupRow) => GroupRow): Promise<void> {
    const { own } = this.#groups;
    const { table } = own;
    await table.change(async (batch) =>
      putGroup(table, batch, change(await this.#row(["asked"], batch))),
    );
    own.announce({ type: "changed", conversation: this.id, id: null, what: "group" });
  }

  async #row(
    standings: readonly Standing[],
    from: Pick<Batch, "get"> = this.#groups.own.table,
  ): Promise<GroupRow> {
    const { table, did } = this.#groups.own;
    const row = await groupAt(table, this.id, from);
    if (row !== null && standings.includes(standingOf(row, did))) return row;
    throw notIn();
  }
}

const notIn = () => localError("not_member", "this identity is not in the group");

const othersIn = (state: GroupState, { did }: Pick<OwnStore, "did">): Did[] =>
  membersOf(state).filter((one) => one !== did);

type Parts = {
  readonly sending: Sending;
  readonly store: LocalStore;
  readonly talk: GroupTalk;
  readonly handing: GroupHanding;
};

/** The groups of an identity. Needs a store. */
export class Groups {
  /** @internal */
  readonly own: OwnStore;
  /** @internal */
  readonly sending: Sending;
  /** @internal */
  readonly store: LocalStore;

  /** @internal */
  readonly talk: GroupTalk;
  /** @internal */
  readonly handing: GroupHanding;

  /** @internal */
  constructor(own: OwnStore, { sending, store, talk, handing }: Parts) {
    this.own = own;
    this.sending = sending;
    this.store = store;
    this.talk = talk;
    this.handing = handing;
  }

  async list(): Promise<Group[]> {
    const rows = await this.own.table.values<GroupRow>(rowsOf.groups);
    const shown = rows.map((row) => upgradeRow(row)).filter((row) => !isEmpty(row));
    return shown.map((row) => new Group(row, this));
  }

  async get(id: string): Promise<Group | null> {
    const row = await groupAt(this.own.table, id);
    return row === null || isEmpty(row) ? null : new Group(row, this);
  }

  /** Makes a group of this identity, its admin, and of DIDs or aliases. */
  async create(name: string, others: readonly string[]): Promise<Group> {
    const { did } = this.own;
    const dids = [did, ...(await Promise.all(others.map((to) => this.find(to))))];
    const empty = emptyGroup(did, randomUuid());
    await this.talk.create(withChange(empty, { name, add: dids }, this.own.versionMs()));
    return (await this.get(empty.id)) as Group;
  }

  /** @internal */
  async find(to: string): Promise<Did> {
    const { client, trust } = this.own.identity.demandOpen();
    const { did } = await this.sending.find(to);
    // Whom nothing may be sent to is not a member.
    if (trust !== null) await trustIn(client, did, trust);
    return did;
  }
}
