/**
 * What every command shares. Option values are parsed while the command line is, so a mistake is reported before the
 * command starts. A result goes to standard output, as text or one line of JSON; progress to standard error, on
 * terminals only. A command ends by returning (exit code 0) or by throwing a usage error, a refusal or a bug, which is
 * printed as text or with `--json` as one line `{ok: false, code, message, status}`. A session knows the nodes and the
 * folder of the keys: flags win over the environment (`WAYPOST_URL` and its siblings), and that over the defaults of
 * the development mode.
 */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { CommandFailure, failed, isSystemRefusal } from "../app/failure.ts";
import { ClientError } from "../client/base/failure.ts";
import type { WaypostOptions } from "../client/identity/opening.ts";
import { memoryOf } from "../client/keys/key-stores.ts";
import { type Identity, nameForm } from "../client/keys/keys.ts";
import type { WaypostEvent } from "../client/mail/message.ts";
import { type Waiting, waitingDefault } from "../client/net/directory.ts";
import { connect, lookUp } from "../client/trust/client.ts";
import { parseLogPolicy } from "../client/trust/log.ts";
import { strangerIn } from "../client/trust/own.ts";
import type { TrustLevel } from "../client/trust/trust.ts";
import { Waypost } from "../client/waypost.ts";
import { parseDuration } from "../core/codec/time.ts";
import { errorStack, errorText } from "../core/fault.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { defaultKeysFolder, fileKeys, listIdentities, loadIdentity } from "./files/files.ts";
import { homeOf, nodeUrls, saveHome } from "./files/home.ts";

/** Where `waypost dev` and the examples listen. */
const urlDefault = "http://127.0.0.1:7400";

const parsed = <T>(value: T | null, refusal: string): T => {
  if (value !== null) return value;
  throw new InvalidArgumentError(refusal);
};
const textThat = (accepts: (text: string) => boolean, refusal: string) => (text: string) =>
  parsed(accepts(text) ? text : null, refusal);

/** Milliseconds of a duration. */
export const parseWait = (text: string) =>
  parsed(parseDuration(text), "It must be a duration such as 30s or 5m.");

export const parseTtl = textThat(
  (text) => parseDuration(text) !== null,
  "It must be from 1 second to 30 days, such as 24h or 1d12h.",
);
export const parseName = textThat(
  (text) => nameForm.test(text),
  "It must be 1 to 64 of A-Z a-z 0-9 . _ -, no dot first.",
);
export const parseUrl = textThat(
  (text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),
  "It must begin with https:// or http://.",
);

export function parseBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
    return parsed(
      value >= min && value <= max ? value : null,
      `It must be a number from ${min} to ${max}.`,
    );
  };
}

/** Numbers on the wire are at most a u32. */
export const parseCount = parseBetween(0, 2 ** 32 - 1);

// --------------------------------------------------------------------------------------------- results and failures

type Report = ReturnType<typeof createReport>;

/** Writes to standard output; `false`: wait for "drain". A reader that has gone, as `head` does, ends the command. */
export function print(text: string): boolean {
  if (process.stdout.listenerCount("error") === 0) {
    process.stdout.on("error", (error) => {
      if ("code" in error && error.code === "EPIPE") process.exit(0);
      throw error;
    });
  }
  return process.stdout.write(text);
}

export function createReport(json: boolean) {
  const live = !json && process.stderr.isTTY === true;
  let shown = false;
  const end = () => {
    if (shown) process.stderr.write("\r\u001b[K");
    shown = false;
  };
  return {
    /** Replaces the progress line. Prints nothing with `--json` and without a terminal. */
    progress: (text: string): void => {
      if (!live) return;
      process.stderr.write(
        `\r\u001b[K${printable(text).slice(0, (process.stderr.columns || 80) - 1)}`,
      );
      shown = true;
    },
    /** A line on standard error in addition to the result; nothing with `--json`. */
    note: (text: string): void => {
      end();
      if (!json) process.stderr.write(`${printableLines(text)}\n`);
    },
    /** The same, with `--json` too. */
    warn: ({ type, text }: { readonly type: string; readonly text: string }): void => {
      end();
      process.stderr.write(
        `${json ? renderJson({ type, message: text }) : printableLines(`${text} (${type})`)}\n`,
      );
    },
    /** A result, with `--json` as one line. A command that runs until it is interrupted prints several. */
    result: (value: unknown, text: string): void => {
      end();
      print(`${json ? renderJson(value) : printableLines(text)}\n`);
    },
    end,
  };
}

