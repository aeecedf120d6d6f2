/**
 * A Directory that lies at random: it repeats old answers, answers about somebody else, changes
 * members, bytes and statuses, and swallows changes, while people write to each other, replace keys
 * and root keys, and start anew, half of them with a policy. Anyone who runs it also has an
 * identity of their own, Eve, whose keys it offers instead of others'. A finding is an envelope
 * that the recipient can't open, a forged sender who is verified, a failure that has no code, and
 * whatever doesn't work once the Directory is honest again: a key that no one holds, or a message
 * that doesn't arrive.
 *
 * `bun test/campaigns/liar.ts --rounds 50` ends with 1 on a finding. `--canary`: the people have
 * random DIDs, of which nothing is proven, and that must be found.
 */
import { parseArgs } from "node:util";
import { attempt, ClientError, localError } from "../../src/client/base/failure.ts";
import { inForce, nextIdentity, publishKeys } from "../../src/client/identity/new-keys.ts";
import { x25519PublicKey } from "../../src/client/keys/crypto.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { agreementSecrets, parseIdentity, renderIdentity } from "../../src/client/keys/keys.ts";
import { changeIdentity, type EditIdentity } from "../../src/client/keys/stored.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { openEnvelope, recipientOf } from "../../src/client/mail/retrieve.ts";
import { buildEnvelope } from "../../src/client/mail/send.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderAgreementKey, utf8 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../src/core/codec/json.ts";
import { policyOf } from "../support/lie-stage.ts";
import { startLogPair } from "../support/log-nodes.ts";
import { keyFiles } from "../support/logs.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "50" },
    people: { type: "string", default: "4" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    canary: { type: "boolean", default: false },
  },
});

