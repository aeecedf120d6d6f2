/**
 * The nodes and the folder of the keys that a command of a client works with: flags win over the
 * environment (`WAYPOST_URL` and its siblings), and that over the defaults of the development mode.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { failed } from "../app/failure.ts";
import type { WaypostOptions } from "../client/identity/opening.ts";
import { memoryOf } from "../client/keys/key-stores.ts";
import type { Identity } from "../client/keys/keys.ts";
import type { WaypostEvent } from "../client/mail/message.ts";
import { type Waiting, waitingDefault } from "../client/net/directory.ts";
import { type Client, connect, lookUp } from "../client/trust/client.ts";
import { parseLogPolicy } from "../client/trust/log.ts";
import { strangerIn } from "../client/trust/own.ts";
import { Waypost } from "../client/waypost.ts";
import { defaultKeysFolder, fileKeys, listIdentities, loadIdentity } from "./files/files.ts";
import { homeOf, nodeUrls, saveHome } from "./files/home.ts";

/** Where `waypost dev` and the examples listen. */
export const urlDefault = "http://127.0.0.1:7400";

export type SessionFlags = {
  readonly url?: string;
  readonly directory?: string;
  readonly relay?: string;
  readonly cache?: string;
  readonly keys?: string;
  readonly policy?: string;
  readonly json?: boolean;
  readonly as?: string;
  readonly timeout?: number;
};

/** Where a command prints. */
export type CommandReport = {
  /** Replaces the progress line. Prints nothing with `--json` and without a terminal. */
  readonly progress: (text: string) => void;
  /** A line on standard error in addition to the result; nothing with `--json`. */
  readonly note: (text: string) => void;
  /** The same, with `--json` too. */
  readonly warn: (warning: { readonly type: string; readonly text: string }) => void;
  /**
   * A result, with `--json` as one line. A command that runs until it is
   * interrupted prints several.
   */
  readonly result: (value: unknown, text: string) => void;
  readonly end: () => void;
};

const strangerWarning = (what: string) => ({
  type: "stranger_change",
  text: `somebody else has changed this identity: ${what.replaceAll("_", " ")}; warn your correspondents over another channel`,
});

/**
 * What an opened identity reports in addition to the result. What a Cache lacks is in
 * the results of `receive`.
 */
function reportEvent(report: CommandReport, event: WaypostEvent): void {
  if (event.type === "stranger_change") report.warn(strangerWarning(event.what));
  else if (event.type === "rotated") report.note("the key that others seal to was replaced");
  else if (event.type === "connected" && event.what === "live")
    report.note(`listening at ${event.url}`);
  else if (
    event.type === "failed" ||
    (event.type === "disconnected" && event.what !== "cache" && event.error !== null)
  )
    report.note(`${event.error?.message} (${event.error?.code})`);
}

/** The policy of logs that a flag or the environment names. Throws `policy_invalid`. */
function readPolicy(flags: SessionFlags): string | null {
  const file = flags.policy ?? process.env["WAYPOST_POLICY"];
  if (file === undefined) return null;
  const policy = readFileSync(file, "utf8");
  parseLogPolicy(policy);
  return policy;
}

type Place = {
  readonly keysFolder: string;
  /** The name that a flag or the environment gives. */
  readonly chosen: string | undefined;
  readonly urls: { directoryUrl: string; relayUrl: string; cacheUrl: string };
};

/** Names of the identities that a command may act for: the chosen one, or all of this machine. */
async function namesOf({ chosen, keysFolder }: Omit<Place, "urls">): Promise<readonly string[]> {
  return chosen === undefined ? listIdentities(keysFolder) : [chosen];
}

export class CommandSession {
  readonly client: Client;
  readonly keysFolder: string;
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly cacheUrl: string;
  readonly report: CommandReport;
  readonly #flags: SessionFlags;
  readonly #place: Place;
  readonly #policy: string | null;
  /** The identity that the client acts for. */
  #acting: string | null = null;
  #opened: Waypost | null = null;

  private constructor(flags: SessionFlags, report: CommandReport, place: Place) {
    this.#flags = flags;
    this.#place = place;
    this.#policy = readPolicy(flags);
    this.report = report;
    this.keysFolder = place.keysFolder;
    this.directoryUrl = place.urls.directoryUrl;
    this.relayUrl = place.urls.relayUrl;
    this.cacheUrl = place.urls.cacheUrl;
    this.client = connect(place.urls);
    this.client.known.policy = this.#policy;
    this.client.known.doubt = (error) => report.note(`the log: ${error.message} (${error.code})`);
  }

