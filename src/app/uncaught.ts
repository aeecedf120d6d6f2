/**
 * Errors and output that would bypass the log of a serving process: uncaught exceptions, unhandled
 * rejections and what libraries print. Each becomes a line of the log. URLs in library output are cut to
 * scheme and host, because URLs of chain nodes can hold an access token.
 * Source: rules section 9 ("Logs").
 */

import { withDeadline } from "../core/std/deadline.ts";
import { errorStack, errorText } from "../core/std/error-text.ts";
import type { LogSink } from "../nodes/http/log.ts";

/** Longest wait for the last log lines before the process exits. */
const flushMsMax = 500;
const printedCharsMax = 500;
/** Characters of one printed text that are examined. */
const readCharsMax = 2_000;

export function endAtOnce(sink: LogSink): void {
  void withDeadline(sink.flush(), flushMsMax).finally(() => process.exit(1));
}

/**
 * Logs bugs outside of requests. An unhandled rejection does not end the process: a stranger must not be able
 * to stop the node that way. An uncaught exception does, because the state behind it is unknown.
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
export function printedText(parts: readonly unknown[]): string {
  const text = parts.map((part) => errorText(part)).join(" ");
  // A URL that is cut in the middle could keep its token.
  const whole = text.length <= readCharsMax ? text : text.slice(0, readCharsMax).replace(/\S*:\/\/\S*$/, "");
  return withoutPaths(whole).replace(/\s+/g, " ").trim().slice(0, printedCharsMax);
}

function withoutPaths(text: string): string {
  return text.replace(/\b([a-z][a-z0-9+.-]*):\/\/(?:[^\s/?#]*@)?([^\s/?#]*)\S*/gi, "$1://$2");
}