let state = Number(values.seed);
/** Mulberry32: a run is repeated by its seed, as far as the order of requests is the same. */
function random(): number {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;

const findings: string[] = [];
const counts: Record<string, number> = {};
const count = (what: string) => {
  counts[what] = (counts[what] ?? 0) + 1;
};

// ---------------------------------------------------------------------------------------- the liar

const files = keyFiles();
const made = await startLogPair("liar", files.fileOf);
const real = made.nodes.url;
/** How often a request is answered with a lie. */
let lying = 0;

type Answer = {
  readonly status: number;
  readonly type: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
};
type Asked = { readonly path: string; readonly kind: string; readonly place: string };

/** True answers, the newest last: of each path and query, and of each kind of path. */
const told = {
  same: new Map<string, Answer[]>(),
  kind: new Map<string, { asked: Asked; answer: Answer }[]>(),
};
const toldMax = 30;

const didForm = /did:svc:[1-9A-HJ-NP-Za-km-z]+/g;
const kindOf = (path: string) =>
  path.replace(didForm, "DID").replace(/\/[0-9a-f]{64}$|\/0x[0-9a-f]+$/, "/HEX");

function remember(asked: Asked, answer: Answer): void {
  const same = told.same.get(asked.path) ?? [];
  told.same.set(asked.path, [...same.slice(-toldMax), answer]);
  const kind = told.kind.get(asked.kind) ?? [];
  told.kind.set(asked.kind, [...kind.slice(-toldMax), { asked, answer }]);
}

const jsonAnswer = (status: number, json: object): Answer => ({
  status,
  type: "application/json",
  bytes: utf8(JSON.stringify(json)) as Uint8Array<ArrayBuffer>,
});
const refusals = [
  [404, "did_not_found"],
  [404, "alias_not_found"],
  [404, "not_found"],
  [404, "component_not_found"],
  [422, "did_deactivated"],
  [503, "chain_unavailable"],
  [409, "nonce_mismatch"],
] as const;

type Lie = (honest: Answer, asked: Asked) => Answer | null;

/** `null`: it has none of this form for the question. */
const lies: Readonly<Record<string, Lie>> = {
  "an old answer": (_, { path }) => pick(told.same.get(path) ?? []) ?? null,
  "another's answer": (_, { path, kind }) => {
    const others = (told.kind.get(kind) ?? []).filter((one) => one.asked.path !== path);
    return pick(others)?.answer ?? null;
  },
  "another's answer under this name": (_, { path, kind }) => {
    const others = (told.kind.get(kind) ?? []).filter((one) => one.asked.path !== path);
    const [other, did] = [pick(others), path.match(didForm)?.[0]];
    const their = other?.asked.path.match(didForm)?.[0];
    if (other === undefined || did === undefined || their === undefined) return null;
    const text = new TextDecoder().decode(other.answer.bytes);
    if (!other.answer.type.includes("json")) return other.answer;
    return { ...other.answer, bytes: utf8(text.replaceAll(their, did)) as Uint8Array<ArrayBuffer> };
  },
  "Eve's keys": (honest) => {
    if (!honest.type.includes("json")) return null;
    const text = new TextDecoder()
      .decode(honest.bytes)
      .replace(/z6LS[1-9A-HJ-NP-Za-km-z]+/g, eveKey);
    return { ...honest, bytes: utf8(text) as Uint8Array<ArrayBuffer> };
  },
  "a changed member": (honest) => {
    const json: unknown = honest.type.includes("json")
      ? JSON.parse(new TextDecoder().decode(honest.bytes))
      : null;
    return isJsonObject(json as JsonValue)
      ? jsonAnswer(honest.status, changed(json as JsonObject))
      : null;
  },
  "changed bytes": (honest) => {
    if (honest.type.includes("json") || honest.bytes.length === 0) return null;
    const at = Math.floor(random() * honest.bytes.length);
    const flipped = honest.bytes.with(
      at,
      (honest.bytes[at] ?? 0) ^ (1 << Math.floor(random() * 8)),
    );
    return {
      ...honest,
      bytes: pick([flipped, honest.bytes.slice(0, at), new Uint8Array(0)]).slice(),
    };
  },
  "a refusal": () => {
    const [status, code] = pick(refusals);
    return jsonAnswer(status, { code, detail: "so it says" });
  },
};

/** One member, at any depth, is missing, of another value or of another type. */
function changed(json: JsonObject): JsonObject {
  const names = Object.keys(json);
  const name = pick(names);
  if (name === undefined) return json;
  const value = json[name] as JsonValue;
  if (Array.isArray(value) && value.length > 0 && random() < 0.7)
    return {
      ...json,
      [name]: value
        .map((one) => (isJsonObject(one) ? changed(one) : one))
        .slice(random() < 0.3 ? 1 : 0),
    };
  if (isJsonObject(value) && random() < 0.8) return { ...json, [name]: changed(value) };
  const { [name]: _, ...rest } = json;
  return pick<JsonObject>([
    rest,
    { ...json, [name]: null },
    { ...json, [name]: other(value) },
    { ...json, [name]: 7 },
  ]);
}

function other(value: JsonValue): JsonValue {
  if (typeof value === "boolean") return !value;
  if (typeof value === "number") return pick([0, -1, value + 1, value - 1, 2 ** 53]);
  if (typeof value !== "string") return null;
  if (/^\d+$/.test(value)) return String(BigInt(value) + BigInt(pick([1, -1, 1_000])));
  return pick([eve.did, "", `${value}x`, renderIdentity(eve.identity).slice(0, 64), eveKey]);
}

/**
 * Answers to changes: it may take them and do nothing, do them and say otherwise, or do them twice.
 */
async function answerChange(request: Request, asked: Asked): Promise<Answer> {
  const body = await request.bytes();
  const post = () => forward(request, asked, body);
  if (random() >= lying) return post();
  const before = told.kind.get(`${request.method} ${asked.kind}`) ?? [];
  const way = pick(["swallowed", "done and refused", "done twice", "refused"]);
  count(`changes ${way}`);
  const [status, code] = pick(refusals);
  const refusal = jsonAnswer(status, { code, detail: "so it says" });
  if (way === "swallowed" && before.length > 0) return pick(before).answer;
  if (way === "refused" || way === "swallowed") return refusal;
  const honest = await post();
  return way === "done twice" ? post() : random() < 0.5 ? refusal : honest;
}

async function forward(
  request: Request,
  { place }: Asked,
  body: BodyInit | null = null,
): Promise<Answer> {
  const headers = Object.fromEntries(request.headers);
  const answer = await fetch(`${real}${place}`, {
    method: request.method,
    headers,
    body,
  });
  return {
    status: answer.status,
    type: answer.headers.get("content-type") ?? "",
    bytes: await answer.bytes(),
  };
}

async function answerRequest(request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const path = decodeURIComponent(pathname);
  const asked = { path, kind: kindOf(path), place: `${pathname}${search}` };
  const isRead = request.method === "GET";
  const honest = isRead ? await forward(request, asked) : await answerChange(request, asked);
  let answer = path === "/limits" && values.canary ? withoutProofs(honest) : honest;
  if (isRead && random() < lying) {
    const what = pick(Object.keys(lies));
    const lie = lies[what]?.(honest, asked) ?? null;
    if (lie !== null) count(what);
    answer = lie ?? honest;
  }
  if (honest.status < 300)
    remember(isRead ? asked : { ...asked, kind: `${request.method} ${asked.kind}` }, honest);
  return new Response(answer.bytes, {
    status: answer.status,
    headers: { "content-type": answer.type },
  });
}

function withoutProofs(limits: Answer): Answer {
  return jsonAnswer(200, {
    ...JSON.parse(new TextDecoder().decode(limits.bytes)),
    self_certifying_dids: false,
  });
}

const directory = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 60,
  fetch: answerRequest,
});
const directoryUrl = `http://127.0.0.1:${directory.port}`;

