/**
 * A model outside the node, and the load that fills it: people register, change a service, store,
 * relay with and without a live session, pull and acknowledge, all at once. The model takes down
 * what was begun and what was answered; `audit` compares a node that has nothing in flight with it.
 * Whatever was answered must be there, nothing acknowledged may be back, nothing may be there twice
 * or that was never begun, and no proof that was taken may be taken again.
 */
import { randomBytes } from "node:crypto";
import { signIntent } from "../../src/client/identity/change.ts";
import { listenLive } from "../../src/client/net/connections.ts";
import { proofHeaders } from "../../src/client/net/reader.ts";
import {
  type Answered,
  acknowledgementOf,
  clientFrom,
  envelopeTo,
  type Findings,
  openStage,
  personAt,
  registrationOf,
  type Stage,
  type StageClient,
  type StageOptions,
  type StagePerson,
  signedBy,
} from "./stage.ts";

type Known = {
  readonly ciphertext: string;
  /**
   * `begun`: no answer came. `held`: the node has promised to keep it. `delivered`: a live session
   * has it.
   */
  state: "begun" | "held" | "delivered" | "acked" | "gone";
  /** An acknowledgement was begun whose answer never came. */
  unsure: boolean;
  isHidden: boolean;
};

type Member = {
  readonly person: StagePerson;
  readonly known: Map<string, Known>;
  /**
   * Values of the document counter: answered changes, and whether one more was begun. `late`: one
   * that was taken without an answer may be in the block after the audit.
   */
  changes: { answered: bigint; begun: bigint; late: bigint; txHash: string };
  live: AbortController | null;
};

type Begun = { readonly id: string; readonly known: Known; readonly text: string };

type TakenProof = { readonly ask: Parameters<StageClient["ask"]>[0] };

export type Counts = Record<
  "registered" | "changed" | "stored" | "relayed" | "live" | "pulled" | "acked",
  number
>;

export type ModelOptions = {
  readonly url: string;
  readonly people: number;
  readonly find: (finding: string) => void;
  /** The clock may jump over the life of what was submitted. */
  readonly mayExpire?: boolean;
  /** The longest pause between two steps of one caller: 30 ms by default. */
  readonly pauseMsMax?: number | undefined;
  /** Whether mailboxes can be read and emptied whenever an answer comes: also on a full disk. */
  readonly mustRead?: boolean | undefined;
  /** Of the content of a message: 20 KB by default. */
  readonly contentBytesMax?: number | undefined;
};

const pageEntries = 50;
const settleMs = 30_000;
/** Of a clock that may have ended what was pulled. */
const jumpMsMin = 12 * 3_600_000;
const proofsKept = 20;

/** What testers need besides the defaults: the load of one address stands for many. */
const wide = {
  directory: ["rate_limit_loopback = false"],
  relay: ["rate_limit_loopback = false", "recipient_rate = 100000"],
};

type LoadOptions = Pick<StageOptions, "store" | "env"> &
  Pick<ModelOptions, "pauseMsMax" | "mustRead" | "contentBytesMax"> & {
    /** Lines for the sections of the server and of the store. */
    readonly server?: readonly string[];
    readonly main?: readonly string[];
    /** Before anyone is registered. */
    readonly onStage?: (stage: Stage) => Promise<void>;
  };

/**
 * The executable with wide limits, and a model of that many people whose findings are taken down.
 */
export async function openLoad(
  people: number,
  findings: Findings,
  { server = [], main = [], ...options }: LoadOptions = {},
): Promise<{ stage: Stage; model: Model }> {
  const lines = { ...wide, server, "stores.main": main };
  const stage = await openStage({ ...options, lines });
  await options.onStage?.(stage);
  const model = new Model({
    url: stage.url,
    people,
    find: (finding) => findings.expect(false, finding),
    pauseMsMax: options.pauseMsMax,
    mustRead: options.mustRead,
    contentBytesMax: options.contentBytesMax,
  });
  await model.open();
  return { stage, model };
}

