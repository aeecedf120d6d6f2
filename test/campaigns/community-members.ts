/**
 * Members of the community who speak to the node by its interface alone, each from the address of a
 * household, and the book of what was sent to them: what was answered must be there once until it
 * is acknowledged, and nothing else may be.
 */
import { randomBytes } from "node:crypto";
import { proofHeaders } from "../../src/client/net/reader.ts";
import {
  type Answered,
  acknowledgementOf,
  envelopeTo,
  type Findings,
  personAt,
  registrationOf,
  type StageClient,
  type StagePerson,
  signedBy,
} from "./stage.ts";

/** `begun`: no answer came. `held`: the node has promised to keep it. */
type Sent = "begun" | "held" | "acked";

export type Member = {
  readonly person: StagePerson;
  readonly invitation: string;
  readonly tier: string | null;
  /** From where it speaks. */
  readonly home: StageClient;
  readonly friends: Member[];
  /** By message id, what was sent to it. */
  readonly mail: Map<string, Sent>;
  /** An acknowledgement was begun whose answer never came. */
  unsure: Set<string>;
  blocked: boolean;
};

export const counts = { sent: 0, pulled: 0, acked: 0, unanswered: 0 };
export const refusals = new Map<string, number>();

/**
 * Codes of refusals are counted; 0 and what an outage answers leave it open whether the node has
 * it.
 */
export function refused(what: string, { status, body }: Answered): boolean {
  const code = /"code":"(\w+)"/.exec(body)?.[1] ?? "";
  const name = `${what} ${status} ${code}`.trimEnd();
  refusals.set(name, (refusals.get(name) ?? 0) + 1);
  const isOpen = status === 0 || code === "shutting_down" || status === 502;
  if (isOpen) counts.unanswered++;
  return !isOpen;
}

/** `null` when the node was away. */
export async function join(
  url: string,
  home: StageClient,
  member: { readonly code: string; readonly invitation: string; readonly tier: string | null },
): Promise<Member | null> {
  const person = await personAt(url);
  const headers = { "content-type": "application/json", "svc-invitation": member.code };
  const body = await registrationOf(person);
  const ask = { method: "POST", path: "/register-did", headers, body };
  const answered = await home.ask(ask);
  if (answered.status !== 202) {
    refused("register", answered);
    return null;
  }
  const { invitation, tier } = member;
  return {
    ...{ person, invitation, tier, home, friends: [], blocked: false },
    ...{ mail: new Map(), unsure: new Set() },
  };
}

/** The status of the answer. */
export async function write(
  from: Member | null,
  to: Member,
  path: "/relay" | "/cache/store",
  home = from?.home ?? to.home,
): Promise<Answered> {
  const payload = { ciphertext_b64: randomBytes(60 + Math.random() * 600).toString("base64") };
  const timestamp = new Date(Date.now()).toISOString();
  const plain = envelopeTo(to.person, { payload, timestamp, ttl: "30d" });
  const envelope = from === null ? plain : signedBy(from.person, plain);
  const id = String(envelope["message_id"]);
  to.mail.set(id, "begun");
  const answered = await home.post(path, envelope);
  if (answered.status >= 200 && answered.status <= 299) {
    counts.sent++;
    if (to.mail.get(id) === "begun") to.mail.set(id, "held");
  } else if (refused("send", answered)) to.mail.delete(id);
  return answered;
}

type Page = { readonly ids: readonly string[]; readonly next: string | null };

async function page({ person, home }: Member, cursor: string | null): Promise<Page | null> {
  const query = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
  const headers = await proofHeaders(person.reader, "pull", "*");
  const path = `/cache/messages/${person.did}?limit=100${query}`;
  const answered = await home.ask({ path, headers });
  if (answered.status !== 200) {
    refused("pull", answered);
    return null;
  }
  counts.pulled++;
  const { messages, next_cursor: next = null } = JSON.parse(answered.body) as {
    messages: { message_id: string }[];
    next_cursor?: string | null;
  };
  return { ids: messages.map((one) => one.message_id), next };
}

/** Everything that waits, in the node's order; `null` when the node was away. */
export async function pull(member: Member): Promise<readonly string[] | null> {
  const ids: string[] = [];
  for (let cursor: string | null = null; ; ) {
    const found: Page | null = await page(member, cursor);
    if (found === null) return null;
    ids.push(...found.ids);
    cursor = found.next;
    if (cursor === null) return ids;
  }
}

async function acknowledge(member: Member, ids: readonly string[]): Promise<void> {
  const { person, home, mail, unsure } = member;
  for (const id of ids) unsure.add(id);
  const body = await acknowledgementOf(person.reader, ids);
  const answered = await home.post("/cache/ack", body);
  if (answered.status !== 200) return void refused("ack", answered);
  for (const id of ids) {
    mail.set(id, "acked");
    unsure.delete(id);
    counts.acked++;
  }
}

function checkPulled(member: Member, ids: readonly string[], findings: Findings): void {
  const { did } = member.person;
  findings.expect(new Set(ids).size === ids.length, `${did} gets a message twice`);
  for (const id of ids) {
    const sent = member.mail.get(id);
    findings.expect(
      sent !== undefined,
      `${did} gets ${id}, which no one sent or which was refused`,
    );
    findings.expect(sent !== "acked", `${did} gets ${id} again after its acknowledgement`);
  }
}

/** Pulls and acknowledges. */
export async function read(member: Member, findings: Findings): Promise<void> {
  const ids = await pull(member);
  if (ids === null) return;
  checkPulled(member, ids, findings);
  for (let from = 0; from < ids.length; from += 100)
    await acknowledge(member, ids.slice(from, from + 100));
}

/** With nothing in flight: what waits is what the book says. How many messages wait. */
export async function audit(member: Member, findings: Findings): Promise<number> {
  const ids = await pull(member);
  const { did } = member.person;
  if (ids === null) {
    findings.expect(false, `${did} can't be audited`);
    return 0;
  }
  checkPulled(member, ids, findings);
  const there = new Set(ids);
  for (const [id, sent] of member.mail)
    if (sent === "held" && !there.has(id) && !member.unsure.has(id))
      findings.expect(false, `${did} has lost ${id}`);
  return ids.length;
}