  /** `acts`: for one identity of this machine, whose addresses count where none are given. */
  static async open(
    flags: SessionFlags,
    { report, acts }: { readonly report: CommandReport; readonly acts: boolean },
  ): Promise<CommandSession> {
    const { env } = process;
    const keysFolder = resolve(flags.keys ?? env["WAYPOST_KEYS"] ?? defaultKeysFolder());
    const chosen = flags.as ?? env["WAYPOST_AS"];
    const [only, ...further] = acts ? await namesOf({ chosen, keysFolder }) : [];
    const home = further.length > 0 ? null : await homeOf(keysFolder, only);
    const urls = nodeUrls(flags, home, urlDefault);
    return new CommandSession(flags, report, { keysFolder, chosen, urls });
  }

  /**
   * The identity that `given`, `--as` or the environment names, else the only one; the client
   * acts for it from then on.
   */
  async identity(given?: string): Promise<Identity> {
    const name = given ?? (await this.#chosenName());
    if (name !== undefined) return this.#actFor(name);
    throw failed(`no identity in ${this.keysFolder}; create one: waypost did create --name alice`);
  }

  /** How the SDK opens an identity of this machine. */
  options(name: string): WaypostOptions {
    return {
      ...this.#place.urls,
      ...(this.#policy === null ? {} : { policy: this.#policy }),
      keys: fileKeys(this.keysFolder),
      name,
      retries: 0,
      onEvent: (event) => reportEvent(this.report, event),
    };
  }

  /** Commands that act for this identity find its nodes by themselves from now on. */
  rememberHome(name: string): Promise<void> {
    return saveHome(this.keysFolder, name, this.#place.urls);
  }

  /**
   * The same identity as one that sends, receives and replaces its keys when they are due;
   * closed after the command.
   */
  async open(more: Partial<WaypostOptions> = {}): Promise<Waypost> {
    const { name } = await this.identity();
    this.#opened = await Waypost.open({ ...this.options(name), ...more });
    return this.#opened;
  }

  async close(): Promise<void> {
    await this.#opened?.close();
  }

  /** The client remembers for the identity that `identity` would return, if there is one. */
  async recall(): Promise<void> {
    const [only, ...others] = await namesOf(this.#place);
    if (only !== undefined && others.length === 0) await this.#actFor(only);
  }

  /** The same where it matters whose memory counts: of several identities one must be chosen. */
  async recallChosen(): Promise<void> {
    const name = await this.#chosenName();
    if (name !== undefined) await this.#actFor(name);
  }

  /** The DID of an identity that is called so on this machine; any other text as it is. */
  async named(target: string): Promise<string> {
    const isHere = (await listIdentities(this.keysFolder)).includes(target);
    return isHere ? (await loadIdentity(this.keysFolder, target)).did : target;
  }

  /**
   * The DID behind what a person types: a DID, the name of an identity on
   * this machine, or an alias.
   */
  async find(target: string) {
    return lookUp(this.client, await this.named(target));
  }

  /**
   * Reports a key of the own record that this machine does not hold, as far as the
   * command has read the record.
   */
  async watch(): Promise<void> {
    // Read again: the command may have changed the keys, or removed them.
    const name = this.#acting;
    if (name === null || !(await listIdentities(this.keysFolder)).includes(name)) return;
    const identity = await loadIdentity(this.keysFolder, name);
    const reader = this.#opened?.client ?? this.client;
    const proven = reader.trust.provenOf(identity.did);
    if (proven === null) return;
    const what = await strangerIn(this.client, identity, proven.state);
    if (what !== null) this.report.warn(strangerWarning(what));
  }

  /** How to wait, while the progress line shows `what`. */
  waiting(what: string): Waiting {
    const onProgress = (elapsedMs: number, state: string) => {
      const seconds = (elapsedMs / 1_000).toFixed(1);
      this.report.progress(`${what}: ${state}, ${seconds} s`);
    };
    const timeoutMs = this.#flags.timeout ?? waitingDefault.timeoutMs;
    return { ...waitingDefault, timeoutMs, onProgress };
  }

  async #chosenName(): Promise<string | undefined> {
    const [only, ...others] = await namesOf(this.#place);
    if (only === undefined || others.length === 0) return only;
    const all = [only, ...others].join(", ");
    throw failed(`there are several identities; choose one with --as: ${all}`);
  }

  async #actFor(name: string): Promise<Identity> {
    this.#acting = name;
    const identity = await loadIdentity(this.keysFolder, name);
    this.client.known.ledger = identity.ledger;
    this.client.known.memory = memoryOf(fileKeys(this.keysFolder), name);
    return identity;
  }
}
