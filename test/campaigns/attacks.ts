/**
 * The attacks that once succeeded against what stands around an identity's keys: devices,
 * guardians, backups, names, the log, groups. Those that need no more than the SDK are played
 * against it as others get it: built, packed, installed, in another runtime, at real nodes, behind
 * a Directory and Relay that lie (`attacks-program.mjs`). The others are played by the tests that
 * they are named with, and an attack without its test is a finding.
 *
 * `bun test/campaigns/attacks.ts [--only packed|tests]` prints a table, and ends with 1 when an
 * attack wins, with 2 without a runtime. `--canary`: one is played where it has to win, and that
 * must be found.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { command, findRuntimes, installPackedSdk, place } from "../e2e/packed-sdk.ts";
import { startTestNodes } from "../support/nodes.ts";
import { Findings } from "./stage.ts";

const { values } = parseArgs({
  options: { only: { type: "string" }, canary: { type: "boolean", default: false } },
});
const findings = new Findings();
/** Played with a random DID, of which a Directory can say what it likes. */
const canary = "H1 an identity is made under a lie in /limits";
const row = (isHeld: boolean, name: string, came: string) => {
  console.log(`${isHeld ? "held" : "WON "}  ${name.padEnd(72)}  ${came}`);
  findings.expect(isHeld !== (values.canary && name === canary), `${name}: ${came}`);
};

// ---------------------------------------------------------------------------------------- by tests

type ByTest = readonly [attack: string, file: string, test: string];

const byTests: readonly ByTest[] = [
  [
    "C1 who has the keys of a device's DID reads files",
    "http/own-world.test.ts",
    "who has the keys of a device's DID, as a Directory may that lies about it, reads no file of the identity",
  ],
  [
    "C2 a device is named to one other device alone",
    "http/own-world.test.ts",
    "a device that a thief names to one device is shown to all, and gone with the thief",
  ],
  [
    "C2 a push subscription outlives its device",
    "http/push-devices.test.ts",
    "no subscription of a removed device, or of who had its keys, stays, and the others' do",
  ],
  [
    "H2 a document by the key before shows the same fingerprint",
    "http/fingerprints.test.ts",
    "a document by the key before a rotation makes another fingerprint than the person sees",
  ],
  [
    "H2 a fork with a removed method shows the same fingerprint",
    "http/fingerprints.test.ts",
    "a fork from before a method was removed makes another one, also when the method removes itself",
  ],
  [
    "H2 who is distrusted has no fingerprint to compare",
    "http/fingerprints.test.ts",
    "a distrusted person's fingerprint shows what it was and is, and comparing it is the remedy",
  ],
  [
    "H2 a random DID has the fingerprint that a Directory chooses",
    "http/fingerprints.test.ts",
    "a random DID has no fingerprint",
  ],
  [
    "H3 a Cache delivers a signed message a second time",
    "unit/client/mail/retrieve.life.test.ts",
    "a signed message is over at its time, and remembered three days longer",
  ],
  [
    "M6 an unsigned message comes four times",
    "unit/client/mail/retrieve.life.test.ts",
    "an unsigned message is the same whatever its unsigned members say",
  ],
  [
    "H4 former guardians put their shares together",
    "http/client-found.test.ts",
    "dismissed guardians can't combine their shares, and a share counts when it was acknowledged",
  ],
  [
    "M2 a removed member takes the next one in",
    "http/client-statements.test.ts",
    "a member who was removed takes nobody in, and what only the maker may sign counts from nobody else",
  ],
  [
    "M3a a head of an empty log proves an entry",
    "vectors/log.test.ts",
    "an empty tree includes nothing, whatever a proof of it has",
  ],
  [
    "M3b one witness counts twice in a policy",
    "http/lying-log.test.ts",
    "is demanded only with a policy, which must name witnesses",
  ],
  [
    "M5 a random DID begins like a self-certifying one",
    "http/closed-house.test.ts",
    "no name but a self-certifying one begins like it",
  ],
  [
    "M5 two people without names look the same",
    "unit/web/text.test.ts",
    "people without a name are told apart by eighteen characters",
  ],
  [
    "M3 what the log contradicts is sealed to without a word",
    "http/lying-log.test.ts",
    "whoever names witnesses sends to nobody whom they have not seen, unless a message says otherwise",
  ],
  [
    "M3 a log begins anew and goes on",
    "http/lying-log.test.ts",
    "begins its log anew and names the lost head: log_restarted, until the user forgets the log; without it log_forked",
  ],
  [
    "an alias names a person whom nobody has registered",
    "http/lying-directory.test.ts",
    "an alias that names nobody is not remembered, so that the true answer counts",
  ],
  [
    "P2 a change without knowing it undoes a removal",
    "http/client-statements.test.ts",
    "of two devices that change a group apart none undoes a removal, and nothing is sealed to who was removed",
  ],
  [
    "P3 a new device files what it can't place",
    "http/own-world.test.ts",
    "a new device files nothing before it knows people, blocks and groups, and shows whose it is",
  ],
  [
    "P4 a member suppresses others' messages by their ids",
    "http/client-names.test.ts",
    "a member who says something else under the ids of the others' messages keeps none of them away",
  ],
  [
    "an answer quotes other words of the same id",
    "http/client-names.test.ts",
    "an answer quotes what it answers, whoever has called other words by the same id",
  ],
  [
    "a device that the user has not seen gets the new keys",
    "http/client-removed.test.ts",
    "a device that another one lists after the user has looked stays in no new keys",
  ],
  [
    "a removed device leaves the document in a form that can't be replaced",
    "http/own-forms.test.ts",
    "a removal gives the own components their forms again: withStrangeTypes",
  ],
  [
    "a removed device's hand-over is signed again under the new keys",
    "http/own-groups.test.ts",
    "a hand-over that a removed device showed to one device alone ends with the keys",
  ],
  [
    "a removed device freezes an own group",
    "http/own-groups.test.ts",
    "what a device of a thief says of a time to come keeps no own group as it is, nor a wish to hand it over",
  ],
  [
    "a removed device takes another's group elsewhere",
    "http/own-groups.test.ts",
    "a linked device of a thief leaves no one in another's group, and takes it nowhere else",
  ],
  [
    "M8 a profile's picture of 24 KB takes a gigabyte",
    "unit/web/picture-size.test.ts",
    "a picture of a few bytes that stands for a gigabyte of pixels is not drawn, in a profile nor in a conversation",
  ],
  [
    "a removal by an admin who doesn't know of a hand-over is undone",
    "http/restored-groups.test.ts",
    "whom a restored admin takes out days after a hand-over that it does not know is out under the next admin, and the user is told",
  ],
];

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

