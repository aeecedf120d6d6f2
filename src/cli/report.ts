/**
 * How a command reports: its result on standard output, as text or as one line of JSON; progress on standard error, as
 * one line that is written over on a terminal and not at all elsewhere. A command ends by returning (exit code 0) or by
 * throwing; a failure is printed as text, or with `--json` as one line `{ok: false, code, message, status}`. It is a
 * usage error, a refusal by a node or by the operating system, or a bug.
 */
import { CommanderError } from "commander";
import { CommandFailure, isSystemRefusal } from "../app/failure.ts";
import { ClientError } from "../client/http.ts";
import { errorStack } from "../core/fault.ts";
import { urlDefault } from "./arguments.ts";

export type Report = {
  /** The line of the moment. Nothing when the output is JSON or not a terminal. */
  readonly progress: (text: string) => void;
  /** Something worth knowing besides the result, on standard error. */
  readonly note: (text: string) => void;
  /** A result, with `--json` as one line. A command that goes on has several. */
  readonly result: (json: unknown, text: string) => void;
  /** Clears the progress line. Idempotent. */
  readonly end: () => void;
};

export function createReport(json: boolean): Report {
  const live = !json && process.stderr.isTTY === true;
  let shown = false;
  const end = () => {
    if (shown) process.stderr.write("\r\u001b[K");
    shown = false;
  };
  return {
    progress: (text) => {
      if (!live) return;
      process.stderr.write(`\r\u001b[K${text.slice(0, (process.stderr.columns || 80) - 1)}`);
      shown = true;
    },
    note: (text) => {
      end();
      if (!json) process.stderr.write(`${text}\n`);
    },
    result: (value, text) => {
      end();
      process.stdout.write(`${json ? JSON.stringify(value) : text}\n`);
    },
    end,
  };
}

/** `1 message`, `2 messages` */
export function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** `12.3 MiB`; whole bytes below 1 KiB. */
export function renderBytes(bytes: number): string {
  if (bytes < 1_024) return countOf(bytes, "byte");
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1_024;
  let unit = 0;
  while (value >= 1_024 && unit < units.length - 1) {
    value /= 1_024;
    unit++;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

/** `[#####.....]  50 %` */
export function renderBar(done: number, total: number): string {
  const width = 24;
  const share = total === 0 ? 1 : done / total;
  const filled = Math.round(width * share);
  return `[${"#".repeat(filled)}${".".repeat(width - filled)}] ${String(Math.floor(share * 100)).padStart(3)} %`;
}

/** Text from the network may hold anything: control characters must not reach a terminal. */
export function printable(text: string): string {
  return text.toWellFormed().replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

// ----------------------------------------------------------------------------------------------- failures

/** Whether the arguments ask for JSON, found without parsing them: they may be wrong. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).includes("--json");
}

/** What is printed on standard error, `null` for nothing more, and the exit code. */
type Ending = { readonly text: string | null; readonly exitCode: 0 | 1 | 2 };

export function endingOf(error: unknown, json: boolean): Ending {
  if (error instanceof CommanderError) return usageEnding(error, json);
  if (error instanceof ClientError) return clientEnding(error, json);
  if (error instanceof CommandFailure) {
    if (!json) return { text: error.message, exitCode: error.exitCode };
    const code = error.exitCode === 2 ? "timed_out" : "failed";
    return { text: error.isInResult ? null : failureLine(code, error.message), exitCode: error.exitCode };
  }
  if (isSystemRefusal(error)) {
    const text = refusalText(error);
    return { text: json ? failureLine("failed", text) : text, exitCode: 1 };
  }
  // A bug. The stack alone: the runtime would print lines of the compiled program beside it.
  const stack = errorStack(error);
  return { text: json ? failureLine("internal_error", stack) : stack, exitCode: 1 };
}

/** What the operating system says, in words, about the file that it means. */
function refusalText(error: Error): string {
  const [code, path] = ["code", "path"].map((name) => Reflect.get(error, name) as unknown);
  const reason = systemReasons[String(code)];
  return reason === undefined || typeof path !== "string" ? error.message : `${path}: ${reason}`;
}

const systemReasons: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file or folder",
  EACCES: "this user may not open it",
  EISDIR: "it is a folder",
  ENOTDIR: "something on the way to it is no folder",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** The parser has printed its text, or help, before it threw. */
function usageEnding(error: CommanderError, json: boolean): Ending {
  if (error.exitCode === 0) return { text: null, exitCode: 0 };
  if (!json) return { text: null, exitCode: 1 };
  const isHelp = error.code === "commander.help";
  const message = isHelp ? "a command is missing; add --help to see which there are" : error.message;
  return { text: failureLine("usage", message.replace(/^error: /, "")), exitCode: 1 };
}

function clientEnding(error: ClientError, json: boolean): Ending {
  const exitCode = error.kind === "timed_out" ? 2 : 1;
  if (!json) return { text: printable(`${error.message} (${error.code})${hintOf(error)}`), exitCode };
  const { expected } = error.extra;
  const extra = { status: error.status, ...(expected === undefined ? {} : { expected }) };
  return { text: failureLine(error.code, error.message, extra), exitCode };
}

/** A proof is made and sent within a moment: that it is too old or too new is a matter of clocks. */
function hintOf({ code, message }: ClientError): string {
  if (code === "unreachable" && message.startsWith(urlDefault)) return "; name another node with --url or WAYPOST_URL";
  const isOfTime = /^(authorization_expired|authorization_too_far_ahead|proof_expired)$/.test(code);
  if (!isOfTime && !(code === "envelope_invalid" && message.includes("/timestamp"))) return "";
  return "; the clocks of this machine and of the node differ, or one of them is wrong";
}

function failureLine(code: string, message: string, extra: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ ok: false, code, message, status: null, ...extra });
}
