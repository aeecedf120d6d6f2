/**
 * One live session at a Relay.
 * Source: interface "Live sessions", rules section 5.
 */
import { parseUuid } from "../../core/codec/did.ts";
import { dayMs, parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { ackMembers } from "../../core/message/proof.ts";
import { ClientError, localError } from "../base/failure.ts";
import { parseRecord } from "../base/shapes.ts";
import type { EnvelopeJson, LiveEnvelope } from "./caches.ts";
import { path } from "./http.ts";
import { proveRequest, type Reader } from "./reader.ts";

type LiveEvents = {
  /**
   * The Relay has accepted the session: later messages arrive here, earlier ones are in the Caches.
   */
  readonly onReady: () => void;
  /**
   * Whether the envelope is taken over and acknowledged; otherwise it is passed to the next
   * destination. Its sender waits.
   */
  readonly onEnvelope: (envelope: LiveEnvelope) => Promise<boolean>;
  /** A Cache of the same process as the Relay has stored something. */
  readonly onStored?: () => void;
};

const welcomeMs = 10_000;
const closingMs = 1_000;
/** Close codes of a proof that was refused: trying again would not help. */
const refusedCodes: Readonly<Record<number, string>> = {
  4401: "proof_invalid",
  4403: "proof_not_authorized",
  4409: "proof_replayed",
};

/**
 * Listens until the session ends or `signal` is aborted. Throws `refused` when the Relay refuses
 * the proof, and `unreachable` when the Relay can't be reached.
 */
export async function listenLive(
  reader: Reader,
  device: string,
  events: LiveEvents,
  signal: AbortSignal,
): Promise<void> {
  if (typeof WebSocket === "undefined")
    throw localError("no_websocket", "this runtime has no WebSocket");
  const at = path`/ws/${reader.did}/${device}`;
  const socket = new WebSocket(`${reader.at.url.replace(/^http/, "ws")}${at}?pass=1`);
  let isReady = false;
  let close: () => void = () => undefined;
  const ended = new Promise<{ readonly code: number; readonly reason: string }>(
    (resolve, reject) => {
      // Closing needs an answer, and a dead network gives none.
      close = () => {
        socket.close(1000, "done");
        setTimeout(() => resolve({ code: 1006, reason: "" }), closingMs);
      };
      socket.addEventListener("close", resolve);
      socket.addEventListener(
        "open",
        () => void authFrame(reader, device).then((frame) => socket.send(frame), reject),
      );
      socket.addEventListener("message", ({ data }) => {
        const frame = typeof data === "string" ? parseRecord(data) : null;
        if (isReady) void receiveFrame(socket, frame, { reader, events }).catch(reject);
        else if (frame?.["type"] === "welcome" && frame["status"] === "ok") {
          isReady = true;
          events.onReady();
        }
      });
    },
  );
  const late = setTimeout(() => isReady || close(), welcomeMs);
  signal.addEventListener("abort", close);
  try {
    const { code, reason } = await ended;
    const refused = refusedCodes[code];
    if (refused !== undefined)
      throw new ClientError("refused", refused, reason || "the Relay refused the proof");
    if (!isReady && !signal.aborted)
      throw new ClientError("unreachable", "unreachable", `${reader.at.url} can't be reached`);
  } finally {
    clearTimeout(late);
    signal.removeEventListener("abort", close);
    socket.close(1000, "done");
  }
}

async function authFrame(reader: Reader, device: string): Promise<string> {
  const names = { ...ackMembers, endpoint: "endpoint" };
  return JSON.stringify({
    type: "auth",
    ...(await proveRequest(reader, { operation: "connect", subject: device }, names)),
  });
}

/** A frame that is not an envelope to this recipient is not acknowledged; the Relay handles it. */
async function receiveFrame(
  socket: WebSocket,
  frame: Record<string, unknown> | null,
  { reader, events }: { readonly reader: Reader; readonly events: LiveEvents },
): Promise<void> {
  if (frame?.["type"] === "stored") events.onStored?.();
  const messageId =
    typeof frame?.["message_id"] === "string" ? parseUuid(frame["message_id"]) : null;
  if (frame === null || messageId === null || frame["to"] !== reader.did) return;
  const envelope = {
    messageId,
    expiresAtMs: envelopeExpiresAtMs(frame),
    envelope: frame as EnvelopeJson,
  };
  const type = (await events.onEnvelope(envelope)) ? "ack" : "pass";
  if (socket.readyState === WebSocket.OPEN)
    socket.send(JSON.stringify({ type, message_id: messageId }));
}

function envelopeExpiresAtMs({ timestamp, ttl }: Record<string, unknown>): number {
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const lifeMs = typeof ttl === "string" ? parseDuration(ttl) : null;
  return (sentAtMs ?? Date.now()) + (lifeMs ?? dayMs);
}
