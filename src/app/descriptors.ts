/**
 * The file descriptors of the process. When they are used up, the system lets connections
 * wait at every listener, that of the operator too. So a few are held in reserve: with the
 * last one the public listeners close, which resets what waits there, and the reserve is
 * given up to the admin listeners; with room again the public ones listen again.
 * Connections that exist go on meanwhile.
 * Source: proc(5), D470.
 */
import { closeSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import { secondMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import type { Log } from "../nodes/http/log.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import type { HttpListener } from "../nodes/http/server.ts";

const folder = "/proc/self/fd";

/** The limit of the process; `null` on systems that do not say. */
function readMax(): number | null {
  try {
    const line = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"));
    return line === null ? null : Number(line[1]);
  } catch {
    return null;
  }
}

/** From Linux 6.2 on the size of the folder is the count, which costs no descriptor. */
function countOpen(max: number): number {
  try {
    return statSync(folder).size || readdirSync(folder).length;
  } catch {
    return max;
  }
}

/** As many as an operator's tools use at once. */
const reservedMax = 16;
/** So few are left, and one more connection may fail. */
const lastFew = 2;
const lookEveryMs = secondMs;

type GuardParts = {
  readonly main: readonly HttpListener[];
  readonly admin: readonly HttpListener[];
  readonly log: Log;
  readonly isDue: (what: string) => boolean;
};

type Descriptors = {
  readonly guard: (parts: GuardParts) => void;
  readonly close: () => void;
};

export function watchDescriptors(metrics: Metrics): Descriptors {
  const max = readMax();
  if (max === null) return { guard: () => {}, close: () => {} };
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gauge({ name, help }, read);
  gauge("process_max_fds", "File descriptors that the process may have.", () => max);
  gauge("process_open_fds", "File descriptors in use.", () => countOpen(max) - reserve.length);
  let reserve: number[] = [];
  const size = Math.min(reservedMax, Math.floor(max / 8));
  const hold = () => {
    reserve = Array.from({ length: size }, () => openSync("/dev/null", "r"));
  };
  const closeReserve = () => {
    for (const fd of reserve) closeSync(fd);
    reserve = [];
  };
  let timer: ReturnType<typeof setInterval> | null = null;
  const guard = ({ main, admin, log, isDue }: GuardParts): void => {
    // Without an admin listener there is none to keep room for.
    const listeners = admin.length === 0 ? [] : main;
    let isPaused = false;
    const pause = (open: number) => {
      isPaused = true;
      for (const one of listeners) one.pause();
      closeReserve();
      if (isDue("descriptors"))
        log("warn", "file descriptors are used up: new connections are refused", { open, max });
    };
    const resume = () => {
      for (const one of listeners) one.resume();
      hold();
      isPaused = false;
    };
    const watchCount = () => {
      const open = countOpen(max);
      if (!isPaused && open >= max - lastFew) pause(open);
      // Twice the reserve is free, so that it can be held again and somebody else served.
      else if (isPaused && open <= max - 2 * size) resume();
    };
    hold();
    timer = setInterval(() => {
      try {
        watchCount();
      } catch (error) {
        log("error", "a listener does not listen again", { reason: errorText(error) });
      }
    }, lookEveryMs);
    timer.unref();
  };
  return {
    guard,
    close: () => {
      if (timer !== null) clearInterval(timer);
      closeReserve();
    },
  };
}
