/**
 * A community over the compiled executable, and a week of its life on a clock that jumps a day at
 * each restart: members come by invitations and have tiers, write and read, some with the whole SDK
 * (conversations, groups, own devices, reports) and the others by the interface alone. An
 * invitation lets junk in, a member harasses, devices are lost, aliases change; the operator
 * blocks, closes reports, announces, maintains, makes a backup; the node is killed or ended each
 * day. The script keeps its own book, and at the end everything is compared with it: mail, members,
 * invitations, tiers, blocks, audit, metrics, reports, conversations.
 *
 * `bun test/campaigns/community.ts --members 2000 --people 24` ends with 1 on a finding. Linux,
 * with libfaketime.
 */
import { appendFileSync, statSync } from "node:fs";
import { join as joinPath } from "node:path";
import { parseArgs } from "node:util";
import { signIntent } from "../../src/client/identity/change.ts";
import { run, scratchFolder } from "../support/executable.ts";
import {
  audit,
  counts,
  join,
  type Member,
  pull,
  read,
  refusals,
  write,
} from "./community-members.ts";
import { type Group, type Invitation, People, type Person } from "./community-people.ts";
import { shiftClock } from "./shifted-clock.ts";
import { clientFrom, Findings, openStage, ownMib, residentMib } from "./stage.ts";

const { values } = parseArgs({
  options: {
    members: { type: "string", default: "2000" },
    /** Of them, with the whole SDK. */
    people: { type: "string", default: "24" },
    days: { type: "string", default: "7" },
  },
});
const days = Number(values.days);
const dayMs = 86_400_000;
/** Join each day after the first. */
const joining = Math.ceil(Number(values.members) / 50);
const junkCount = Math.ceil(Number(values.members) / 50);
const founding = Number(values.members) - Number(values.people) - joining * (days - 1) - junkCount;
const findings = new Findings();
const scratch = scratchFolder();
const clock = shiftClock(scratch.path);
const startedMs = performance.now();
const say = (text: string): void =>
  console.log(`${((performance.now() - startedMs) / 1_000).toFixed(0)} s: ${text}`);

/** Each takes a use of the person's invitation. */
const devicesLost = 2;
const guestEntries = 40;
const guestRate = 2;
const stage = await openStage({
  env: clock.environment,
  lines: {
    server: ['admin_listen = ["unix:admin.sock"]'],
    directory: ['registration = "invite"', "rate_limit_loopback = false", 'alias_interval = "30d"'],
    relay: ["client_rate = 1000000"],
    cache: [
      ...["", "[tiers.founders]", "recipient_entries_max = 20000"],
      ...["", "[tiers.guests]", `recipient_entries_max = ${guestEntries}`],
      `recipient_rate = ${guestRate}`,
      ...["", "[limits]", 'ttl_max = "30d"'],
    ],
  },
});
const { url } = stage;
const households = Array.from({ length: 40 }, (_, i) => clientFrom(`127.1.0.${i + 1}`, url));
const householdOf = (number: number) => {
  const home = households[number % households.length];
  if (home === undefined) throw new Error("there are no households");
  return home;
};

/** Runs the work for all, so many at once. */
async function each<T>(all: readonly T[], work: (one: T) => Promise<unknown>, atOnce = 24) {
  const waiting = [...all];
  const next = async (): Promise<void> => {
    for (let one = waiting.pop(); one !== undefined; one = waiting.pop()) await work(one);
  };
  await Promise.all(Array.from({ length: atOnce }, next));
}

const people = new People(url, findings);
/** All but the last one, who harasses. */
const circle = (): readonly Person[] => people.all.slice(0, -1);
/** One of them, and the next. */
function pairOf(number: number): [Person, Person] {
  const some = circle();
  const [one, two] = [some[number % some.length], some[(number + 1) % some.length]];
  if (one === undefined || two === undefined) throw new Error("there are no people");
  return [one, two];
}

