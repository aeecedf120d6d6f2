/**
 * Waiting for settlement: a `202` is not final. Every wait ends with the expected state, with the ledger's refusal, or
 * with `timed_out`. Reads that fail temporarily are tried again.
 * Source: interface "States and transitions", docs/ledger.md 3.1 ("Confirmation after 202").
 */
import type { NonceDomain } from "../core/ledger/actions.ts";
import type { RegistrationStatus, Resolved } from "./answers.ts";
import type { DirectoryClient } from "./directory.ts";
import { ClientError, orNull } from "./http.ts";

export type Waiting = {
  readonly timeoutMs: number;
  /** Between two reads. */
  readonly intervalMs: number;
  /** Called after each read that did not end the wait. */
  readonly onProgress?: (elapsedMs: number, state: string) => void;
};

export const waitingDefault: Waiting = { timeoutMs: 120_000, intervalMs: 250 };

/** `null` from `look` means: not yet; a string names the state in between. */
async function waitUntil<T>(look: () => Promise<T | string>, waiting: Waiting): Promise<Exclude<T, string>> {
  const begunMs = performance.now();
  for (;;) {
    const seen = await look().catch((error: unknown) => {
      if (isPassing(error)) return error instanceof ClientError ? error.code : "unreachable";
      throw error;
    });
    if (typeof seen !== "string") return seen as Exclude<T, string>;
    const elapsedMs = performance.now() - begunMs;
    if (elapsedMs + waiting.intervalMs > waiting.timeoutMs) {
      const waitedS = waiting.timeoutMs / 1_000;
      throw new ClientError("timed_out", "timed_out", `not settled after ${waitedS} s, last seen: ${seen}`);
    }
    waiting.onProgress?.(elapsedMs, seen);
    await new Promise((resolve) => setTimeout(resolve, waiting.intervalMs));
  }
}

const passingStatuses = [425, 429, 500, 502, 503, 504];

function isPassing(error: unknown): boolean {
  if (!(error instanceof ClientError)) return false;
  if (error.kind === "unreachable" || error.kind === "timed_out") return true;
  return error.kind === "refused" && passingStatuses.includes(error.status ?? 0);
}

export type ConfirmedRegistration = RegistrationStatus & { readonly registration_status: "confirmed" };

/** Waits for `confirmed`. A registration that the ledger refused ends the wait with its reason. */
export function confirmRegistration(
  directory: DirectoryClient,
  registered: { readonly did: string; readonly tx_id: string },
  waiting: Waiting,
): Promise<ConfirmedRegistration> {
  return waitUntil(async () => {
    const status = await directory.registrationStatus(registered.did);
    if (status.registration_status === "confirmed") return status as ConfirmedRegistration;
    if (status.registration_status === "missing") await throwIfFailed(directory, registered.tx_id);
    return status.registration_status;
  }, waiting);
}

type Expected = {
  readonly did: string;
  readonly txHash: string;
  /** The counter that the change uses up, and the value it was signed with. */
  readonly counter: { readonly domain: NonceDomain; readonly value: bigint } | null;
  /** Whether the record shows the change. */
  readonly holds: (record: Resolved) => boolean;
};

/** Waits until the counter has moved on and the record shows the change. */
export function confirmChange(directory: DirectoryClient, expected: Expected, waiting: Waiting): Promise<Resolved> {
  return waitUntil(async () => {
    const submission = await throwIfFailed(directory, expected.txHash);
    if (expected.counter !== null) {
      const nonces = await directory.nonces(expected.did);
      if (BigInt(nonces[expected.counter.domain] ?? "0") <= expected.counter.value) return submission ?? "pending";
    } else if (submission !== null && submission !== "finalized") {
      return submission;
    }
    const record = await directory.resolve(expected.did);
    return expected.holds(record) ? record : "not yet in the record";
  }, waiting);
}

/** Waits until the DID is gone. */
export async function confirmDeletion(
  directory: DirectoryClient,
  deleted: { readonly did: string; readonly txHash: string },
  waiting: Waiting,
): Promise<void> {
  await waitUntil(async () => {
    const submission = await throwIfFailed(directory, deleted.txHash);
    const status = await directory.registrationStatus(deleted.did);
    return status.registration_status === "missing" ? null : (submission ?? status.registration_status);
  }, waiting);
}

/** The state of a submission, `null` when the node no longer knows it. Throws the ledger's refusal. */
async function throwIfFailed(directory: DirectoryClient, txHash: string): Promise<string | null> {
  const submission = await orNull(directory.submission(txHash), "not_found");
  if (submission === null) return null;
  if (submission.state !== "failed" && submission.state !== "dropped") return submission.state;
  const { code, message } = submission.reason ?? { code: "dropped", message: "the ledger dropped the submission" };
  throw new ClientError("refused", code, message, { answer: submission });
}
