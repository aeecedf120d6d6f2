/**
 * What `@waypost/client/testing` exports: a Directory, a Relay and a Cache for the tests of an
 * app. They are the real ones, over memory, in a thread of their own and on a free port of this
 * machine. Needs no executable.
 * Source: docs/client.md "Tests of an app".
 */
import { Worker } from "node:worker_threads";

export type TestNode = {
  /** For `Waypost.open({ url })`. */
  readonly url: string;
  /** Ends it with all that it holds. Idempotent. */
  readonly stop: () => Promise<void>;
};

/** From source it is what the package has as a bundle. */
const program = import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js";

/** Starts a node; the process may end without stopping it. */
export async function testNode(): Promise<TestNode> {
  const worker = new Worker(new URL(program, import.meta.url));
  const url = await new Promise<string>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", (code) => reject(new Error(`the node ended with ${code}`)));
  });
  worker.unref();
  return { url, stop: async () => void (await worker.terminate()) };
}
