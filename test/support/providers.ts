/**
 * Providers of their own, which reach each other as `localhost:<port>`, and what their people
 * receive.
 */
import type { Message, WaypostEvent } from "../../src/client/mail/message.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { relayAt, startTestNodes, type TestNodes } from "./nodes.ts";

export type Provider = TestNodes & { readonly home: string };
export type Inbox = {
  /** The next message, acknowledged. */
  readonly next: () => Promise<Message>;
  readonly events: WaypostEvent[];
  readonly close: () => Promise<void>;
};

type ProviderOptions = Pick<ConfigInput, "stores" | "witness"> & {
  readonly port: number;
  readonly directory?: ConfigInput["directory"];
};

export async function startProvider(
  { port, directory = {}, ...more }: ProviderOptions,
  others: Parameters<typeof startTestNodes>[1] = {},
): Promise<Provider> {
  const own = `http://localhost:${port}`;
  const config: ConfigInput = {
    ...more,
    server: { listen: [`127.0.0.1:${port}`], drain_timeout: "2s" },
    directory: { enabled: true, rate_limit_loopback: false, public_endpoint: own, ...directory },
    relay: relayAt(own),
    cache: { enabled: true, public_endpoints: [own] },
  };
  return { ...(await startTestNodes(config, others, { resolve })), home: `localhost:${port}` };
}

/** Names other than this machine's lead to a private network, as after DNS rebinding. */
const resolve = async (host: string) => [host === "localhost" ? "127.0.0.1" : "10.1.2.3"];

/** Receives in the background until it is closed. */
export function openInbox(me: Waypost): Inbox {
  const [messages, events]: [Message[], WaypostEvent[]] = [[], []];
  me.on((event) => events.push(event));
  const reading = (async () => {
    for await (const message of me.messages()) {
      await message.ack();
      messages.push(message);
    }
  })();
  const next = async () => {
    await until(() => messages.length > 0);
    return messages.shift() as Message;
  };
  return { next, events, close: () => me.close().then(() => reading) };
}

export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const untilMs = Date.now() + 60_000; !(await holds()); await Bun.sleep(20))
    if (Date.now() > untilMs) throw new Error("it never came");
}
