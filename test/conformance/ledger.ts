/**
 * Laws of the ledger capability.
 */
import type { ConformanceCase } from "./kit.ts";

export const ledgerCases: readonly ConformanceCase[] = [];