// ---------------------------------------------------------------------------------------- operator

type Json = Record<string, unknown>;
/** Records that the audit must have, by action. */
const done = new Map<string, number>();
const note = (action: string): void => void done.set(action, (done.get(action) ?? 0) + 1);

async function operate(path: string, body?: unknown, action?: string): Promise<Json> {
  const headers = { "content-type": "application/json" };
  const sent = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  const unix = joinPath(stage.folder, "admin.sock");
  const reply = await fetch(`http://localhost/operations/${path}`, { unix, ...sent });
  const json = (await reply.json()) as Json;
  findings.expect(reply.ok, `${path} is refused: ${JSON.stringify(json)}`);
  if (action !== undefined) note(action);
  return json;
}

async function command(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(words, {
    cwd: stage.folder,
    env: clock.environment,
  });
  findings.expect(code === 0, `waypost ${words.join(" ")} ends with ${code}: ${stderr}`);
  return stdout;
}

const asOperator = ["--as", "operator", "--url", url];
type Listed = { readonly id: string; readonly reason: string; readonly reporter: string };
const listReports = async (): Promise<Listed[]> =>
  (JSON.parse(await command("reports", "list", ...asOperator, "--json")) as { reports: Listed[] })
    .reports;

const invitations: Invitation[] = [];
async function invite(uses: number, tier: string | null, name: string): Promise<Invitation> {
  const asked = { uses, life_seconds: 86_400 * 20, note: name };
  const { id, code } = await operate("invitations", asked, "invitations.create");
  const made = { id: String(id), code: String(code), tier, used: 0 };
  invitations.push(made);
  return made;
}

const setTier = (did: string, tier: string) =>
  operate("tier", { member: did, tier }, "members.tier");

// ----------------------------------------------------------------------------------------- members

const members: Member[] = [];
const any = <T>(all: readonly T[]): T => {
  const one = all[Math.floor(Math.random() * all.length)];
  if (one === undefined) throw new Error("there is no one");
  return one;
};

/** By invitations of at most 500, and with their tiers. */
async function register(count: number, tier: string | null, name: string): Promise<Member[]> {
  const joined: Member[] = [];
  for (let left = count; left > 0; left -= 500) {
    const size = Math.min(left, 500);
    const invitation = await invite(size, tier, name);
    await each(
      Array.from({ length: size }, (_, i) => i),
      async (i) => {
        const { code, id } = invitation;
        const member = await join(url, householdOf(i), { code, invitation: id, tier });
        if (member === null) return;
        invitation.used++;
        joined.push(member);
      },
    );
  }
  await each(joined, async ({ person, home }) => {
    const path = `/resolve/${person.did}`;
    await people.settled(`the registration of ${person.did}`, async () => {
      return (await home.ask({ path })).status === 200;
    });
  });
  if (tier !== null) for (const { person } of joined) await setTier(person.did, tier);
  members.push(...joined);
  for (const member of joined) for (let i = 0; i < 5; i++) member.friends.push(any(members));
  return joined;
}

/** The last use is refused, whoever asks. */
async function checkUses(invitation: Invitation): Promise<void> {
  const { code, id } = invitation;
  const more = await join(url, householdOf(0), { code, invitation: id, tier: null });
  findings.expect(more === null, `invitation ${id} lets in more than it has uses`);
}

/** Writes to friends and reads, while the node may be ended. */
async function live(member: Member): Promise<void> {
  if (member.blocked) return;
  for (let i = 0; i < 3; i++)
    if (Math.random() < 0.5) {
      const path = Math.random() < 0.5 ? "/relay" : "/cache/store";
      const { status } = await write(member, any(member.friends), path);
      if (status === 0) await Bun.sleep(200);
    }
  if (Math.random() < 0.7) await read(member, findings);
}

