/** The turns of the whole page: copies for a group of 64 are sealed, and what has come is opened, at once. */
import { Turns } from "../base/turns.ts";

export const pageTurns = new Turns();