export class Model {
  readonly counts: Counts = {
    registered: 0,
    changed: 0,
    stored: 0,
    relayed: 0,
    live: 0,
    pulled: 0,
    acked: 0,
  };
  readonly refusals: Record<string, number> = {};
  /** Else what is pulled stays in the mailboxes. */
  acknowledges = true;
  private readonly members: Member[] = [];
  /** Registrations that were answered and not seen yet. */
  private readonly registered = new Set<string>();
  private readonly proofs: TakenProof[] = [];
  private readonly client: StageClient;
  private running = false;
  private workers: Promise<void>[] = [];

  constructor(private readonly options: ModelOptions) {
    this.client = clientFrom("127.0.0.1", options.url, 128);
  }

  async open(): Promise<void> {
    for (let i = 0; i < this.options.people; i++) {
      const person = await personAt(this.options.url);
      const { status, body } = await this.client.post(
        "/register-did",
        await registrationOf(person),
      );
      if (status !== 202) throw new Error(`a registration was answered with ${status} ${body}`);
      this.registered.add(person.did);
      this.members.push({
        person,
        known: new Map(),
        changes: { answered: 0n, begun: 0n, late: 0n, txHash: "" },
        live: null,
      });
    }
    await this.settleRegistrations();
  }

  /** Load from now on. Failures to reach the node are part of it. */
  start(): void {
    this.running = true;
    const each = this.members.flatMap((member) => [
      this.loop(() => this.store(member)),
      this.loop(() => this.relay(member)),
      this.loop(() => this.read(member)),
      this.loop(() => this.change(member)),
    ]);
    const some = this.members.slice(0, Math.ceil(this.members.length / 3));
    this.workers = [
      ...each,
      this.loop(() => this.register()),
      ...some.map((member) => this.listen(member)),
    ];
  }

  /** Resolves when nothing is in flight. */
  async stop(): Promise<void> {
    this.running = false;
    for (const member of this.members) member.live?.abort();
    await Promise.all(this.workers);
    this.workers = [];
  }

  close(): void {
    this.client.close();
  }

  /**
   * The node's clock has passed the life of everything that there is: until it is back, that need
   * not be seen.
   */
  hideAll(isHidden: boolean): void {
    for (const { known } of this.members) for (const one of known.values()) one.isHidden = isHidden;
  }

  private async loop(step: () => Promise<unknown>): Promise<void> {
    while (this.running) {
      await step();
      await Bun.sleep(Math.random() * (this.options.pauseMsMax ?? 30));
    }
  }

  private refused(what: string, { status, body }: Answered): void {
    // 0: the process was killed, which is what the campaign is for, or the connection had ended
    // beforehand.
    const why = /E[A-Z]{4,}|hang up/.exec(body)?.[0] ?? "";
    const code =
      status === 0 ? `unanswered ${why}` : `${status} ${/"code":"(\w+)"/.exec(body)?.[1] ?? ""}`;
    this.refusals[`${what} ${code}`] = (this.refusals[`${what} ${code}`] ?? 0) + 1;
    const mustAnswer = this.options.mustRead === true && (what === "pull" || what === "ack");
    const isOutage =
      ([503, 507].includes(status) && !mustAnswer) ||
      code.startsWith("502 chain_unavailable") ||
      (code.startsWith("502 cache_unavailable") && body.includes('"storage_full"'));
    if (status >= 500 && !isOutage) this.options.find(`${what}: ${status} ${body.slice(0, 200)}`);
  }

  // -------------------------------------------------------------------------------------- messages

  private randomBytes(): number {
    const { contentBytesMax = 20_000 } = this.options;
    return 12 + Math.floor(Math.random() ** 4 * contentBytesMax);
  }

  private async begin(member: Member, bytes = this.randomBytes()): Promise<Begun> {
    const sender = this.members[Math.floor(Math.random() * this.members.length)] as Member;
    const ciphertext = randomBytes(bytes).toString("base64");
    const timestamp = new Date(Date.now()).toISOString();
    const plain = envelopeTo(member.person, { payload: { ciphertext_b64: ciphertext }, timestamp });
    const envelope = Math.random() < 0.5 ? plain : signedBy(sender.person, plain);
    const known: Known = { ciphertext, state: "begun", unsure: false, isHidden: false };
    const id = String(envelope["message_id"]);
    member.known.set(id, known);
    return { id, known, text: JSON.stringify(envelope) };
  }

