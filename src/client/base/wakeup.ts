/** Waking of loops that wait. */
import { pause } from "./failure.ts";

/** Wakes a waiting loop. It calls `begin` before it reads, and `next` when nothing is left: what came since ends that wait. */
export class Wakeup {
  #isWoken = false;
  #abortWait: () => void = () => undefined;

  begin(): void {
    this.#isWoken = false;
  }

  wake(): void {
    this.#isWoken = true;
    this.#abortWait();
  }

  async next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#isWoken) return;
    const woken = new AbortController();
    this.#abortWait = () => woken.abort();
    await pause(timeoutMs, AbortSignal.any([woken.signal, signal]));
  }
}
