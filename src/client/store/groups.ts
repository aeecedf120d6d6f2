/**
 * Groups in the local store, and as an object. Changes come as messages, own ones too, and are applied by the same rules.
 * Sealing a message for a group is one function, `GroupsHost.send`: a copy for each member.
 * Source: docs/client.md "People and groups".
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import type { GroupRow, GroupState } from "../groups/group-rules.ts";
import {
  changeTo,
  decideChange,
  decideFirst,
  type GroupChange,
  groupIdOf,
  isIn,
  membersMax,
  membersOf,
  type Standing,
  standingOf,
} from "../groups/group-rules.ts";
import { randomUuid } from "../keys/crypto.ts";
import { type Content, groupType, reactionType } from "../mail/content.ts";
import type { StoreChange } from "../mail/message.ts";
import type { MessageOptions, Sent } from "../mail/send.ts";
import { keyOfGroup, rowsOf } from "./keys.ts";
import type { StoredMessage } from "./rows.ts";
import type { Batch, StoreBase, Table } from "./table.ts";

/** Of all, and of those whom strangers put this identity into: further ones are ignored. */
const [groupsMax, askedMax] = [1_000, 50];

// ----------------------------------------------------------------------------------------------------------- rows

type Putting = GroupChange & { readonly own: Did; readonly isKnown: boolean };

/** Applies a change. `false` when it changes nothing here. Who isn't known asks first. */
export async function putChange(
  table: Table,
  batch: Batch,
  { own, isKnown, ...change }: Putting,
): Promise<boolean> {
  const { id, from } = change;
  const before = await batch.get<GroupRow>(keyOfGroup(table, id));
  const state = decideChange(before, change) ?? decideFirst(before, change, own);
  if (state === null) return false;
  const joined = from === own ? state.version : (before?.joined ?? (isKnown ? state.version : 0));
  const row = { ...state, joined };
  if (standingOf(before, own) === "out" && standingOf(row, own) === "out") return false;
  if (before === null && !(await hasRoom(table, standingOf(row, own), own))) return false;
  putGroup(table, batch, row);
  return true;
}

async function hasRoom(table: Table, standing: Standing, own: Did): Promise<boolean> {
  const rows = await table.scan<GroupRow>({ prefix: rowsOf.groups, limit: groupsMax });
  const asked = rows.filter(([, row]) => standingOf(row, own) === "asked");
  return rows.length < groupsMax && (standing === "joined" || asked.length < askedMax);
}

function putGroup(table: Table, batch: Batch, group: GroupRow): void {
  const key = keyOfGroup(table, group.id);
  batch.put(key, group);
  batch.log(key);
}

type Said = {
  readonly group: string;
  readonly from: Did;
  readonly own: Did;
  readonly isKnown: boolean;
};

/**
 * Where a message belongs that somebody sent to a group: to the group when they are in it. Else to themselves, as a
 * stranger's request if they are one. `null`: nowhere, since this identity has left.
 */
export async function conversationOf(
  table: Table,
  batch: Batch,
  said: Said,
): Promise<string | null> {
  const { group, from, own, isKnown } = said;
  const row = await batch.get<GroupRow>(keyOfGroup(table, group));
  // A group without a state, of a program without a store.
  if (row === null) return isKnown ? group : from;
  if (standingOf(row, own) === "out") return null;
  return isIn(row, from) ? group : from;
}

// --------------------------------------------------------------------------------------------------------- object

export type GroupFacts = Pick<Group, "id" | "name" | "admin" | "members" | "standing">;

export const factsOf = (row: GroupRow, own: Did): GroupFacts => {
  const { id, name, admin } = row;
  return { id, name, admin, members: membersOf(row), standing: standingOf(row, own) };
};

type Page = { readonly before?: StoredMessage; readonly limit?: number };