/** Whether this program is one file. */
export function isCompiled(): boolean {
  return Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");
}

/** What starts this program again. */
export function ownCommand(): string[] {
  return isCompiled() ? [process.execPath] : [process.execPath, Bun.main];
}

/** `1 message`, `2 messages` */
export function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** `12.3 MiB`; whole bytes below 1 KiB. */
export function renderBytes(bytes: number): string {
  if (bytes < 1_024) return countOf(bytes, "byte");
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1_024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** What moves the cursor, hides or reorders text: it must not reach a terminal. */
const controls = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Text from the network without control characters. */
export function printable(text: string): string {
  return text.toWellFormed().replace(controls, "\ufffd");
}

const printableLines = (text: string): string => text.split("\n").map(printable).join("\n");

/** JSON with every control character as an escape, those above U+007E too: the same value for programs. */
function renderJson(value: unknown): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value).replace(controls, (character) =>
    character.split("").map(escaped).join(""),
  );
}

/** Whether the arguments ask for JSON, found without parsing them: they may be wrong. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).includes("--json");
}

/** What is printed on standard error, `null` for nothing more, and the exit code. */
type Ending = { readonly text: string | null; readonly exitCode: number };

export function endingOf(error: unknown, json: boolean): Ending {
  const { text, code, exitCode, ...extra } = failureOf(error, json);
  if (text === null || !json) return { text, exitCode };
  return { text: renderJson({ ok: false, code, message: text, status: null, ...extra }), exitCode };
}

type Failure = Ending & {
  readonly code: string;
  readonly status?: number | null;
  readonly expected?: unknown;
};

function failureOf(error: unknown, json: boolean): Failure {
  if (error instanceof CommanderError) {
    // The parser printed its text, or help, before it threw.
    const isTold = error.exitCode === 0 || !json;
    const text =
      error.code === "commander.help"
        ? "a command is missing"
        : error.message.replace(/^error: /, "");
    return { code: "usage", text: isTold ? null : text, exitCode: error.exitCode === 0 ? 0 : 1 };
  }
  if (error instanceof ClientError) {
    const { code, kind, message, status, extra } = error;
    const exitCode = kind === "timed_out" ? 2 : 1;
    if (!json) return { code, text: printable(`${message} (${code})${hintOf(error)}`), exitCode };
    const { expected } = extra;
    return {
      code,
      text: message,
      exitCode,
      status,
      ...(expected === undefined ? {} : { expected }),
    };
  }
  if (error instanceof CommandFailure) {
    const { exitCode, isInResult, message } = error;
    return {
      code: exitCode === 2 ? "timed_out" : "failed",
      text: json && isInResult ? null : message,
      exitCode,
    };
  }
  if (isSystemRefusal(error)) return { code: "failed", text: errorText(error), exitCode: 1 };
  // A bug. The stack alone: the runtime would print lines of the compiled program with it.
  return { code: "internal_error", text: errorStack(error), exitCode: 1 };
}

/** A proof is sent as soon as it is made, so one that is too old or too new means that clocks differ. */
function hintOf({ code, message }: ClientError): string {
  if (code === "unreachable" && message.startsWith(urlDefault))
    return "; name another node with --url or WAYPOST_URL";
  const isOfTime = /^(authorization_expired|authorization_too_far_ahead|proof_expired)$/.test(code);
  return isOfTime ? "; the clocks of this machine and of the node differ" : "";
}

// --------------------------------------------------------------------------------------------------- nodes and keys

