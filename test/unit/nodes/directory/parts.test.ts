/**
 * The edges of the two time rules of the Directory, to the millisecond; and which submissions it
 * reports.
 * Source: rules section 4 ("Signing order of checks", "Registration proof").
 */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { fault } from "../../../../src/core/fault.ts";
import type { LedgerCall } from "../../../../src/core/ledger/calls.ts";
import { encodeAuthorization } from "../../../../src/core/ledger/structures.ts";
import {
  checkEnd,
  checkFreshness,
  type DirectoryParts,
  submit,
} from "../../../../src/nodes/directory/parts.ts";
import type { Ledger, Submission } from "../../../../src/storage/contract.ts";

const nowMs = 1_800_000_000_000;
const did = "did:svc:1111111111111111111111" as Did;

/** A call of the root key that ends a DID. */
const controlCall = (action: "deactivate_did" | "delete_did"): LedgerCall => ({
  name: "apply_control_with_proof",
  did,
  signedPayload: encodeAuthorization(
    { action, did },
    { nonce: 0n, validUntilMs: 0n, signerKeyId: "root" },
  ),
  signature: new Uint8Array(64),
  signerKeyId: "root",
});

test.each([
  [-300_001, "authorization_expired"],
  [-300_000, undefined],
  [300_000, undefined],
  [300_001, "authorization_too_far_ahead"],
] as const)("a timestamp %d ms from now, with a skew of 5 minutes", (offsetMs, code) => {
  expect(checkFreshness(nowMs + offsetMs, nowMs, 300_000)?.code).toBe(code);
});

test.each([
  [0n, "authorization_expired"],
  [1n, undefined],
  [3_600_000n, undefined],
  [3_600_001n, "authorization_too_far_ahead"],
  [18_446_744_073_709_551_615n - BigInt(nowMs), "authorization_too_far_ahead"],
] as const)("an end %d ms ahead, with a window of 1 hour", (aheadMs, code) => {
  const rule = { aheadMsMax: 3_600_000, pointer: "/valid_until" };
  expect(checkEnd(BigInt(nowMs) + aheadMs, nowMs, rule)?.code).toBe(code);
});

test("an accepted submission is reported, a refused one is not", async () => {
  const reported: string[] = [];
  const parts = (answer: Awaited<ReturnType<Ledger["submit"]>>) => {
    const ledger: Partial<Ledger> = { submit: async () => answer };
    return {
      ledger,
      onSubmitted: (call: LedgerCall) => reported.push(call.name),
    } as Partial<DirectoryParts>;
  };
  const accepted = { txHash: "0x1" } as Submission;
  const call = controlCall("deactivate_did");
  expect(await submit(parts(accepted) as DirectoryParts, call, "test")).toBe(accepted);
  const refusal = fault("nonce_mismatch", "stale");
  expect(await submit(parts(refusal) as DirectoryParts, call, "test")).toBe(refusal);
  expect(reported).toEqual(["apply_control_with_proof"]);
});

test("a deletion is expected before it is submitted, and no longer once it is refused", async () => {
  const steps: string[] = [];
  const parts = (answer: Awaited<ReturnType<Ledger["submit"]>>) => {
    const submitted = async () => {
      steps.push("submitted");
      return answer;
    };
    const expectDeletion = async () => {
      steps.push("expected");
      return async () => void steps.push("taken back");
    };
    return {
      ledger: { submit: submitted } as Partial<Ledger>,
      expectDeletion,
    } as Partial<DirectoryParts>;
  };
  await submit(
    parts({ txHash: "0x1" } as Submission) as DirectoryParts,
    controlCall("delete_did"),
    "test",
  );
  expect(steps.splice(0)).toEqual(["expected", "submitted"]);
  await submit(
    parts(fault("nonce_mismatch", "stale")) as DirectoryParts,
    controlCall("delete_did"),
    "test",
  );
  expect(steps.splice(0)).toEqual(["expected", "submitted", "taken back"]);
  await submit(
    parts({ txHash: "0x1" } as Submission) as DirectoryParts,
    controlCall("deactivate_did"),
    "test",
  );
  expect(steps).toEqual(["submitted"]);
});
