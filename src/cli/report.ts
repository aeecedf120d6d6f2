/**
 * How a command reports its result: the result on standard output, as text or as one line of JSON;
 * progress on standard error, as one line that is written over on a terminal and not at all elsewhere.
 */

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