type SessionFlags = {
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

/** The help shows a command's own options first, and those that commands share below. */
function shared(flags: string, description: string): Option {
  return new Option(flags, description).helpGroup("Shared options:");
}

function addSessionFlags(command: Command): void {
  const address = (flags: string, description: string) =>
    shared(flags, description).argParser(parseUrl);
  const options = [
    address("--url <url>", `address of all three nodes (WAYPOST_URL; default: ${urlDefault})`),
    address("--directory <url>", "address of the Directory, if it differs (WAYPOST_DIRECTORY_URL)"),
    address("--relay <url>", "address of the Relay, if it differs (WAYPOST_RELAY_URL)"),
    address("--cache <url>", "address of the Cache, if it differs (WAYPOST_CACHE_URL)"),
    shared("--keys <folder>", "folder of the keys (WAYPOST_KEYS; default: ~/.waypost/keys)"),
    shared("--policy <file>", "witnesses that must have seen the log (WAYPOST_POLICY)"),
    shared("--json", "print the result as JSON"),
  ];
  for (const option of options) command.addOption(option);
  command.addHelpOption(shared("-h, --help", "display help for command"));
}

export function addWaitFlag(command: Command): Command {
  return command.addOption(
    new Option("--timeout <duration>", "how long to wait for settlement: 30s, 5m")
      .argParser(parseWait)
      .default(waitingDefault.timeoutMs, `${waitingDefault.timeoutMs / 1_000}s`),
  );
}

export function addIdentityFlag(command: Command): Command {
  return command.addOption(
    shared("--as <name>", "the identity to act as (WAYPOST_AS; default: the only one)"),
  );
}

export type CommandSession = Awaited<ReturnType<typeof openSession>>;

/** Adds the flags of a session to a command of a client, and runs `work` in one; `endingOf` renders failures. */
export function clientCommand<
  F extends object,
  A extends (string | readonly string[] | undefined)[] = [],
>(
  command: Command,
  work: (session: CommandSession, flags: F, ...values: A) => Promise<void>,
): void {
  addSessionFlags(command);
  command.action(async (...given: unknown[]) => {
    // Commander passes the values, then the flags, then the command itself.
    const flags = given.at(-2) as F & SessionFlags;
    const acts = command.options.some((option) => option.attributeName() === "as");
    const session = await openSession(flags, acts);
    try {
      await work(session, flags, ...(given.slice(0, -2) as A)).catch(async (error: unknown) => {
        // What failed first is reported.
        await session.watch().catch(() => {});
        throw error;
      });
      await session.watch();
    } finally {
      await session.close();
      session.report.end();
    }
  });
}

const strangerWarning = (what: string) => ({
  type: "stranger_change",
  text: `somebody else has changed this identity: ${what.replaceAll("_", " ")}; warn your correspondents over another channel`,
});

/** What an opened identity reports in addition to the result. What a Cache lacks is in the results of `receive`. */
function reportEvent(report: Report, event: WaypostEvent): void {
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

/** Behind a DID, for people. */
export function describeTrust(level: TrustLevel | null): string {
  return level === "unproven"
    ? ", whose keys are unproven"
    : level === "logged"
      ? ", whose keys are logged"
      : "";
}

/** `acts`: for one identity of this machine, whose addresses count where none are given. */
async function openSession(flags: SessionFlags, acts: boolean) {
  const { env } = process;
  const keysFolder = resolve(flags.keys ?? env["WAYPOST_KEYS"] ?? defaultKeysFolder());
  const chosen = flags.as ?? env["WAYPOST_AS"];
  const names = () =>
    chosen === undefined ? listIdentities(keysFolder) : Promise.resolve([chosen]);
  const [only, ...further] = acts ? await names() : [];
  const home = further.length > 0 ? null : await homeOf(keysFolder, only);
  const urls = nodeUrls(flags, home, urlDefault);
  const client = connect(urls);
  const report = createReport(flags.json === true);
  const policyFile = flags.policy ?? env["WAYPOST_POLICY"];
  const policy = policyFile === undefined ? null : readFileSync(policyFile, "utf8");
  if (policy !== null) parseLogPolicy(policy);
  client.known.policy = policy;
  client.known.doubt = (error) => report.note(`the log: ${error.message} (${error.code})`);
  let acting: string | null = null;
  let opened: Waypost | null = null;
  /** The DID of an identity that is called so on this machine; any other text as it is. */
  const named = async (target: string): Promise<string> =>
    (await listIdentities(keysFolder)).includes(target)
      ? (await loadIdentity(keysFolder, target)).did
      : target;
  const loadActing = async (name: string): Promise<Identity> => {
    acting = name;
    const identity = await loadIdentity(keysFolder, name);
    client.known.ledger = identity.ledger;
    client.known.memory = memoryOf(fileKeys(keysFolder), name);
    return identity;
  };
  const chosenName = async (): Promise<string | undefined> => {
    const [only, ...others] = await names();
    if (only === undefined || others.length === 0) return only;
    throw failed(
      `there are several identities; choose one with --as: ${[only, ...others].join(", ")}`,
    );
  };
  const identityOf = async (given?: string): Promise<Identity> => {
    const name = given ?? (await chosenName());
    if (name !== undefined) return loadActing(name);
    throw failed(`no identity in ${keysFolder}; create one: waypost did create --name alice`);
  };
  const options = (name: string): WaypostOptions => ({
    ...urls,
    ...(policy === null ? {} : { policy }),
    keys: fileKeys(keysFolder),
    name,
    retries: 0,
    onEvent: (event) => reportEvent(report, event),
  });
  return {
    client,
    ...urls,
    keysFolder,
    report,
    /**
     * The identity that `name`, `--as` or the environment names, else the only one; the client acts for it from then
     * on.
     */
    identity: identityOf,
    /** How the SDK opens an identity of this machine. */
    options,
    /** Commands that act for this identity find its nodes by themselves from now on. */
    rememberHome: (name: string) => saveHome(keysFolder, name, urls),
    /**
     * The same identity as one that sends, receives and replaces its keys when they are due; closed after the command.
     */
    open: async (more: Partial<WaypostOptions> = {}): Promise<Waypost> => {
      opened = await Waypost.open({ ...options((await identityOf()).name), ...more });
      return opened;
    },
    close: async () => opened?.close(),
    /** The client remembers for the identity that `identity` would return, if there is one. */
    recall: async () => {
      const [only, ...others] = await names();
      if (only !== undefined && others.length === 0) await loadActing(only);
    },
    /** The same where it matters whose memory counts: of several identities one must be chosen. */
    recallChosen: async () => {
      const name = await chosenName();
      if (name !== undefined) await loadActing(name);
    },
    named,
    /** The DID behind what a person types: a DID, the name of an identity on this machine, or an alias. */
    find: async (target: string) => lookUp(client, await named(target)),
    /** Reports a key of the own record that this machine does not hold, as far as the command has read the record. */
    watch: async () => {
      // Read again: the command may have changed the keys, or removed them.
      const isHere = acting !== null && (await listIdentities(keysFolder)).includes(acting);
      const identity = isHere && acting !== null ? await loadIdentity(keysFolder, acting) : null;
      const proven =
        identity === null ? null : (opened?.client ?? client).trust.provenOf(identity.did);
      const what =
        identity === null || proven === null
          ? null
          : await strangerIn(client, identity, proven.state);
      if (what !== null) report.warn(strangerWarning(what));
    },
    /** How to wait, while the progress line shows `what`. */
    waiting: (what: string): Waiting => {
      const onProgress = (elapsedMs: number, state: string) =>
        report.progress(`${what}: ${state}, ${(elapsedMs / 1_000).toFixed(1)} s`);
      return {
        ...waitingDefault,
        timeoutMs: flags.timeout ?? waitingDefault.timeoutMs,
        onProgress,
      };
    },
  };
}

// ------------------------------------------------------------------------------------- what a node says about itself

export const probeTimeoutMs = 4_000;

export type JsonReply = {
  readonly status: number;
  /** The same as text, for people. */
  readonly text: string;
  readonly json: Readonly<Record<string, unknown>>;
  /** The clock of the node, from its `Date` header. */
  readonly dateMs: number | null;
};

type AskOptions = {
  /** Path of the socket, when the node listens on one. */
  readonly unix?: string | undefined;
  /** Sent by POST; without one it is a GET. */
  readonly body?: unknown;
  readonly timeoutMs?: number;
};

/** A JSON object, or the reason why there is none. */
export async function askJson(
  url: string,
  path: string,
  options: AskOptions = {},
): Promise<JsonReply | string> {
  const { unix, body, timeoutMs = probeTimeoutMs } = options;
  const headers = { "content-type": "application/json" };
  try {
    const response = await fetch(`${withoutTrailingSlashes(url)}${path}`, {
      signal: AbortSignal.timeout(timeoutMs),
      redirect: "error",
      ...(unix === undefined ? { proxy: false } : { unix }),
      ...(body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) }),
    });
    const { status } = response;
    const text = (await response.text()).trim();
    if (!text.startsWith("{"))
      return `answered ${status} without JSON: is that the address of a node?`;
    const dateMs = Date.parse(response.headers.get("date") ?? "");
    return { status, text, json: JSON.parse(text), dateMs: Number.isNaN(dateMs) ? null : dateMs };
  } catch (error) {
    if (error instanceof SyntaxError) return "answers, but not as a node";
    // ECONNREFUSED says more than the runtime's guess at a cause.
    const code: unknown = error instanceof Error && Reflect.get(error, "code");
    return typeof code === "string" ? code : errorText(error);
  }
}