/** One change of the alias passes, another within a month and a reserved name don't. */
async function changeAlias(member: Member, alias: string): Promise<void> {
  const { identity, did } = member.person;
  const signer = { keyId: "root", seed: identity.rootSeed };
  const headers = { "content-type": "application/json" };
  const add = async (name: string, nonce: bigint) => {
    const intent = { action: "add_alias", did, alias: name } as const;
    const submission = await signIntent(intent, signer, { nonce, nowMs: Date.now() });
    return member.home.ask({ ...submission, headers });
  };
  const reserved = await add("admin", 0n);
  findings.expect(reserved.status === 403, `a member takes a reserved name: ${reserved.body}`);
  const first = await add(alias, 0n);
  findings.expect(first.status === 202, `an alias is refused: ${first.body}`);
  await people.settled(`the alias ${alias}`, async () => {
    const { status } = await member.home.ask({ path: `/aliases/${alias}` });
    return status === 200;
  });
  findings.expect((await operate("member", { member: alias }))["did"] === did, `${alias} is lost`);
  const second = await add(`${alias}-again`, 1n);
  findings.expect(second.status === 429, `a second alias within a month: ${second.body}`);
}

// ----------------------------------------------------------------------- people with the whole SDK

const reported = new Set<string>();
async function report(by: Person, about: Person, reason: string): Promise<void> {
  const theirs = async () =>
    (await by.me.store.messages(about.me.did, { limit: 1_000 })).filter(({ isOwn }) => !isOwn);
  const isThere = async () => (await theirs()).length > 0;
  await people.settled(`a message of ${about.name} to ${by.name}`, isThere);
  const [message] = await theirs();
  if (message === undefined) return;
  await by.me.report([message], reason);
  reported.add(reason);
}

/** What the operator has is what was reported and not closed. */
async function checkReports(): Promise<void> {
  const missing = async () => {
    const reasons = (await listReports()).map(({ reason }) => reason);
    findings.expect(new Set(reasons).size === reasons.length, "a report is there twice");
    for (const reason of reasons)
      findings.expect(reported.has(reason), `the report "${reason}" is closed or was not made`);
    return [...reported].filter((reason) => !reasons.includes(reason));
  };
  await people.settled("reports", async () => (await missing()).length === 0);
}

// ---------------------------------------------------------------------------------------- the week

const figures: string[] = [];
let [largestMib, blockedTries] = [0, 0];
const blocks = new Set<string>();

async function endDay(day: number): Promise<void> {
  const { pid } = stage.node();
  const bytes = statSync(joinPath(stage.folder, "data", "data.mdb")).blocks * 512;
  const mib = residentMib(pid);
  largestMib = Math.max(largestMib, mib);
  figures.push(
    `day ${day}: ${members.length + people.all.length} members, ${counts.sent} sent, ${counts.acked} acknowledged, ` +
      `${mib} MiB resident (${ownMib(pid)} own), ${(bytes / 2 ** 20).toFixed(1)} MiB on disk`,
  );
  say(figures.at(-1) ?? "");
}

/** Half a day with the node, its end, and half a day with the next process, on the next date. */
async function playDay(day: number): Promise<void> {
  const half = (part: number) => members.filter((_, i) => i % 2 === part);
  const ending = async () => {
    await Bun.sleep(500);
    await stage.node().kill(day % 2 === 0 ? "SIGTERM" : "SIGKILL");
    await stage.start();
  };
  await Promise.all([
    each(half(0), live),
    ending(),
    ...circle().map((_, i) => people.speak(...pairOf(i + day))),
  ]);
  await each(half(1), live);
  for (const group of groups) await people.speakIn(any(group.people), group);
}

async function nextDate(passed: number): Promise<void> {
  await stage.node().kill("SIGKILL");
  clock.setOffset(clock.offsetMs() + passed * dayMs);
  await stage.start();
  await people.openAgain();
}

const groups: Group[] = [];

