/**
 * The service worker of the test page, which also tells the page when the work of a push is done.
 */
import { clicked, pushed } from "../../src/client/pushed.ts";

type PushEvent = Parameters<typeof pushed>[0];

addEventListener("push", (event) => {
  const { data, waitUntil } = event as Event & PushEvent;
  const done = (work: Promise<unknown>) =>
    waitUntil.call(
      event,
      work.then(() => new BroadcastChannel("done").postMessage("done")),
    );
  pushed({ data, waitUntil: done });
});
addEventListener("notificationclick", clicked as never);