  private async store(member: Member, bytes?: number): Promise<void> {
    const { id, known, text } = await this.begin(member, bytes);
    const answer = await this.client.post("/cache/store", text);
    if (answer.status !== 202) return this.refused("store", answer);
    if (known.state === "begun") known.state = "held";
    this.counts.stored++;
    if (Math.random() > 0.1) return;
    const again = await this.client.post("/cache/store", text);
    if (again.status === 202 && JSON.parse(again.body).deduped !== true)
      this.options.find(`a repeat of ${id} counts as new`);
  }

  private async relay(member: Member): Promise<void> {
    const { id, known, text } = await this.begin(member);
    const answer = await this.client.post("/relay", text);
    if (answer.status < 200 || answer.status > 299) return this.refused("relay", answer);
    const { code } = JSON.parse(answer.body) as { code: string };
    this.counts.relayed++;
    if (code === "cached" && known.state === "begun") known.state = "held";
    // A session acknowledges before the Relay answers.
    if (code === "delivered" && known.state === "begun")
      this.options.find(`${id} was delivered to nobody`);
  }

  private async listen(member: Member): Promise<void> {
    while (this.running) {
      member.live = new AbortController();
      const reader = member.person.live;
      const onEnvelope = async ({
        messageId,
      }: {
        readonly messageId: string;
      }): Promise<boolean> => {
        const known = member.known.get(messageId);
        if (known === undefined) this.options.find(`${messageId} came live and was never sent`);
        else if (known.state === "begun") known.state = "delivered";
        this.counts.live++;
        return true;
      };
      const events = { onReady: () => undefined, onEnvelope };
      await listenLive(reader, "phone", events, member.live.signal).catch(() => undefined);
      await Bun.sleep(50 + Math.random() * 100);
    }
  }

  /** With nothing in flight: everything that waits is acknowledged. */
  async empty(): Promise<void> {
    for (const member of this.members)
      for (;;) {
        const pulledAtMs = Date.now();
        const page = await this.page(member, null);
        if (page === null || page.ids.length === 0) break;
        await this.acknowledge(member, page.ids, pulledAtMs);
      }
  }

  /** Stores a message of so many bytes until it is taken. */
  async takes(bytes: number, withinMs: number): Promise<void> {
    const { stored } = this.counts;
    const endsAtMs = performance.now() + withinMs;
    while (this.counts.stored === stored) {
      if (performance.now() > endsAtMs)
        return this.options.find(`a message of ${bytes} bytes is not taken after ${withinMs} ms`);
      await this.store(this.members[0] as Member, bytes);
      await Bun.sleep(100);
    }
  }

  /** Pulls a page, and acknowledges most of it. */
  private async read(member: Member): Promise<void> {
    const pulledAtMs = Date.now();
    const page = await this.page(member, null);
    if (page === null) return;
    this.counts.pulled++;
    for (const id of page.ids) this.checkHeld(member, id, page.ciphertexts.get(id) ?? "");
    const ids = page.ids.filter(() => Math.random() < 0.8);
    if (ids.length > 0 && this.acknowledges) await this.acknowledge(member, ids, pulledAtMs);
  }

  /**
   * What was pulled at a time. Only the ids that the answer names are acknowledged: the others had
   * ended by then.
   */
  private async acknowledge(
    member: Member,
    ids: readonly string[],
    pulledAtMs: number,
  ): Promise<void> {
    const before = ids.flatMap((id) => {
      const known = member.known.get(id);
      return known === undefined ? [] : [{ id, known, wasUnsure: known.unsure }];
    });
    for (const { known } of before) known.unsure = true;
    const body = JSON.stringify(await acknowledgementOf(member.person.reader, ids));
    const headers = { "content-type": "application/json" };
    const answer = await this.client.ask({ method: "POST", path: "/cache/ack", headers, body });
    if (answer.status !== 200) return this.refused("ack", answer);
    const hasJumped = Date.now() - pulledAtMs > jumpMsMin;
    for (const { id, known, wasUnsure } of before) {
      if (answer.body.includes(`"${id}"`)) {
        known.state = "acked";
        this.counts.acked++;
        continue;
      }
      known.unsure = wasUnsure;
      if (!wasUnsure && !hasJumped)
        this.options.find(`${id} was pulled, and its acknowledgement does not name it`);
    }
    this.keepProof({ ask: { method: "POST", path: "/cache/ack", headers, body } });
  }