async function dayOne(): Promise<Person> {
  const own = await invite(1, null, "operator");
  const created = await command(
    ...["did", "create", "--name", "operator", "--url", url, "--invitation", own.code, "--json"],
  );
  own.used++;
  const { did } = JSON.parse(created) as { did: string };
  appendFileSync(joinPath(stage.folder, "waypost.toml"), `\n[operator]\ndid = "${did}"\n`);
  await operate("reload", {}, "node.reload");
  await register(Math.ceil(founding / 10), "founders", "founders");
  await register(Math.ceil(founding / 5), "guests", "guests");
  await register(founding - Math.ceil(founding / 10) - Math.ceil(founding / 5), null, "all");
  const first = invitations.find(({ tier }) => tier === "founders");
  if (first !== undefined) await checkUses(first);
  const friends = await invite(Number(values.people) + devicesLost, null, "friends");
  for (let i = 0; i < Number(values.people); i++) await people.open(`person-${i}`, friends);
  for (let i = 0; i + 4 < people.all.length; i += 4) {
    const some = people.all.slice(i, i + 4);
    const [maker, ...others] = some;
    const dids = others.map(({ me }) => me.did);
    const group = await maker?.me.groups.create(`group ${i}`, dids);
    if (group !== undefined) groups.push({ id: group.id, people: some });
  }
  return any(people.all.slice(-1));
}

/**
 * An invitation whose people write junk to one member and to the operator, until all of them are
 * blocked.
 */
async function junk(): Promise<void> {
  const let_in = await register(junkCount, null, "junk");
  const [victim] = members;
  if (victim === undefined) throw new Error("there is no victim");
  await each(let_in, async (one) => {
    for (let i = 0; i < 5; i++) await write(one, victim, "/relay");
  });
  const id = let_in[0]?.invitation ?? "";
  await command("block", "add", "--invitation", id, "--reason", "junk", "--yes");
  note("blocks.change");
  await operate("invitations/revoke", { id }, "invitations.revoke");
  for (const one of let_in) {
    one.blocked = true;
    blocks.add(one.person.did);
  }
  await each(let_in, async (one) => {
    const { status, body } = await write(one, victim, "/relay");
    blockedTries++;
    findings.expect(status === 403, `who is blocked is answered ${status} ${body}`);
  });
}

/** What tiers promise: how much a mailbox holds, and how fast it takes. */
async function checkTiers(): Promise<void> {
  const fillOf = async (member: Member, most: number) => {
    await read(member, findings);
    let taken = 0;
    while (
      taken < most &&
      (await write(null, member, "/cache/store", householdOf(7))).status === 202
    )
      taken++;
    await read(member, findings);
    return taken;
  };
  const of = (tier: string | null) =>
    any(members.filter((one) => one.tier === tier && !one.blocked));
  const [guest, usual, founder] = [of("guests"), of(null), of("founders")];
  const taken = [
    await fillOf(guest, 1_200),
    await fillOf(usual, 1_200),
    await fillOf(founder, 1_200),
  ];
  // Of one network: its floor of two, and half of the rest of newcomers (10 % of the quota).
  const promised = [guestEntries, 2 + 501, 2 + 1_001];
  findings.expect(Bun.deepEquals(taken, promised), `mailboxes took ${taken}, and not ${promised}`);
  const beganMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: 60 }, () => write(null, guest, "/relay", householdOf(8))),
  );
  const passed = answers.filter(({ status }) => status < 300).length;
  const most = 10 * guestRate + (guestRate * (performance.now() - beganMs)) / 1_000 + 1;
  findings.expect(passed <= most, `a guest was sent ${passed} at once`);
  findings.expect(passed >= 10 * guestRate, `a guest was sent no more than ${passed}`);
  say(`tiers: mailboxes of one sending network took ${taken}; ${passed} of 60 at once to a guest`);
}

