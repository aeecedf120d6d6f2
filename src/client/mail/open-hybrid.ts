/** Opening in the second version, loaded with the first message in it: in the turn of what else holds the page up. */
import { pageTurns } from "./page-turns.ts";
import { openHybrid } from "./unseal-hybrid.ts";

export const openInTurn: typeof openHybrid = (envelope, opening) =>
  pageTurns.run(() => openHybrid(envelope, opening));