  private keepProof(proof: TakenProof): void {
    this.proofs.push(proof);
    if (this.proofs.length > proofsKept) this.proofs.shift();
  }

  private checkHeld(member: Member, id: string, ciphertext: string): void {
    const known = member.known.get(id);
    if (known === undefined) this.options.find(`${id} was never sent`);
    else if (known.ciphertext !== ciphertext) this.options.find(`${id} is not what was sent`);
    else if (known.state === "acked") this.options.find(`${id} is back after its acknowledgement`);
    else if (known.state === "gone") this.options.find(`${id} is back after it was gone`);
  }

  private async page(member: Member, cursor: string | null): Promise<Page | null> {
    const query = `?limit=${pageEntries}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
    const headers = await proofHeaders(member.person.reader, "pull", "*");
    const path = `/cache/messages/${member.person.did}${query}`;
    const answer = await this.client.ask({ path, headers });
    if (answer.status !== 200) {
      this.refused("pull", answer);
      return null;
    }
    if (Math.random() < 0.05) this.keepProof({ ask: { path, headers } });
    const { messages, next_cursor: next = null } = JSON.parse(answer.body) as {
      messages: { message_id: string; envelope: { payload: { ciphertext_b64: string } } }[];
      next_cursor?: string | null;
    };
    const ciphertexts = new Map(
      messages.map((one) => [one.message_id, one.envelope.payload.ciphertext_b64]),
    );
    return { ids: messages.map((one) => one.message_id), ciphertexts, next };
  }

  // ------------------------------------------------------------------------------------- directory

  private async register(): Promise<void> {
    const person = await personAt(this.options.url);
    const answer = await this.client.post("/register-did", await registrationOf(person));
    if (answer.status !== 202) return this.refused("register", answer);
    this.counts.registered++;
    this.registered.add(person.did);
    if (this.registered.size > 50) await this.settleRegistrations();
  }

  private async settleRegistrations(): Promise<void> {
    const endsAtMs = performance.now() + settleMs;
    for (const did of this.registered) {
      for (let asked = 0; ; asked++) {
        const { status } = await this.client.ask({ path: `/resolve/${did}` });
        if (status === 200) break;
        if (asked % 20 === 19 && (await this.isOver(`/registration-status/${did}`))) break;
        if (performance.now() > endsAtMs) {
          if (this.workers.length > 0) return;
          this.options.find(`${did} was registered and is not there: ${status}`);
          break;
        }
        await Bun.sleep(50);
      }
      this.registered.delete(did);
    }
  }

  /** The endpoint of a service that says which change it was. */
  private async change(member: Member): Promise<void> {
    const { did, identity } = member.person;
    const { changes } = member;
    // Unanswered: once it is known that it was taken there is nothing to repeat. Of two with one
    // nonce one counts.
    if (
      changes.begun > changes.answered &&
      (await this.counterAt(member, changes.begun)) >= changes.begun
    )
      changes.answered = changes.begun;
    const nonce = changes.answered;
    const isRepeat = changes.begun > nonce;
    const service = {
      id: `${did}#extra`,
      type: "SvcExtraService",
      serviceEndpoint: [`https://example.com/${nonce}`],
      authorization: null,
      priority: null,
    };
    const action = nonce === 0n ? "AddService" : "UpdateService";
    const nowMs = Date.now();
    const signer = { keyId: "root", seed: identity.rootSeed };
    const submission = await signIntent({ action, did, service }, signer, { nonce, nowMs });
    changes.begun = nonce + 1n;
    const answer = await this.client.ask({
      ...submission,
      headers: { "content-type": "application/json" },
    });
    if (answer.status !== 202) {
      this.refused("change", answer);
      // A refusal is an answer: nothing was begun, but for what the first try may have begun.
      if (answer.status >= 400 && answer.status < 500 && !isRepeat) changes.begun = nonce;
      return;
    }
    changes.answered = nonce + 1n;
    changes.txHash = String(JSON.parse(answer.body).tx_hash);
    this.counts.changed++;
    await this.counterAt(member, changes.answered);
    await Bun.sleep(200);
  }

  /**
   * Where the clock may pass the end of what was signed: whether the node says that it failed for
   * that.
   */
  private async isOver(path: string): Promise<boolean> {
    if (this.options.mayExpire !== true) return false;
    const { status, body } = await this.client.ask({ path });
    return status === 200 && /"(failed|dropped|missing)"/.test(body);
  }

  /** Waits until the counter is there, for a while. */
  private async counterAt(member: Member, value: bigint): Promise<bigint> {
    const endsAtMs = performance.now() + (this.running ? 2_000 : settleMs);
    for (let asked = 0; ; asked++) {
      const { status, body } = await this.client.ask({ path: `/dids/${member.person.did}/nonces` });
      const counter = status === 200 ? BigInt(JSON.parse(body).document_nonce) : 0n;
      if (counter >= value || performance.now() > endsAtMs) return counter;
      if (
        !this.running &&
        asked % 20 === 19 &&
        (await this.isOver(`/submissions/${member.changes.txHash}`))
      )
        return counter;
      await Bun.sleep(50);
    }
  }

  // ----------------------------------------------------------------------------------------- audit

  /** Compares everything, with nothing in flight, and settles what no answer came for. */
  async audit(): Promise<void> {
    await this.settleRegistrations();
    await this.auditMailboxes();
    for (const member of this.members) await this.auditChanges(member);
    for (const { ask } of this.proofs.splice(0)) {
      const { status, body } = await this.client.ask(ask);
      // 401: its time is over.
      if (status !== 409 && status !== 401)
        this.options.find(
          `a proof that was taken is answered with ${status} ${body.slice(0, 100)}`,
        );
    }
  }

  /** The same of what waits for recipients alone. */
  async auditMailboxes(): Promise<void> {
    for (const member of this.members) await this.auditMailbox(member);
  }

  private async auditMailbox(member: Member): Promise<void> {
    const seen = new Set<string>();
    for (let cursor: string | null = null, more = true; more; ) {
      const page: Page | null = await this.page(member, cursor);
      if (page === null)
        return this.options.find(`the mailbox of ${member.person.did} can't be read`);
      for (const id of page.ids) {
        if (seen.has(id)) this.options.find(`${id} is there twice`);
        seen.add(id);
        this.checkHeld(member, id, page.ciphertexts.get(id) ?? "");
      }
      cursor = page.next;
      more = cursor !== null;
    }
    for (const [id, known] of member.known) {
      const isThere = seen.has(id);
      if (known.isHidden && !isThere && known.state !== "acked") continue;
      if (known.state === "held" && !isThere && !known.unsure)
        this.options.find(`${id} was answered and is lost`);
      if (!isThere && known.state !== "acked") known.state = "gone";
      if (isThere && known.state === "begun") known.state = "held";
      known.unsure = false;
      if (known.state === "gone" || known.state === "acked") this.forget(member, id);
    }
  }

  /** What is over is remembered for a while: it must not come back. */
  private forget(member: Member, id: string): void {
    if (member.known.size > 5_000) member.known.delete(id);
  }

  private async auditChanges(member: Member): Promise<void> {
    const { changes, person } = member;
    const counter = await this.counterAt(member, changes.answered);
    if (counter < changes.answered && !(await this.isOver(`/submissions/${changes.txHash}`)))
      this.options.find(`change ${changes.answered - 1n} of ${person.did} is lost`);
    if (counter > changes.begun && counter > changes.late)
      this.options.find(`${person.did} has ${counter} changes of ${changes.begun}`);
    const { body } = await this.client.ask({ path: `/resolve/${person.did}` });
    const shown = /https:\/\/example\.com\/(\d+)/.exec(body)?.[1];
    if (counter > 0n && shown !== String(counter - 1n))
      this.options.find(`${person.did} shows ${shown} at ${counter}`);
    changes.late = changes.begun;
    changes.answered = counter;
    changes.begun = counter;
  }
}

type Page = {
  readonly ids: readonly string[];
  readonly ciphertexts: ReadonlyMap<string, string>;
  readonly next: string | null;
};
