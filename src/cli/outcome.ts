/**
 * How a command ends: by returning (exit code 0) or by throwing. This file prints every failure: as text,
 * or with `--json` as one line `{ok: false, code, message, status}`. A failure is a usage error, a refusal
 * by a node or by the operating system, or a bug.
 */

import { CommanderError } from "commander";
import { CommandFailure, isSystemRefusal } from "../app/failure.ts";
import { ClientError } from "../client/http.ts";
import { errorStack } from "../core/std/error-text.ts";
import { printable } from "./report.ts";

/** Whether the arguments ask for JSON, found without parsing them: they may be wrong. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).includes("--json");
}

/** What is printed on standard error, `null` for nothing more, and the exit code. */
export type Ending = { readonly text: string | null; readonly exitCode: 0 | 1 | 2 };

export function endingOf(error: unknown, json: boolean): Ending {
  if (error instanceof CommanderError) return usageEnding(error, json);
  if (error instanceof ClientError) return clientEnding(error, json);
  if (error instanceof CommandFailure) {
    if (!json) return { text: error.message, exitCode: error.exitCode };
    const code = error.exitCode === 2 ? "timed_out" : "failed";
    return { text: error.isInResult ? null : failureLine(code, error.message), exitCode: error.exitCode };
  }
  if (isSystemRefusal(error)) {
    return { text: json ? failureLine("failed", error.message) : error.message, exitCode: 1 };
  }
  // A bug. The stack alone: the runtime would print lines of the compiled program beside it.
  const stack = errorStack(error);
  return { text: json ? failureLine("internal_error", stack) : stack, exitCode: 1 };
}

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
  const isOfTime = /^(authorization_expired|authorization_too_far_ahead|proof_expired)$/.test(code);
  if (!isOfTime && !(code === "envelope_invalid" && message.includes("/timestamp"))) return "";
  return "; the clocks of this machine and of the node differ, or one of them is wrong";
}

function failureLine(code: string, message: string, extra: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ ok: false, code, message, status: null, ...extra });
}
