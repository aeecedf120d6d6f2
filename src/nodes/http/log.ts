/**
 * The log: one JSON object a line. It never holds payloads, ciphertext, signatures or full client
 * addresses: callers give names, counts and codes, and `maskAddress` cuts an address to its network.
 * Lines are collected and written together; when the reader of the log is too slow, lines are dropped
 * and counted rather than kept in memory without bound.
 * Source: decisions section 9 ("Logs").
 */

export const logLevels = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof logLevels)[number];

export type Log = (level: LogLevel, message: string, fields?: Readonly<Record<string, unknown>>) => void;

export type LogSink = {
  readonly log: Log;
  readonly flush: () => Promise<void>;
};

/** Where lines go: `write` resolves when they have left the process. */
export type LineWriter = (text: string) => Promise<void>;

const pendingCharactersMax = 1 << 20;
const gatherMs = 50;

export function createLog(options: {
  readonly level: LogLevel;
  readonly now: () => number;
  readonly write: LineWriter;
}): LogSink {
  const least = logLevels.indexOf(options.level);
  let pending = "";
  let dropped = 0;
  let writing: Promise<void> | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;

  const writeOut = async (): Promise<void> => {
    while (pending !== "") {
      const text = pending;
      pending = dropped === 0 ? "" : line("warn", "log lines were dropped", { dropped });
      dropped = 0;
      await options.write(text).catch(() => undefined);
    }
    writing = null;
  };
  const line = (level: LogLevel, message: string, fields?: Readonly<Record<string, unknown>>): string =>
    `${JSON.stringify({ time: new Date(options.now()).toISOString(), level, message, ...fields })}\n`;
  const flush = (): Promise<void> => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    writing ??= writeOut();
    return writing;
  };
  return {
    log: (level, message, fields) => {
      if (logLevels.indexOf(level) < least) return;
      if (pending.length > pendingCharactersMax) {
        dropped += 1;
        return;
      }
      pending += line(level, message, fields);
      if (writing === null) timer ??= setTimeout(() => void flush(), gatherMs);
    },
    flush,
  };
}

/** The network of an address: /24 of IPv4, /48 of IPv6; other texts stay (`unix`). */
export function maskAddress(address: string): string {
  const v4 = /^(?:::ffff:)?(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}$/i.exec(address);
  if (v4 !== null) return `${v4[1]}.0/24`;
  if (!address.includes(":")) return address;
  const [front = "", back] = address.split("::");
  const groups = front === "" ? [] : front.split(":");
  const missing = back === undefined ? 0 : 8 - groups.length - (back === "" ? 0 : back.split(":").length);
  const padded = [...groups, ...new Array<string>(Math.max(0, missing)).fill("0")];
  return `${padded.slice(0, 3).join(":")}::/48`;
}
