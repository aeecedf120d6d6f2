/** A worker for tests that throws or exits, outside of any request, when it gets a message to do so. */
import { runWorker } from "../../src/app/worker.ts";

const channel = new BroadcastChannel("waypost test: die");
channel.onmessage = ({ data }) =>
  setTimeout(() => {
    if (data === "exit") process.exit(7);
    throw new Error(String(data));
  }, 1);
await runWorker();
