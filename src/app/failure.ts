/**
 * Failures of a command that the person who runs it can act on are shown without a stack;
 * anything else that is thrown is a bug. Of a serving process, what would bypass its log
 * (uncaught exceptions, unhandled rejections, what libraries print) becomes a line of the
 * log. URLs in library output are cut to scheme and host, because URLs of chain nodes can
 * hold an access token.
 * Source: docs/run.md, "Watch".
 */
import { errorStack, errorText } from "../core/fault.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import type { Log, LogSink } from "../nodes/http/log.ts";

/** Exit code 1: failed. Exit code 2: timed out. */
export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
  constructor(
    message: string,
    readonly exitCode: 1 | 2 = 1,
    /** With `--json` the printed result already says that the command failed. */
    readonly isInResult = false,
  ) {
    super(message);
  }
}

/** Exit code 1. */
export function failed(message: string): CommandFailure {
  return new CommandFailure(message, 1);
}

/** Exit code 2. */
export function timedOut(message: string): CommandFailure {
  return new CommandFailure(message, 2);
}

/** Exit code 1, after a result that lists the failures when `--json` is set. */
export function failedInResult(message: string): CommandFailure {
  return new CommandFailure(message, 1, true);
}

/**
 * Whether the operating system refused something: a folder without permission, a full disk.
 * Not a bug.
 */
export function isSystemRefusal(error: unknown): error is Error {
  return error instanceof Error && "syscall" in error && "code" in error;
}

// ---------------------------------------------------------------------------- in a serving process

/** Longest wait for the last log lines before the process exits. */
const flushMsMax = 500;
const printedCharsMax = 500;
/** Characters of one printed text that are examined. */
const readCharsMax = 2_000;

/** What an end takes at most after the drain of its requests, the 30 s of its stores included. */
export const endingMsMax = 50_000;

/** Waits for one step of the shutdown, with a limit. */
export async function endInTime(
  log: Log,
  part: string,
  work: Promise<unknown>,
  msMax: number,
): Promise<void> {
  if ((await withDeadline(work, msMax)) === late)
    log("warn", "the shutdown does not wait any longer", { for: part });
}

export function endAtOnce(sink: LogSink): void {
  void withDeadline(sink.flush(), flushMsMax).finally(() => process.exit(1));
}

/**
 * Logs bugs outside of requests. An unhandled rejection does not end the process: a
 * stranger must not be able to stop the node that way. An uncaught exception does, because
 * the state behind it is unknown.
 */
export function logUncaught(sink: LogSink): void {
  process.on("unhandledRejection", (error) =>
    sink.log("error", "a promise was rejected", { error: errorStack(error) }),
  );
  process.on("uncaughtException", (error) => {
    sink.log("error", "the node must stop", { error: errorStack(error) });
    endAtOnce(sink);
  });
}

/** Redirects the console to the log; the returned function restores it. */
export function logLibraryOutput(sink: LogSink): () => void {
  const { error, warn } = console;
  const redirect = (...parts: unknown[]): void =>
    sink.log("warn", "a library printed a message", { text: printedText(parts) });
  Object.assign(console, { error: redirect, warn: redirect });
  return () => Object.assign(console, { error, warn });
}

/** One line, bounded, without stacks. */
function printedText(parts: readonly unknown[]): string {
  const text = parts.map((part) => errorText(part)).join(" ");
  // A URL that is cut in the middle could keep its token.
  const whole =
    text.length <= readCharsMax ? text : text.slice(0, readCharsMax).replace(/\S*:\/\/\S*$/, "");
  const withoutPaths = whole.replace(
    /\b([a-z][a-z0-9+.-]*):\/\/(?:[^\s/?#]*@)?([^\s/?#]*)\S*/gi,
    "$1://$2",
  );
  return withoutPaths.replace(/\s+/g, " ").trim().slice(0, printedCharsMax);
}
