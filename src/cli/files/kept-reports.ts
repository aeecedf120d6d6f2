/**
 * Open reports of an operator, on the machine with the operator's keys: sealed like a local
 * store, with the key of the identity. A report is here before its Cache is told that it may
 * forget it, and until it is closed.
 * Source: docs/run.md "Reports".
 */
import { sha256 } from "#sha256";
import { parseReport, type Report, reportContent } from "../../client/mail/report.ts";
import { Table } from "../../client/store/table.ts";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { fileStore } from "./store.ts";

/** What a list shows of a report. */
export type KeptReport = {
  /** Of its rows. */
  readonly key: string;
  readonly id: string;
  /** Who signed it. */
  readonly reporter: Did;
  readonly sentMs: number;
  readonly reason: string;
  readonly count: number;
  /** Each once, as the reporter says; `null` for messages without one. */
  readonly authors: readonly (Did | null)[];
};

export type SignedReport = Pick<KeptReport, "id" | "reporter" | "sentMs"> & {
  readonly report: Report;
};

/** Of one reporter; more of theirs stay in the mailbox until some are closed. */
export const keptPerReporter = 100;

const headPrefix = "report-head/";
const bodyPrefix = "report-body/";

export class KeptReports {
  readonly #table: Table;
  /** By the key, the oldest first. */
  #heads: readonly KeptReport[] | null = null;

  private constructor(table: Table) {
    this.#table = table;
  }

  /** Throws `busy` when another process has the file open. */
  static async open(path: string, storeKey: Uint8Array): Promise<KeptReports> {
    return new KeptReports(await Table.open(fileStore(path), storeKey));
  }

  /** The oldest first. */
  async list(): Promise<readonly KeptReport[]> {
    this.#heads ??= await this.#table.values<KeptReport>(headPrefix);
    return this.#heads;
  }

  async reportOf({ key }: KeptReport): Promise<Report> {
    const report = parseReport(await this.#table.get(bodyPrefix + key));
    if (report === null) throw new Error(`the report ${key} has a head and no body`);
    return report;
  }

  /**
   * On disk when it resolves; `false` when its reporter has too many open ones. One
   * that is here stays as it is.
   */
  async add(signed: SignedReport): Promise<boolean> {
    const { report, ...named } = signed;
    const content = reportContent(report);
    const key = keyOf(signed, JSON.stringify(content));
    const heads = await this.list();
    if (heads.some((one) => one.key === key)) return true;
    const theirs = heads.filter(({ reporter }) => reporter === signed.reporter);
    if (theirs.length >= keptPerReporter) return false;
    const authors = [...new Set(report.messages.map(({ from }) => from))];
    const head = { key, ...named, reason: report.reason, count: report.messages.length, authors };
    await this.#table.add(async (batch) => {
      batch.put(headPrefix + key, head);
      batch.put(bodyPrefix + key, content);
    });
    this.#heads = [...heads, head].sort((a, b) => a.sentMs - b.sentMs);
    return true;
  }

  async remove(closed: readonly KeptReport[]): Promise<void> {
    await this.#table.change(async (batch) => {
      for (const { key } of closed) {
        batch.delete(headPrefix + key);
        batch.delete(bodyPrefix + key);
      }
    });
    this.#heads = null;
  }

  close(): Promise<void> {
    return this.#table.close();
  }
}

/** In the order of time. Two reports with one id, which only its reporter can send, are two. */
function keyOf({ id, reporter, sentMs }: SignedReport, content: string): string {
  const digest = encodeHex(sha256(utf8(`${id} ${reporter} ${content}`)).subarray(0, 16));
  return `${String(sentMs).padStart(16, "0")}-${digest}`;
}
