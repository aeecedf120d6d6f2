/** Rows of groups that an earlier version of the SDK has kept. */
import type { Did } from "../../core/codec/did.ts";
import { type GroupRow, upgradeRow } from "../groups/bundles.ts";
import { groupType } from "../mail/content.ts";
import { jsonIn } from "../mail/message.ts";
import { wholeBody } from "./files.ts";
import { putGroup } from "./group-rows.ts";
import { messagesOf, rowsOf } from "./keys.ts";
import type { MessageRow } from "./rows.ts";
import type { Table } from "./table.ts";

/** Who was in a group and is not any more is out, as far as its history shows them. */
export async function upgradeGroups(table: Table): Promise<void> {
  for (const raw of await table.values<GroupRow>(rowsOf.groups)) {
    if ("v" in raw) continue;
    const before = upgradeRow(raw);
    const row = upgradeRow(raw, await wereIn(table, before.state.id));
    await table.change(async (batch) => putGroup(table, batch, row));
  }
}

async function wereIn(table: Table, id: string): Promise<Did[]> {
  const were = new Set<Did>();
  for await (const [, row] of table.all<MessageRow>(messagesOf(table, id))) {
    if (!row.mediaType.startsWith(groupType) || row.body.is !== "inline") continue;
    const json = jsonIn(await wholeBody(table, row.body)) as { readonly members?: object } | null;
    for (const did of Object.keys(json?.members ?? {})) were.add(did as Did);
  }
  return [...were];
}