async function playTests(): Promise<void> {
  for (const file of new Set(byTests.map(([, one]) => one))) {
    const here = byTests.filter(([, one]) => one === file);
    const names = here.map(([, , test]) => escaped(test)).join("|");
    const child = Bun.spawn(
      [process.execPath, "test", "--timeout", "120000", join("test", file), "-t", names],
      { cwd: join(import.meta.dir, "..", ".."), stdout: "pipe", stderr: "pipe" },
    );
    const printed = await new Response(child.stderr).text();
    const lines = printed.split("\n");
    for (const [attack, , test] of here) {
      const isHeld = lines.some((line) => line.startsWith("(pass)") && line.includes(test));
      row(isHeld, attack, isHeld ? file : `${file}: its test failed, or is gone`);
    }
  }
}

// ---------------------------------------------------------------------------------- the packed SDK

type Lie = {
  readonly limits?: object;
  /** Of delivery resolutions. */
  readonly key?: object;
  /** Base64 by DID. */
  readonly proofs?: Readonly<Record<string, string>>;
  readonly dateMs?: number;
};

/** In front of real nodes. `POST /lie` says what it changes from then on. */
function liarBefore(url: string) {
  let lie: Lie = {};
  return Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 60,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      if (pathname === "/lie") {
        lie = (await request.json()) as Lie;
        return new Response("ok");
      }
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.bytes();
      const real = await fetch(`${url}${pathname}${search}`, { method, headers, body });
      return answer(decodeURIComponent(pathname), real, lie);
    },
  });
}

async function answer(path: string, real: Response, lie: Lie): Promise<Response> {
  const date = lie.dateMs === undefined ? {} : { date: new Date(lie.dateMs).toUTCString() };
  const [, proved] = /^\/dids\/([^/]+)\/proof$/.exec(path) ?? [];
  const proof = lie.proofs?.[proved ?? ""];
  if (proof !== undefined) return new Response(Buffer.from(proof, "base64"));
  if (!real.ok || !real.headers.get("content-type")?.includes("json"))
    return new Response(await real.bytes(), { status: real.status, headers: real.headers });
  const json = (await real.json()) as Record<string, unknown>;
  const [, resolved] = /^\/delivery-resolution\/(.+)$/.exec(path) ?? [];
  const shown = lie.proofs?.[resolved ?? ""];
  // `null`: it has no such member.
  const left = Object.entries(lie.limits ?? {}).filter(([, value]) => value === null);
  if (path === "/limits") for (const [name] of left) delete json[name];
  const given = Object.entries(lie.limits ?? {}).filter(([, value]) => value !== null);
  const changed = {
    ...json,
    ...(path === "/limits" ? Object.fromEntries(given) : {}),
    ...(resolved === undefined ? {} : lie.key),
    ...(shown === undefined ? {} : { key_proof: shown }),
  };
  return Response.json(changed, { status: real.status, headers: date });
}

async function playPacked(): Promise<void> {
  const runtimes = findRuntimes().filter(({ name }) => name.startsWith("node "));
  const runtime = runtimes.find(({ command: words }) => words !== null);
  if (runtime === undefined || runtime.command === null) {
    console.log("skipped: no second runtime, `bun run runtimes:setup` brings one");
    process.exit(2);
  }
  const [sdk, nodes] = await Promise.all([installPackedSdk(), startTestNodes()]);
  const program = place(sdk, "test/campaigns/attacks-program.mjs", "attacks-program.mjs");
  const liar = liarBefore(nodes.url);
  const printed = await command([...runtime.command, program], sdk.folder, {
    WAYPOST_URL: nodes.url,
    WAYPOST_LIAR: `http://127.0.0.1:${liar.port}`,
    WAYPOST_CANARY: values.canary ? "1" : "0",
  });
  const lines = printed.trim().split("\n");
  for (const line of lines) {
    const { name, came, isHeld } = JSON.parse(line);
    row(isHeld, name, `${came}, ${runtime.name}`);
  }
  findings.expect(lines.length === playedCount, `${lines.length} of ${playedCount} were played`);
  await liar.stop(true);
  await nodes.stop();
  sdk.remove();
}

/** In `attacks-program.mjs`. */
const playedCount = 15;

if (values.only !== "tests") await playPacked();
if (values.only !== "packed") await playTests();
findings.exit();
