/**
 * What an operator can do to a running node, by name. `server.admin_groups` gives Unix
 * groups and users some of these actions, by name or by the part before the dot.
 */

export const adminActions = [
  "members.list",
  "members.show",
  "members.explain",
  "members.erase",
  "members.tier",
  "invitations.list",
  "invitations.create",
  "invitations.revoke",
  "blocks.list",
  "blocks.change",
  "storage.networks",
  "notices.publish",
  "node.reload",
  "node.maintenance",
  "audit.list",
] as const;

export type AdminAction = (typeof adminActions)[number];

/** Actions that change nothing. */
const looks: readonly AdminAction[] = [
  "members.list",
  "members.show",
  "members.explain",
  "invitations.list",
  "blocks.list",
  "storage.networks",
  "audit.list",
];

export const changesNothing = (action: AdminAction): boolean => looks.includes(action);

const areaOf = (action: AdminAction): string => action.slice(0, action.indexOf("."));

/** What an audit can be asked for: an action, or an area. */
export const auditedNames: readonly string[] = [
  ...new Set(adminActions.map(areaOf)),
  ...adminActions,
];

/** What `server.admin_groups` may give: an action, all actions of an area, or `all`. */
export const adminRights: readonly string[] = ["all", ...auditedNames];

export function rightsHold(rights: readonly string[], action: AdminAction): boolean {
  return rights.includes("all") || rights.includes(areaOf(action)) || rights.includes(action);
}
