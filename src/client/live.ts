/**
 * Live sessions at a Relay: one socket for each, whose first frame is signed as a reader's requests are. Loaded when a
 * program begins to receive.
 * Source: interface "Live sessions", rules section 5.
 */
import { parseUuid } from "../core/codec/did.ts";
import type { JsonObject } from "../core/codec/json.ts";
import { dayMs, parseDuration, parseTimestamp } from "../core/codec/time.ts";
import { parseRecord } from "./answers.ts";
import { ClientError, localError, path } from "./http.ts";
import { prove, type Reader } from "./reader.ts";

/** An envelope as JSON, from a Cache or a live session: untrusted. */
export type EnvelopeJson = Readonly<JsonObject>;

export type LiveEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: EnvelopeJson;
};

export type LiveEvents = {
  /** The Relay has accepted the session: later messages arrive here, earlier ones are in the Caches. */
  readonly onReady: () => void;
  /** Resolves with whether the envelope is stored. Only then it is acknowledged. */
  readonly onEnvelope: (chunk: LiveEnvelope) => Promise<boolean>;
};

/** Where the runtime can ping, a Relay that disappeared is noticed after three of these. */
const pingMs = 20_000;
const welcomeMs = 10_000;
const closingMs = 1_000;
/** Close codes of a proof that was refused: trying again would not help. */
const refusedCodes: Readonly<Record<number, string>> = {
  4401: "proof_invalid",
  4403: "proof_not_authorized",
  4409: "proof_replayed",
};

/**
 * Listens until the session ends or `signal` is aborted. Throws `refused` when the Relay refuses the proof, and
 * `unreachable` when the Relay can't be reached.
 */
export async function listenLive(reader: Reader, events: LiveEvents, signal: AbortSignal): Promise<void> {
  if (reader.deviceId === "") throw localError("no_device", "a live session needs the name of a device");
  const url = `${reader.at.url.replace(/^http/, "ws")}${path`/ws/${reader.did}/${reader.deviceId}`}`;
  if (typeof WebSocket === "undefined") throw localError("no_websocket", "this runtime has no WebSocket");
  const socket = new WebSocket(url);
  let ready = false;
  let heardMs = performance.now();
  let failure: unknown = null;
  const { ended, close } = endingOf(socket);
  const fail = (cause: unknown) => {
    failure ??= cause;
    close();
  };
  socket.addEventListener("open", () => void authFrame(reader).then((frame) => socket.send(frame), fail));
  socket.addEventListener("pong", () => {
    heardMs = performance.now();
  });
  socket.addEventListener("message", ({ data }) => {
    heardMs = performance.now();
    const frame = typeof data === "string" ? parseRecord(data) : null;
    if (ready) void receiveFrame(socket, frame, { reader, events }).catch(fail);
    else if (frame?.["type"] === "welcome" && frame["status"] === "ok") {
      ready = true;
      events.onReady();
    }
  });
  const watch = setInterval(() => {
    if (!("ping" in socket) || typeof socket.ping !== "function") return;
    if (performance.now() - heardMs > 3 * pingMs) fail(null);
    else socket.ping();
  }, pingMs);
  const late = setTimeout(() => ready || fail(null), welcomeMs);
  const abort = () => close();
  signal.addEventListener("abort", abort);
  const { code, reason } = await ended;
  clearInterval(watch);
  clearTimeout(late);
  signal.removeEventListener("abort", abort);
  if (failure !== null) throw failure;
  const refused = refusedCodes[code];
  if (refused !== undefined) throw new ClientError("refused", refused, reason || "the Relay refused the proof");
  if (!ready && !signal.aborted)
    throw new ClientError("unreachable", "unreachable", `${reader.at.url} can't be reached`);
}

type Ending = { readonly code: number; readonly reason: string };

/** Closing needs an answer, and a dead network gives none: after a second the session counts as ended. */
function endingOf(socket: WebSocket): { readonly ended: Promise<Ending>; readonly close: () => void } {
  let end: (ending: Ending) => void = () => undefined;
  const ended = new Promise<Ending>((resolve) => {
    end = resolve;
  });
  socket.addEventListener("close", ({ code, reason }) => end({ code, reason }));
  const close = () => {
    socket.close(1000, "done");
    setTimeout(() => end({ code: 1006, reason: "" }), closingMs);
  };
  return { ended, close };
}

async function authFrame(reader: Reader): Promise<string> {
  const { timestamp, nonce, signature } = await prove(reader, "connect", reader.deviceId);
  return JSON.stringify({
    type: "auth",
    service_id: reader.serviceId,
    endpoint: reader.at.url,
    key_id: reader.signer.keyId,
    timestamp,
    nonce,
    signature_b64: signature,
  });
}

/** Frames that are not an envelope to this recipient are not acknowledged; the Relay handles them. */
async function receiveFrame(
  socket: WebSocket,
  frame: Record<string, unknown> | null,
  { reader, events }: { readonly reader: Reader; readonly events: LiveEvents },
): Promise<void> {
  const messageId = typeof frame?.["message_id"] === "string" ? parseUuid(frame["message_id"]) : null;
  if (frame === null || messageId === null || frame["to"] !== reader.did) return;
  const envelope = { messageId, expiresAtMs: expiryOf(frame), envelope: frame as EnvelopeJson };
  if (!(await events.onEnvelope(envelope)) || socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ type: "ack", message_id: messageId }));
}

function expiryOf({ timestamp, ttl }: Record<string, unknown>): number {
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const lifeMs = typeof ttl === "string" ? parseDuration(ttl) : null;
  return (sentAtMs ?? Date.now()) + (lifeMs ?? dayMs);
}
