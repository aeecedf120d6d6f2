/**
 * The groups of an identity, as objects. A message to a group is sealed for each member (`Sending.send`).
 * Source: docs/client.md "People and groups".
 */

import { type Did, isDid } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import {
  changeTo,
  decideChange,
  type GroupRow,
  type GroupState,
  isIn,
  membersMax,
  membersOf,
  type Standing,
  standingOf,
} from "../groups/group-rules.ts";
import { groupIdOf } from "../groups/statements.ts";
import { randomUuid } from "../keys/crypto.ts";
import { type Content, groupType, reactionContent, reactionType } from "../mail/content.ts";
import type { MessageOptions, Sent } from "../mail/send.ts";
import { trustIn } from "../trust/client.ts";
import { putGroup } from "./group-rows.ts";
import { keyOfGroup, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { StoredMessage } from "./rows.ts";
import type { Sending } from "./sending.ts";
import type { LocalStore } from "./store.ts";
import type { Batch } from "./table.ts";

type Page = { readonly before?: StoredMessage; readonly limit?: number };

type Changes = {
  readonly name?: string;
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
  readonly admin?: string;
};

/** A group as it is when it is asked for. */
export class Group {
  readonly id: string;
  readonly name: string;
  readonly admin: Did;
  readonly members: readonly Did[];
  /** `asked`: somebody who isn't known put this identity into it. `out`: it left, or was taken out. */
  readonly standing: Standing;
  readonly #groups: Groups;

  /** @internal */
  constructor(row: GroupRow, groups: Groups) {
    ({ id: this.id, name: this.name, admin: this.admin } = row);
    this.members = membersOf(row);
    this.standing = standingOf(row, groups.own.did);
    this.#groups = groups;
  }

  /** Sends to all who are in it now. Throws `not_member`. */
  async send(content: Content, options: MessageOptions = {}): Promise<Sent[]> {
    const others = othersIn(await this.#row(["joined"]), this.#groups.own);
    return this.#groups.sending.send(others, content, { ...options, group: this.id });
  }

  /** Empty text withdraws the reaction. */
  react(messageId: string, reaction: string, author: Did | null = null): Promise<Sent[]> {
    const content = reactionContent(messageId, reaction, author);
    return this.send(content, { mediaType: reactionType, receipt: false });
  }

  /** A page of its history, with its changes, as `store.messages`. */
  messages(page?: Page): Promise<StoredMessage[]> {
    return this.#groups.store.messages(this.id, page);
  }

  /** For its admin, who may name another one. Throws `not_admin`. */
  async change({ name, add = [], remove = [], admin: next }: Changes): Promise<void> {
    const { did, nowMs } = this.#groups.own;
    const find = (to: string) => this.#groups.find(to);
    const row = await this.#row(["joined"]);
    const admin = next === undefined ? row.admin : await find(next);
    if (row.admin !== did) throw localError("not_admin", "only the admin of a group changes it");
    // By the clock, since an admin who was restored doesn't know the versions that others have.
    const version = Math.max(row.version + 1, Math.floor(nowMs() / 1_000));
    const gone = await Promise.all(remove.map((to) => (isDid(to) ? to : find(to))));
    if (!gone.every((one) => one !== did && isIn(row, one)))
      throw localError("not_member", "who is to be removed is not in the group");
    const stay = membersOf(row).filter((one) => !gone.includes(one));
    const members = Object.fromEntries(stay.map((one) => [one, row.members[one] as number]));
    for (const to of add) members[await find(to)] ??= version;
    if (members[admin] === undefined)
      throw localError("not_member", "who is to be the admin is not in the group");
    await publish(this.#groups, row, { ...row, version, members, name: name ?? row.name, admin });
  }

  /** Accepts to be in a group into which somebody unknown put this identity. */
  join(): Promise<void> {
    return this.#mark((row) => ({ ...row, joined: row.version }));
  }

  /**
   * Leaves, and says so to the others, of whom the first is the admin after this one. Who had only been asked says nothing
   * to anybody. The history stays.
   */
  async leave(): Promise<void> {
    const { own, sending } = this.#groups;
    const { did } = own;
    const row = await this.#row(["joined", "asked"]);
    if (standingOf(row, did) === "asked")
      return this.#mark((now) => ({ ...now, left: { ...now.left, [did]: now.version } }));
    const [first] = othersIn(row, own);
    if (row.admin === did && first !== undefined) await this.change({ admin: first });
    await sending.send(othersIn(row, own), { v: 1, left: row.version }, changing(row.id));
  }

  async #mark(change: (row: GroupRow) => GroupRow): Promise<void> {
    const { own } = this.#groups;
    const { table } = own;
    await table.change(async (batch) =>
      putGroup(table, batch, change(await this.#row(["asked"], batch))),
    );
    own.tell({ type: "changed", conversation: this.id, id: null, what: "group" });
  }

  async #row(
    standings: readonly Standing[],
    from: Pick<Batch, "get"> = this.#groups.own.table,
  ): Promise<GroupRow> {
    const { table, did } = this.#groups.own;
    const row = await from.get<GroupRow>(keyOfGroup(table, this.id));
    if (row !== null && standings.includes(standingOf(row, did))) return row;
    throw notIn();
  }
}

const notIn = () => localError("not_member", "this identity is not in the group");

/** With the longest life: who misses that another admin was named learns of no later change. */
const changing = (group: string): MessageOptions => ({
  group,
  mediaType: groupType,
  receipt: false,
  ttl: "30d",
});

const othersIn = (state: GroupState, { did }: Pick<OwnStore, "did">): Did[] =>
  membersOf(state).filter((one) => one !== did);

/** To those who are in it and those who were. */
async function publish(
  { own, sending }: Groups,
  before: GroupState | null,
  state: GroupState,
): Promise<void> {
  const { id } = state;
  const change = changeTo(state);
  if (decideChange(before, { id, from: own.did, json: change }) === null)
    throw localError(
      "invalid_argument",
      `a group has at most ${membersMax} members, and a name of 100 characters`,
    );
  const recipients = new Set([
    ...othersIn(state, own),
    ...(before === null ? [] : othersIn(before, own)),
  ]);
  await sending.send([...recipients], change, changing(id));
}

/** The groups of an identity. Needs a store. */
export class Groups {
  /** @internal */
  readonly own: OwnStore;
  /** @internal */
  readonly sending: Sending;
  /** @internal */
  readonly store: LocalStore;

  /** @internal */
  constructor(own: OwnStore, sending: Sending, store: LocalStore) {
    this.own = own;
    this.sending = sending;
    this.store = store;
  }

  async list(): Promise<Group[]> {
    const rows = await this.own.table.values<GroupRow>(rowsOf.groups);
    return rows.map((row) => new Group(row, this));
  }

  async get(id: string): Promise<Group | null> {
    const row = await this.own.table.get<GroupRow>(keyOfGroup(this.own.table, id));
    return row === null ? null : new Group(row, this);
  }

  /** Makes a group of this identity, its admin, and of DIDs or aliases. */
  async create(name: string, others: readonly string[]): Promise<Group> {
    const admin = this.own.did;
    const dids = [admin, ...(await Promise.all(others.map((to) => this.find(to))))];
    const nonce = randomUuid();
    const id = groupIdOf(admin, nonce);
    const members = Object.fromEntries(dids.map((did) => [did, 1]));
    await publish(this, null, {
      id,
      admin,
      maker: admin,
      nonce,
      version: 1,
      name,
      members,
      left: {},
    });
    return (await this.get(id)) as Group;
  }

  /** @internal */
  async find(to: string): Promise<Did> {
    const { client, trust } = this.own.identity;
    const { did } = await this.sending.find(to);
    // Whom nothing may be sent to is not a member.
    if (trust !== null) await trustIn(client, did, trust);
    return did;
  }
}