type GroupsHost = StoreBase<StoreChange> & {
  readonly messages: (id: string, page?: Page) => Promise<StoredMessage[]>;
  readonly find: (to: string) => Promise<Did>;
  /** Seals a message for each, in the conversation that its options name. */
  readonly send: (
    members: readonly Did[],
    content: Content,
    options: MessageOptions,
  ) => Promise<Sent[]>;
};

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
  readonly #host: GroupsHost;

  /** @internal */
  constructor(row: GroupRow, host: GroupsHost) {
    ({ id: this.id, name: this.name, admin: this.admin } = row);
    this.members = membersOf(row);
    this.standing = standingOf(row, host.did);
    this.#host = host;
  }

  /** Sends to all who are in it now. Throws `not_member`. */
  async send(content: Content, options: MessageOptions = {}): Promise<Sent[]> {
    const others = othersIn(await this.#row(["joined"]), this.#host);
    return this.#host.send(others, content, { ...options, group: this.id });
  }

  /** Empty text withdraws the reaction. */
  react(messageId: string, reaction: string): Promise<Sent[]> {
    return this.send(
      { v: 1, to: messageId, reaction },
      { mediaType: reactionType, receipt: false },
    );
  }

  /** A page of its history, with its changes, as `store.messages`. */
  messages(page?: Page): Promise<StoredMessage[]> {
    return this.#host.messages(this.id, page);
  }

  /** For its admin, who may name another one. Throws `not_admin`. */
  async change({ name, add = [], remove = [], admin: next }: Changes): Promise<void> {
    const { did, find, nowMs } = this.#host;
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
    await publish(this.#host, row, { ...row, version, members, name: name ?? row.name, admin });
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
    const { did, send } = this.#host;
    const row = await this.#row(["joined", "asked"]);
    if (standingOf(row, did) === "asked")
      return this.#mark((now) => ({ ...now, left: { ...now.left, [did]: now.version } }));
    const [first] = othersIn(row, this.#host);
    if (row.admin === did && first !== undefined) await this.change({ admin: first });
    await send(othersIn(row, this.#host), { v: 1, left: row.version }, changing(row.id));
  }

  async #mark(change: (row: GroupRow) => GroupRow): Promise<void> {
    const { table, tell } = this.#host;
    await table.change(async (batch) =>
      putGroup(table, batch, change(await this.#row(["asked"], batch))),
    );
    tell({ type: "changed", conversation: this.id, id: null, what: "group" });
  }

  async #row(
    standings: readonly Standing[],
    from: Pick<Batch, "get"> = this.#host.table,
  ): Promise<GroupRow> {
    const { table, did } = this.#host;
    const row = await from.get<GroupRow>(keyOfGroup(table, this.id));
    if (row !== null && standings.includes(standingOf(row, did))) return row;
    throw notIn();
  }
}

const notIn = () => localError("not_member", "this identity is not in the group");

/** With the longest life: who misses that another admin was named hears of no later change. */
const changing = (group: string): MessageOptions => ({
  group,
  mediaType: groupType,
  receipt: false,
  ttl: "30d",
});

const othersIn = (state: GroupState, { did }: Pick<GroupsHost, "did">): Did[] =>
  membersOf(state).filter((one) => one !== did);

/** To those who are in it and those who were. */
async function publish(
  host: GroupsHost,
  before: GroupState | null,
  state: GroupState,
): Promise<void> {
  const { id } = state;
  const change = changeTo(state);
  if (decideChange(before, { id, from: host.did, json: change }) === null)
    throw localError(
      "invalid_argument",
      `a group has at most ${membersMax} members, and a name of 100 characters`,
    );
  const recipients = new Set([
    ...othersIn(state, host),
    ...(before === null ? [] : othersIn(before, host)),
  ]);
  await host.send([...recipients], change, changing(id));
}

/** The groups of an identity. Needs a store. */
export class Groups {
  readonly #host: GroupsHost;

  /** @internal */
  constructor(host: GroupsHost) {
    this.#host = host;
  }

  async list(): Promise<Group[]> {
    const rows = await this.#host.table.values<GroupRow>(rowsOf.groups);
    return rows.map((row) => new Group(row, this.#host));
  }

  async get(id: string): Promise<Group | null> {
    const row = await this.#host.table.get<GroupRow>(keyOfGroup(this.#host.table, id));
    return row === null ? null : new Group(row, this.#host);
  }

  /** Makes a group of this identity, its admin, and of DIDs or aliases. */
  async create(name: string, others: readonly string[]): Promise<Group> {
    const { did: admin, find } = this.#host;
    const dids = [admin, ...(await Promise.all(others.map(find)))];
    const nonce = randomUuid();
    const id = groupIdOf(admin, nonce);
    const members = Object.fromEntries(dids.map((did) => [did, 1]));
    await publish(this.#host, null, {
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
}
