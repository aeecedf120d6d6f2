/**
 * Whether the documents still authorize the sessions that are open: also when no envelope
 * comes, since a session learns when something was stored, and keeps phones from being
 * woken. A look costs one read of the recipient.
 * Source: rules section 5 "Devices"; docs/interface.md, "Live sessions".
 */
import { decodeUtf8 } from "../../../core/codec/bytes.ts";
import type { Did } from "../../../core/codec/did.ts";
import { secondMs } from "../../../core/codec/time.ts";
import type { Bus } from "../../../storage/bus.ts";
import { StoreError } from "../../../storage/contract.ts";
import { changedSubject } from "../../parties/signals.ts";
import { closeCodes, isAuthorized, type SessionRegistry, shut } from "./registry.ts";

/** After a change was submitted: when it may be in force. */
const changedAfterMs = [1, 4, 12, 30].map((seconds) => seconds * secondMs);

/**
 * Ends the sessions of a DID that its document no longer authorizes. Never rejects: a
 * failing store ends none.
 */
export async function endUnauthorized(registry: SessionRegistry, did: Did): Promise<void> {
  try {
    const document = (await registry.recipients.subject(did))?.document ?? null;
    for (const socket of [...(registry.proven.get(did) ?? [])])
      if (!isAuthorized(socket.data, document))
        shut(socket, closeCodes.unauthorized, "the document no longer authorizes this session");
  } catch (error) {
    if (!(error instanceof StoreError))
      registry.log("error", "a live session could not be looked at", { error: String(error) });
  }
}

/** Looks again from time to time, as long as the session is open. Returns what ends that. */
export function lookAgain(registry: SessionRegistry, did: Did): () => void {
  const timer = setInterval(() => void endUnauthorized(registry, did), registry.bounds.lookMs);
  timer.unref();
  return () => clearInterval(timer);
}

/**
 * Looks soon after this installation has taken a change of the document. Returns what ends
 * that.
 */
export function followChanges(registry: SessionRegistry, bus: Pick<Bus, "subscribe">): () => void {
  const timers = new Set<ReturnType<typeof setTimeout>>();
  const later = (did: Did, afterMs: number) => {
    const timer = setTimeout(() => {
      timers.delete(timer);
      void endUnauthorized(registry, did);
    }, afterMs);
    timer.unref();
    timers.add(timer);
  };
  const { unsubscribe } = bus.subscribe(changedSubject, (message) => {
    const did = (decodeUtf8(message) ?? "") as Did;
    if (registry.proven.has(did)) for (const afterMs of changedAfterMs) later(did, afterMs);
    return undefined;
  });
  return () => {
    unsubscribe();
    for (const timer of timers) clearTimeout(timer);
  };
}
