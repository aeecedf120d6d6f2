/**
 * `waypost health <url>`: whether a node is ready, for supervisors and images that hold no other client.
 * Exit code 0 ready, 1 not ready, 2 not ready within `--wait`.
 */

import type { Command } from "commander";
import { failed, timedOut } from "../app/failure.ts";
import { errorText } from "../core/std/error-text.ts";
import { parseSeconds, parseUrl } from "./arguments.ts";

const askTimeoutMs = 3_000;
const againMs = 200;

export function registerHealthCommand(program: Command): void {
  program
    .command("health")
    .description("ask a node whether it is ready")
    .argument("<url>", "base URL of the node", parseUrl)
    .option("-w, --wait <duration>", "keep asking until it is ready, for at most this long: 20s, 2m", parseSeconds, 0)
    .action(async (url: string, { wait: waitMs }: { wait: number }) => {
      const endsAtMs = performance.now() + waitMs;
      let answer = await askReadiness(url);
      while (!answer.ready && performance.now() < endsAtMs) {
        await Bun.sleep(againMs);
        answer = await askReadiness(url);
      }
      if (!answer.ready) throw waitMs > 0 ? timedOut(answer.text) : failed(answer.text);
      console.log(answer.text);
    });
}

async function askReadiness(url: string): Promise<{ readonly ready: boolean; readonly text: string }> {
  try {
    const response = await fetch(`${url.replace(/\/+$/, "")}/readyz`, {
      signal: AbortSignal.timeout(askTimeoutMs),
      proxy: false,
    });
    const text = (await response.text()).slice(0, 4_096).trim();
    if (text.startsWith("{")) return { ready: response.ok, text };
    return { ready: false, text: `${url} answered ${response.status} without JSON: is that the address of a node?` };
  } catch (error) {
    const reason = errorText(error);
    return { ready: false, text: `${url}: ${reason}` };
  }
}
