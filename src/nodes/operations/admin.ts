/**
 * Who may do what over the admin socket: root, the user of the node, and those whom
 * `server.admin_groups` names. While neither it nor `server.admin_group` is set, everyone who can
 * open the socket may do everything.
 * Source: D634.
 */
import { type Fault, fault } from "../../core/fault.ts";
import { type AdminAction, adminActions, rightsHold } from "../../core/schema/admin.ts";
import { groupId, type Peer, userId } from "../http/peer.ts";
import type { Audit } from "./audit.ts";

/** Rights by the name or number of a group, or by `user:` and that of a user. */
type AdminGroups = Readonly<Record<string, readonly string[]>>;

export type Admin = {
  /** 403 `policy_denied`. */
  readonly check: (action: AdminAction, peer: Peer | null) => Fault | null;
  readonly actionsOf: (peer: Peer | null) => readonly AdminAction[];
  readonly audit: Audit;
};

type AdminParts = {
  /** Read at each action: a reload changes it. */
  readonly settings: { readonly admin_group: string | null; readonly admin_groups: AdminGroups };
  readonly audit: Audit;
  /** Number of the node's own user. */
  readonly ownUid: number;
};

const userPrefix = "user:";

export function createAdmin({ settings, audit, ownUid }: AdminParts): Admin {
  const mayDo = (peer: Peer | null): ((action: AdminAction) => boolean) => {
    const groups = Object.entries(settings.admin_groups);
    if (peer?.uid === 0 || peer?.uid === ownUid) return () => true;
    // With a group that opens the socket, the last line that is taken out must not
    // give all of it everything.
    if (groups.length === 0 && settings.admin_group === null) return () => true;
    const rights = groups.flatMap(([name, given]) => (isNamed(peer, name) ? given : []));
    return (action) => rightsHold(rights, action);
  };
  return {
    check: (action, peer) => {
      if (mayDo(peer)(action)) return null;
      const who = peer?.user ?? "a user whom this system does not name";
      return fault("policy_denied", `server.admin_groups gives ${who} no right to ${action}`);
    },
    actionsOf: (peer) => adminActions.filter(mayDo(peer)),
    audit,
  };
}

function isNamed(peer: Peer | null, name: string): boolean {
  if (peer === null) return false;
  if (name.startsWith(userPrefix)) return userId(name.slice(userPrefix.length)) === peer.uid;
  const group = groupId(name);
  return group !== null && peer.groups.includes(group);
}
