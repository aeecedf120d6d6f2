/**
 * Reports to the operator: chosen messages of the local store, and what their authors made of them
 * since, with what proves who wrote them.
 * Source: docs/client.md "Reports", D638.
 */
import type { Did } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import { reportType } from "../mail/content.ts";
import {
  type Reported,
  reasonCharactersMax,
  reportContent,
  reportedBytesMax,
  reportedMax,
} from "../mail/report.ts";
import type { MessageOptions } from "../mail/send.ts";
import type { Client } from "../trust/client.ts";
import { believeOperator, operatorAt } from "../trust/operator.ts";
import { wholeBody } from "./files.ts";
import { reactionsOf } from "./keys.ts";
import { isRevision } from "./revisions.ts";
import type { MessageRow } from "./rows.ts";
import type { StoredMessage } from "./shown.ts";
import type { Table } from "./table.ts";

/** As long as a Cache may keep it. */
const reportTtl = "30d";

export type ReportOptions = {
  /** As `me.operator` showed it to the user, who agrees that the report goes there. */
  readonly operator?: Did;
};

type Asked = ReportOptions & {
  readonly messages: readonly StoredMessage[];
  readonly reason: string;
};

/**
 * To be sent. Throws `invalid_argument`, `no_operator` where the node names none,
 * `operator_reported` where that is an author of the messages, and `identity_changed` where it is
 * another one than before.
 */
export async function reportOf(
  client: Client,
  table: Table,
  { messages, reason, operator: agreed }: Asked,
): Promise<{
  readonly to: Did;
  readonly content: ReturnType<typeof reportContent>;
  readonly options: MessageOptions;
}> {
  if (messages.length === 0 || messages.length > reportedMax)
    throw localError("invalid_argument", `a report has 1 to ${reportedMax} messages`);
  if (messages.some(({ isOwn }) => isOwn))
    throw localError("invalid_argument", "own messages are not reported");
  if (reason.length > reasonCharactersMax)
    throw localError("invalid_argument", `a reason has at most ${reasonCharactersMax} characters`);
  const operator = await operatorAt(client);
  if (operator === null)
    throw localError("no_operator", "this node names no one who takes reports");
  if (messages.some(({ from }) => from === operator.did))
    throw localError("operator_reported", "the node names an author of these messages as operator");
  await believeOperator(client, operator, agreed ?? null);
  const shown = await Promise.all(messages.map(({ key }) => shownAt(table, key)));
  const some = shown.flat().slice(0, reportedMax);
  const options = { mediaType: reportType, ttl: reportTtl, receipt: false };
  return { to: operator.did, content: reportContent({ reason, messages: some }), options };
}

/** The message as it came, and the last revision of its author. */
async function shownAt(table: Table, key: string): Promise<Reported[]> {
  const row = await table.get<MessageRow>(key);
  if (row === null) return [];
  const prefix = reactionsOf(table, row.conversation, row.id);
  const around = await table.scan<MessageRow>({ prefix });
  const revisions = around.filter(([, one]) => one.from === row.from && isRevision(one));
  return Promise.all([row, ...revisions.map(([, one]) => one)].map((one) => shown(table, one)));
}

async function shown(table: Table, row: MessageRow): Promise<Reported> {
  const { id, from, sentMs, group, name, mediaType, sizeBytes, body, authorship = null } = row;
  const isHere = body.is !== "removed" && body.is !== "elsewhere" && sizeBytes <= reportedBytesMax;
  const data = isHere ? await wholeBody(table, body) : null;
  return { id, from, sentMs, group, name, mediaType, sizeBytes, data, authorship };
}
