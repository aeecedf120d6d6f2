/**
 * What would leave a serving process past its log: exceptions and rejections that nobody catches, and
 * what libraries print by themselves. All of it becomes lines of the log. Addresses in what libraries
 * print are cut to scheme and host, because those of chain nodes can hold an access token.
 * Source: decisions section 9 ("Logs").
 */
import type { LogSink } from "../nodes/http/log.ts";

/** A log that can't be written does not hold the end up for longer than this. */
const lastWordsMs = 500;
const printedCharsMax = 500;
/** Of what was printed, looked at. */
const readCharsMax = 2_000;

export function endAtOnce(sink: LogSink): void {
  void Promise.race([sink.flush(), Bun.sleep(lastWordsMs)]).finally(() => process.exit(1));
}

/**
 * Bugs outside of any request. A promise that nobody waits for leaves everything else as it was, and must
 * not be a way to end the node from outside; an exception that nobody catches may have left anything.
 */
export function logStrays(sink: LogSink): void {
  const describe = (error: unknown): string =>
    error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.on("unhandledRejection", (error) => sink.log("error", "a promise was rejected", { error: describe(error) }));
  process.on("uncaughtException", (error) => {
    sink.log("error", "the node must stop", { error: describe(error) });
    endAtOnce(sink);
  });
}

/** From now on what libraries print is logged; the answer gives them the console back. */
export function logPrinted(sink: LogSink): () => void {
  const { error, warn } = console;
  const say = (...parts: unknown[]): void => sink.log("warn", "a library says", { text: printedText(parts) });
  Object.assign(console, { error: say, warn: say });
  return () => Object.assign(console, { error, warn });
}

/** One line, bounded, without stacks. */
export function printedText(parts: readonly unknown[]): string {
  const text = parts.map((part) => (part instanceof Error ? part.message : String(part))).join(" ");
  // An address that the cut goes through can't be told from its token.
  const whole = text.length <= readCharsMax ? text : text.slice(0, readCharsMax).replace(/\S*:\/\/\S*$/, "");
  return withoutPaths(whole).replace(/\s+/g, " ").trim().slice(0, printedCharsMax);
}

function withoutPaths(text: string): string {
  return text.replace(/\b([a-z][a-z0-9+.-]*):\/\/(?:[^\s/?#]*@)?([^\s/?#]*)\S*/gi, "$1://$2");
}
