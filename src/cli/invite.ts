/**
 * Who may be on the running node: `waypost invite` makes, lists and revokes invitations,
 * and `waypost erase` removes what the node holds of a DID. Both use the node's Unix
 * socket, as `waypost block` does.
 */
import { type Command, InvalidArgumentError, Option } from "commander";
import { renderUnicodeCompact } from "uqr";
import { failed } from "../app/failure.ts";
import { dayMs, parseDuration, secondMs } from "../core/codec/time.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import {
  countOf,
  createReport,
  parseBetween,
  parseUrl,
  printable,
  renderBytes,
} from "./command.ts";
import { confirmed } from "./did-change.ts";
import { addNodeFlags, askNode, type ListedInvitation, type NodeFlags } from "./operations.ts";

export function registerInviteCommands(program: Command): void {
  const invite = program
    .command("invite")
    .description("decide who may register on the running node");
  addNodeFlags(
    invite
      .command("create")
      .description(
        'make an invitation; its link registers DIDs while directory.registration is "invite"',
      )
      .option("--uses <number>", "how many DIDs it registers", parseBetween(1, 500), 1)
      .addOption(
        new Option("--expires <duration>", "how long it can be used: 1h, 30d")
          .argParser(parseLife)
          .default(7 * dayMs, "7d"),
      )
      .option("--note <text>", "for whom, for the list")
      .option(
        "--link <url>",
        "address of the app (default: that of server.app; without an app there is no link)",
        parseUrl,
      ),
  ).action(create);
  addNodeFlags(invite.command("list").description("list invitations, and who used them")).action(
    listInvitations,
  );
  addNodeFlags(
    invite
      .command("revoke <id>")
      .description("end an invitation, by the beginning of its id, its code or its link"),
  ).action(revoke);
  addNodeFlags(
    program
      .command("erase <did>")
      .description("remove what the running node holds of a DID, and block it")
      .option("--yes", "do not ask"),
  ).action(erase);
}

/** Milliseconds; whole seconds travel. */
function parseLife(text: string): number {
  const ms = parseDuration(text);
  if (ms !== null && ms >= 60 * secondMs) return ms;
  throw new InvalidArgumentError("It must be from 1 minute to 30 days, such as 1h or 30d.");
}

type CreateFlags = NodeFlags & {
  readonly uses: number;
  readonly expires: number;
  readonly note?: string | null;
  readonly link?: string;
};

async function create({ uses, expires, note = null, link, ...flags }: CreateFlags): Promise<void> {
  const body = { uses, life_seconds: Math.floor(expires / secondMs), note };
  const { app, ...made } = await askNode(flags, "/operations/invitations", body);
  const code = String(made["code"]);
  const place = link ?? (typeof app === "string" ? app : null);
  const url = place === null ? null : `${withoutTrailingSlashes(place)}/#invite=${code}`;
  const lines = [
    ...(url === null ? [] : [renderUnicodeCompact(url), "", url]),
    `code ${code}`,
    `registers ${countOf(uses, "DID")} until ${made["expires_at"]}; the code is not shown again`,
  ];
  createReport(flags.json === true).result({ ok: true, ...made, link: url }, lines.join("\n"));
}

async function listInvitations(flags: NodeFlags): Promise<void> {
  const answer = await askNode(flags, "/operations/invitations");
  const lines = (answer["invitations"] as readonly ListedInvitation[]).flatMap((one) => [
    `${one.id.slice(0, 12)}  ${one.uses.length} of ${one.uses_max} used, ${
      one.revoked_at === null ? `until ${one.expires_at}` : `revoked ${one.revoked_at}`
    }${one.note === null ? "" : `  (${one.note})`}`,
    ...one.uses.map(({ did, at }) => `  ${at}  ${did ?? "a DID that was erased"}`),
  ]);
  createReport(flags.json === true).result(
    answer,
    lines.map(printable).join("\n") || "There are no invitations.",
  );
}

async function revoke(named: string, flags: NodeFlags): Promise<void> {
  const id = named.split("#invite=").at(-1) ?? named;
  if (id.length < 6) throw failed("give at least six characters of the id");
  const revoked = await askNode(flags, "/operations/invitations/revoke", { id });
  createReport(flags.json === true).result({ ok: true, ...revoked }, `revoked ${revoked["id"]}`);
}

/** What an erasure can't reach, for the operator who must answer for it. */
const remains = [
  "It is blocked: `waypost block remove` ends that. Not removed, because no node can:",
  "- its record in the ledger; who holds the root key ends it with `waypost did delete`",
  "- the ledger's history and log, of which others have proofs: DID, keys, aliases and services, and when they changed",
  "- ids of acknowledged messages, with the DID, until the messages would have expired",
  "- the last results in the memory of other processes on the same store, until they restart",
  "- the audit, which names it and who removed it, for 400 days",
  "- backups until they are replaced, log files until they rotate, and what others have received",
];

async function erase(
  did: string,
  { yes = false, ...flags }: NodeFlags & { readonly yes?: boolean },
): Promise<void> {
  confirmed(`Remove everything that the node holds of ${printable(did)}?`, { yes, ...flags });
  const erased = await askNode(flags, "/operations/erase", { did });
  const { entries, bytes, invitations } = erased;
  const mail = `${countOf(Number(entries), "message")} removed, ${renderBytes(Number(bytes))}`;
  const lines = [`${mail}; ${countOf(Number(invitations), "use")} of invitations`, ...remains];
  createReport(flags.json === true).result({ ok: true, did, ...erased }, lines.join("\n"));
}