async function maintain(): Promise<void> {
  await operate("maintenance", { on: true, message: "ten minutes" }, "node.maintenance");
  const [one, two] = members;
  if (one === undefined || two === undefined) throw new Error("members are missing");
  const { status } = await write(one, two, "/cache/store");
  findings.expect(status === 503, `a write during maintenance is answered ${status}`);
  findings.expect((await pull(two)) !== null, "a read during maintenance is refused");
  await people.speak(...pairOf(2));
  await operate("maintenance", { on: false, message: null }, "node.maintenance");
}

async function announce(): Promise<void> {
  const text = "We move on Sunday.";
  const signed = await command("notice", "sign", text, ...asOperator);
  await operate("notice", { notice: JSON.parse(signed) }, "notices.publish");
  const shown = (await (await fetch(`${url}/node`)).json()) as { notice: { text: string } | null };
  findings.expect(shown.notice?.text === text, "the notice is not shown");
}

/**
 * A flood from the network of all people, by members of today: who is here for long still reports.
 */
async function floodReports(): Promise<void> {
  const crowd = await register(3, null, "flood");
  const { operator } = (await (await fetch(`${url}/node`)).json()) as { operator: { did: string } };
  const [one] = crowd;
  if (one === undefined) throw new Error("there is no crowd");
  const person = { ...one.person, did: operator.did as Member["person"]["did"] };
  const mailbox: Member = { ...one, person, mail: new Map() };
  const near = clientFrom("127.0.0.1", url);
  let last = await write(one, mailbox, "/cache/store", near);
  for (let i = 0; i < 2_000 && last.status === 202; i++)
    last = await write(any(crowd), mailbox, "/cache/store", near);
  near.close();
  // For an hour after days without a process, what has expired is not removed, and the answer may
  // wait for that.
  const { status, body } = last;
  const isFull = status === 507 || (status === 503 && body.includes("a store or a source"));
  findings.expect(isFull, `a flood of reports ends with ${status} ${body}`);
  const [by, about] = pairOf(4);
  await people.speak(about, by);
  await report(by, about, "in the middle of a flood");
  await checkReports();
}

// ------------------------------------------------------------------------------------ the last day

type Row = {
  readonly did: string;
  readonly invitation: string | null;
  readonly tier: string | null;
  readonly blocked: string | null;
  readonly waiting_entries: number;
  readonly last_seen: string | null;
};

async function allRows(): Promise<Map<string, Row>> {
  const rows = new Map<string, Row>();
  for (let after: unknown = null; ; ) {
    const { members: page, next } = await operate("members", { search: null, after });
    for (const row of page as Row[]) {
      findings.expect(!rows.has(row.did), `${row.did} is listed twice`);
      rows.set(row.did, row);
    }
    if (next === null) return rows;
    after = next;
  }
}

async function checkBooks(): Promise<void> {
  const waitingOf = new Map<string, number>();
  await each(members, async (one) => {
    waitingOf.set(one.person.did, await audit(one, findings));
  });
  // That a member was seen is noted after the answer.
  await Bun.sleep(1_000);
  const rows = await allRows();
  // Own devices have DIDs of their own, which are listed as those whose mailboxes the node keeps.
  const expected = members.length + people.all.length + 1;
  findings.expect(rows.size >= expected, `${rows.size} members are listed, and not ${expected}`);
  const today = new Date(Date.now()).toISOString().slice(0, 10);
  for (const { person, invitation, tier, blocked } of members) {
    const row = rows.get(person.did);
    const found = [row?.invitation, row?.tier, row?.blocked, row?.waiting_entries, row?.last_seen];
    const book = [invitation, tier, blocked ? "did" : null, waitingOf.get(person.did), today];
    findings.expect(Bun.deepEquals(found, book), `${person.did} is ${found}, and not ${book}`);
  }
  for (const { me, invitation } of people.all)
    findings.expect(rows.get(me.did)?.invitation === invitation.id, `${me.did} came otherwise`);
  await checkOperations(rows.size);
}