// --------------------------------------------------------------------------------------- the Relay

/** Envelopes on their way to the honest Relay, each opened with the keys of its recipient. */
const fetchHonest = globalThis.fetch;
globalThis.fetch = Object.assign(async (input: Request | string | URL, init?: RequestInit) => {
  const isEnvelope = init?.method === "POST" && String(input).startsWith(`${real}/relay/`);
  if (isEnvelope) await judge(await new Response(init.body as BodyInit).bytes());
  return fetchHonest(input, init);
}, fetchHonest);

async function judge(body: Uint8Array): Promise<void> {
  const envelope = JSON.parse(new TextDecoder().decode(body));
  const to = people.find(({ did }) => did === envelope.to);
  const identity =
    to === undefined ? null : parseIdentity((await to.keys.load("default")) ?? "", "default");
  if (identity === null)
    return void (envelope.to === eve.did || findings.push(`sealed to ${envelope.to}`));
  count("envelopes");
  const secretsOf = (keyId: string) => agreementSecrets(identity, keyId);
  const opened = openEnvelope(envelope, {
    did: identity.did,
    secretsOf,
    senderOf: async () => null,
  });
  await opened.catch((error: Error) =>
    findings.push(`${identity.did} can't open what was sealed: ${error.message}`),
  );
}

// ------------------------------------------------------------------------------------------ people

const waiting = { timeoutMs: 1_500, intervalMs: 20 };
const eve = await Waypost.open({ url: real, keys: memoryKeys(), rotateMs: false });
const eveKey = renderAgreementKey(
  await x25519PublicKey(eve.identity.agreements[0]?.secret as Uint8Array),
);

type Person = {
  readonly did: Did;
  readonly keys: KeyStore;
  readonly policy: string | undefined;
  me: Waypost;
};

async function openPerson({ keys, policy }: Omit<Person, "me" | "did">): Promise<Waypost> {
  const places = { url: real, directoryUrl, keys, waiting };
  const options = { ...places, rotateMs: 0, allowRandom: values.canary };
  const me = await Waypost.open({ ...options, ...(policy === undefined ? {} : { policy }) });
  me.on((event) => {
    if (event.type === "failed") isCoded(event.error, event.what);
    else count(event.type);
  });
  return me;
}

function isCoded(error: unknown, what: string): boolean {
  if (error instanceof ClientError) count(`${error.code}`);
  else findings.push(`${what}: ${error instanceof Error ? error.stack : error}`);
  return error instanceof ClientError;
}

async function newPerson(index: number): Promise<Person> {
  const hasPolicy = index % 2 === 0 && !values.canary;
  const [keys, policy] = [memoryKeys(), hasPolicy ? policyOf(made.cosigner) : undefined];
  const me = await openPerson({ keys, policy });
  return { keys, policy, me, did: me.did };
}

const people: Person[] = [];
for (let index = 0; index < Number(values.people); index++) people.push(await newPerson(index));

async function send(from: Person, to: Person): Promise<void> {
  await from.me.send(to.did, `from ${from.did}`, { retries: 0 });
  count("sent");
}

/** Eve signs as somebody else, with the keys that the Directory may show as theirs. */
async function forge(by: Person, to: Person): Promise<void> {
  const facts = {
    name: "message",
    mediaType: "text/plain",
    sizeBytes: 1,
    sha256: new Uint8Array(32),
  };
  const sender = { did: by.did, keyId: `${by.did}#root`, seed: eve.identity.rootSeed };
  const plan = await planSend(eve.client, to.did, facts, { sender });
  const { body } = await buildEnvelope(plan, 0, new Uint8Array(1));
  const envelope = JSON.parse(new TextDecoder().decode(body));
  const opened = await openEnvelope(envelope, recipientOf(to.me.client, to.me.identity));
  count("forged");
  if (opened.from?.verified === true) findings.push(`${to.did} takes Eve for ${by.did}`);
}

