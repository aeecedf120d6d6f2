/**
 * What every command shares. Option values are parsed while the command line is, so a mistake is
 * reported before the command starts. A result goes to standard output, as text or one line of
 * JSON; progress to standard error, on terminals only. A command ends by returning (exit code 0) or
 * by throwing a usage error, a refusal or a bug, which is printed as text or with `--json` as one
 * line `{ok: false, code, message, status}`.
 */

import { type Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { CommandFailure, isSystemRefusal } from "../app/failure.ts";
import { ClientError } from "../client/base/failure.ts";
import { nameForm } from "../client/keys/keys.ts";
import { waitingDefault } from "../client/net/directory.ts";
import type { TrustLevel } from "../client/trust/trust.ts";
import { parseDuration } from "../core/codec/time.ts";
import { errorStack, errorText } from "../core/fault.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import {
  type CommandReport,
  CommandSession,
  type SessionFlags,
  urlDefault,
} from "./command-session.ts";

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

/** What commands at a node read when they are told of no other. */
export const defaultConfigFile = "waypost.toml";

/** Numbers on the wire are at most a u32. */
export const parseCount = parseBetween(0, 2 ** 32 - 1);

// ---------------------------------------------------------------------------- results and failures

/**
 * Writes to standard output; `false`: wait for "drain". A reader that has gone, as
 * `head` does, ends the command.
 */
export function print(text: string): boolean {
  if (process.stdout.listenerCount("error") === 0) {
    process.stdout.on("error", (error) => {
      if ("code" in error && error.code === "EPIPE") process.exit(0);
      throw error;
    });
  }
  return process.stdout.write(text);
}

export function createReport(json: boolean): CommandReport {
  const live = !json && process.stderr.isTTY === true;
  let shown = false;
  const end = () => {
    if (shown) process.stderr.write("\r\u001b[K");
    shown = false;
  };
  return {
    progress: (text) => {
      if (!live) return;
      const width = (process.stderr.columns || 80) - 1;
      process.stderr.write(`\r\u001b[K${printable(text).slice(0, width)}`);
      shown = true;
    },
    note: (text) => {
      end();
      if (!json) process.stderr.write(`${printableLines(text)}\n`);
    },
    warn: ({ type, text }) => {
      end();
      const line = json ? renderJson({ type, message: text }) : printableLines(`${text} (${type})`);
      process.stderr.write(`${line}\n`);
    },
    result: (value, text) => {
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

/**
 * JSON with every control character as an escape, those above U+007E too: the
 * same value for programs.
 */
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
    const { code, kind, status, extra } = error;
    const message = wordsOf(error);
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

export function maintenanceText(said: string | null): string {
  return `the node refuses writes for maintenance${said === null ? "" : `: ${said}`}`;
}

/** What a node says to programs, as a person at this command needs it. */
function wordsOf({ kind, code, message }: ClientError): string {
  if (kind !== "refused") return message;
  if (code === "maintenance")
    return message.endsWith("during maintenance") ? message : maintenanceText(message);
  if (code === "invitation_required")
    return "this Directory registers who is invited: give the code by --invitation <code>";
  return message;
}

/**
 * A proof is sent as soon as it is made, so one that is too old or too new
 * means that clocks differ.
 */
function hintOf({ code, message }: ClientError): string {
  if (code === "unreachable" && message.startsWith(urlDefault))
    return "; name another node with --url or WAYPOST_URL";
  if (code === "other_ledger" && message.startsWith("this identity was made"))
    return "; give that node by --url, start this one with its former folder (--data), or make one with another name (did create --name)";
  const isOfTime = /^(authorization_expired|authorization_too_far_ahead|proof_expired)$/.test(code);
  return isOfTime ? "; the clocks of this machine and of the node differ" : "";
}

// ---------------------------------------------------------------------------------- nodes and keys

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

/**
 * Adds the flags of a session to a command of a client, and runs `work` in one;
 * `endingOf` renders failures.
 */
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
    const report = createReport(flags.json === true);
    const session = await CommandSession.open(flags, { report, acts });
    try {
      await work(session, flags, ...(given.slice(0, -2) as A)).catch(async (error: unknown) => {
        // What failed first is reported.
        await session.watch().catch(() => {});
        throw error;
      });
      await session.watch();
    } finally {
      await session.close();
      report.end();
    }
  });
}

/** Behind a DID, for people. */
export function describeTrust(level: TrustLevel | null): string {
  return level === "unproven" || level === "logged" ? `, whose keys are ${level}` : "";
}

// ------------------------------------------------------------------- what a node says about itself

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