async function checkOperations(rows: number): Promise<void> {
  const listed = (await operate("invitations"))["invitations"] as { id: string; uses: Json[] }[];
  for (const { id, used } of invitations) {
    const uses = listed.find((one) => one.id === id)?.uses.length;
    findings.expect(uses === used, `invitation ${id} has ${uses} uses, and not ${used}`);
  }
  const blocked = ((await operate("blocks"))["blocks"] as { subject: string }[]).map(
    ({ subject }) => subject,
  );
  findings.expect(
    Bun.deepEquals(new Set(blocked), blocks),
    `${blocked.length} are blocked, and not ${blocks.size}`,
  );
  const { records } = await operate("audit", { user: null, action: null, about: null });
  const changes = Map.groupBy(records as { action: string; times: number }[], (one) => one.action);
  for (const [action, count] of done) {
    const found = (changes.get(action) ?? []).reduce((sum, { times }) => sum + times, 0);
    findings.expect(found === count, `the audit has ${found} of ${action}, and not ${count}`);
  }
  const unix = joinPath(stage.folder, "admin.sock");
  const metrics = await (await fetch("http://localhost/metrics", { unix })).text();
  const all = /^waypost_members\{seen="all"\} (\d+)$/m.exec(metrics)?.[1];
  findings.expect(Number(all) === rows, `metrics count ${all} members, and not ${rows}`);
  findings.expect(largestMib < 700, `the node had ${largestMib} MiB`);
}

/** One for each day, in this order; with fewer days several on one. */
const eventsOf = (mallory: Person): readonly (() => Promise<void>)[] => [
  async () => {
    for (const [i, one] of circle().slice(0, 4).entries()) {
      await people.speak(mallory, one);
      await report(one, mallory, `report ${i}`);
    }
    await checkReports();
  },
  junk,
  async () => {
    await command("storage", "backup", "--to", "backup");
    await people.loseDevice(pairOf(0)[0]);
  },
  checkTiers,
  async () => {
    await announce();
    const [reporter] = pairOf(0);
    await command("reports", "close", "--from", reporter.me.did, ...asOperator);
    reported.delete("report 0");
    await checkReports();
  },
  async () => {
    await maintain();
    await operate("notice", { notice: null }, "notices.publish");
  },
  async () => {
    const [open] = await listReports();
    await command(
      "reports",
      "block",
      open?.id ?? "",
      ...asOperator,
      "--socket",
      "admin.sock",
      "--yes",
    );
    note("blocks.change");
    blocks.add(mallory.me.did);
    await people.loseDevice(pairOf(1)[0]);
  },
];

const mallory = await dayOne();
say(`${members.length + people.all.length} members by ${invitations.length} invitations`);
const events = eventsOf(mallory);
const renamed = new Set<Member>();
for (let day = 1; day <= days; day++) {
  if (day > 1) {
    await nextDate(1);
    await register(joining, null, `day ${day}`);
  }
  await playDay(day);
  const one = any(members.filter((each) => !each.blocked && !renamed.has(each)));
  renamed.add(one);
  await changeAlias(one, `alias-${day}`);
  for (const event of events.filter((_, i) => Math.floor((i * days) / events.length) === day - 1))
    await event();
  await endDay(day);
}
// Who came on the first day has been here for a week now.
await nextDate(Math.max(1, 8 - days));
await floodReports();
await people.check();
await checkBooks();
say(
  `${counts.sent} sent, ${counts.pulled} pulls, ${counts.acked} acknowledged, ${blockedTries} tries of blocked ones`,
);
say(
  `${people.spoken.length} by the SDK, ${counts.unanswered} unanswered; refused: ${[...refusals].map(([name, count]) => `${name} ${count}`).join(", ")}`,
);
await Promise.all(people.all.map(({ me }) => me.close()));
await stage.node().kill("SIGTERM");
await command("storage", "verify");
for (const home of households) home.close();
await stage.close();
scratch.remove();
findings.exit();
