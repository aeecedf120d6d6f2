/**
 * What a node says about itself: `waypost health <url>` asks `GET /readyz`, for supervisors and images that hold no
 * other client (exit code 0 ready, 1 not ready, 2 not ready within `--wait`); other commands ask `GET /node` whether
 * an address that a document names is one that the node answers to.
 */
import type { Command } from "commander";
import { failed, timedOut } from "../app/failure.ts";
import { errorText } from "../core/fault.ts";
import { parseSeconds, parseUrl } from "./arguments.ts";

const askTimeoutMs = 4_000;
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

// ----------------------------------------------------------------------------------------- about the node

const answerCharactersMax = 65_536;

export type JsonReply = {
  readonly status: number;
  readonly json: Readonly<Record<string, unknown>>;
  /** The clock of the node, from its `Date` header. */
  readonly dateMs: number | null;
};

type AskOptions = {
  /** Path of the socket, when the node listens on one. */
  readonly unix?: string | undefined;
  /** The address is that of a listener here, which no certificate names. */
  readonly isOwn?: boolean;
};

/** GET of a JSON object, or the reason why there is none. */
export async function askJson(url: string, path: string, options: AskOptions = {}): Promise<JsonReply | string> {
  const { unix, isOwn = false } = options;
  try {
    const response = await fetch(`${url.replace(/\/+$/, "")}${path}`, {
      signal: AbortSignal.timeout(askTimeoutMs),
      redirect: "error",
      ...(unix === undefined ? { proxy: false } : { unix }),
      ...(isOwn ? { tls: { rejectUnauthorized: false } } : {}),
    });
    const json: unknown = JSON.parse((await response.text()).slice(0, answerCharactersMax));
    if (typeof json !== "object" || json === null) return "answers without a JSON object";
    const dateMs = Date.parse(response.headers.get("date") ?? "");
    return { status: response.status, json: { ...json }, dateMs: Number.isNaN(dateMs) ? null : dateMs };
  } catch (error) {
    return error instanceof SyntaxError ? "answers, but not as a node" : errorText(error);
  }
}

type EndpointCheck =
  | { readonly state: "ok" }
  /** Nothing answers there now. */
  | { readonly state: "unreachable"; readonly reason: string }
  /** Something answers that is not a node with this role and address. */
  | { readonly state: "wrong"; readonly reason: string }
  /** The node does not offer `GET /node`. */
  | { readonly state: "unknown" };

/** Whether a node with `role` answers at `endpoint` and calls itself so. */
export async function checkEndpoint(endpoint: string, role: "relay" | "cache"): Promise<EndpointCheck> {
  const reply = await askJson(endpoint, "/node");
  if (typeof reply === "string") return { state: "unreachable", reason: reply };
  if (reply.status === 404) return { state: "unknown" };
  const { roles } = reply.json;
  if (!Array.isArray(roles) || !roles.includes(role)) return { state: "wrong", reason: `no ${role} answers there` };
  const own = reply.json[`${role}_endpoints`];
  const named = Array.isArray(own) ? own.map(String) : [];
  if (named.some((one) => sameEndpoint(one, endpoint))) return { state: "ok" };
  const names = named.length === 0 ? "has no public endpoint" : `calls itself ${named.join(", ")}`;
  return { state: "wrong", reason: `the ${role} there ${names}` };
}

/** Endpoints compare as text without trailing slashes (rules section 6). */
function sameEndpoint(a: string, b: string): boolean {
  return a.replace(/\/+$/, "") === b.replace(/\/+$/, "");
}