async function replaceRoot(person: Person): Promise<void> {
  // What the opening before still does in the background stores secrets too.
  const change = (edit: EditIdentity) => changeIdentity(person.keys, person.me.identity, edit);
  await change((stored) => nextIdentity(stored, Date.now()));
  person.me = await openPerson(person);
  const published = await publishKeys(person.me.client, person.me.identity, { waiting });
  await change((stored) => inForce(stored, published));
  person.me = await openPerson(person);
  count("root keys replaced");
}

const steps: readonly ((one: Person, another: Person) => Promise<unknown>)[] = [
  send,
  send,
  send,
  forge,
  ({ me }) => me.rotate(),
  ({ me }) => me.watch(),
  replaceRoot,
  async (one) => {
    one.me = await openPerson(one);
  },
  ({ me }, { did }) => me.fingerprint(did),
];

async function step(): Promise<void> {
  const one = pick(people);
  const another = pick(people.filter((other) => other !== one));
  try {
    await pick(steps)(one, another);
  } catch (error) {
    isCoded(error, "a step");
  }
}

// ------------------------------------------------------------------------------------ being honest

/**
 * Of the people, whose clocks are ahead of the nodes' then: what was signed and swallowed may hold
 * for five minutes.
 */
const honestNow = Date.now;
let aheadMs = 0;
Date.now = () => honestNow() + aheadMs;
const lifeMs = 301_000;

/** Everybody finds the way back by themselves, and everybody reaches everybody. */
async function recover(): Promise<void> {
  for (const person of people) await renewed(person);
  for (const from of people) for (const to of people) if (from !== to) await reach(from, to);
}

/**
 * The same call as the one that was said to be refused waits for its block; another one until that
 * has expired.
 */
async function renewed(person: Person): Promise<void> {
  for (let tries = 1; ; tries++) {
    const failure = await attempt(() => renew(person));
    if (!(failure instanceof ClientError)) return;
    if (tries === 20 || !["change_pending", "nonce_mismatch"].includes(failure.code)) throw failure;
    count(`renewals after ${failure.code}`);
    // Once is enough for all that was signed before; an honest call that is late on a busy machine
    // is waited for.
    if (failure.code === "change_pending") aheadMs = lifeMs;
    await Bun.sleep(50);
  }
}

/** Does what an interrupted change left, and replaces the key that others seal to. */
async function renew(person: Person): Promise<void> {
  person.me = await openPerson(person);
  // The opening ends what was interrupted; a call that was signed and swallowed holds it up until
  // it has expired.
  if (person.me.identity.nextRootSeed !== null)
    throw localError("change_pending", `${person.did} has not ended a replacement of its keys`);
  const rotated = new Promise<void>((resolve, reject) =>
    person.me.on((event) => {
      if (event.type === "rotated") resolve();
      if (event.type === "failed") reject(event.error);
      if (event.type === "stranger_change")
        reject(new Error("nobody holds the key that others seal to"));
    }),
  );
  await Promise.all([rotated, person.me.rotate()]);
  await person.me.watch();
}

/**
 * New keys need a new bundle, for which a node looks every ten seconds; who has a store waits by
 * itself.
 */
async function sendSoon(from: Person, to: Person) {
  for (let tries = 0; ; tries++) {
    const sent = await attempt(() => from.me.send(to.did, "the truth"));
    if (!(sent instanceof ClientError)) return sent;
    if (sent.code !== "key_bundle_missing" || tries === 60) throw sent;
    count("sent again for a bundle");
    await Bun.sleep(500);
  }
}

async function reach(from: Person, to: Person): Promise<void> {
  const { id } = await sendSoon(from, to);
  for await (const message of to.me.messages()) {
    await message.ack();
    if (message.id !== id) continue;
    if (message.verified !== true)
      findings.push(`${to.did} does not verify ${from.did}: ${message.distrusted}`);
    break;
  }
  count("reached");
}

for (let round = 1; round <= Number(values.rounds) && findings.length === 0; round++) {
  lying = pick([0.02, 0.1, 0.3, 0.7]);
  for (let n = 0; n < 12 && findings.length === 0; n++) await step();
  lying = 0;
  try {
    await recover();
  } catch (error) {
    findings.push(`round ${round}, honest again: ${error instanceof Error ? error.stack : error}`);
  }
  if (round % 10 === 0) console.log(`${round} rounds; ${JSON.stringify(counts)}`);
}

console.log(`seed ${values.seed}: ${JSON.stringify(counts)}; ${findings.length} findings`);
for (const finding of findings.slice(0, 20)) console.log(finding);
await Promise.all([...people.map(({ me }) => me.close()), eve.close()]);
await Promise.all([directory.stop(true), made.nodes.stop(), made.witness.stop()]);
files.remove();
process.exit(findings.length === 0 ? 0 : 1);
