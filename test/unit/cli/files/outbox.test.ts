/** The state of a chunk set on its way: found again for the same file and for no other, and thrown away in time. */
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { findUnfinished, saveOutgoing } from "../../../../src/cli/files/outbox.ts";
import { buildEnvelope, type SendPlan } from "../../../../src/client/send.ts";
import { scratchPaths } from "../../../support/scratch.ts";
import { content, from, plan } from "../../../support/send-plan.ts";

const freshPath = scratchPaths("send");

describe("the state of a set on its way", () => {
  const nowMs = Date.parse(plan.timestamp) + 1_000;

  test("is found again for the same file, recipient and sender, and for no other", async () => {
    const folder = freshPath();
    await saveOutgoing(folder, plan, 2);
    const wanted = { ...plan, seed: new Uint8Array(32), timestamp: "2026-07-16T12:00:30.000Z" };
    const found = await findUnfinished(folder, wanted, nowMs);
    expect(found?.delivered).toBe(2);
    const resumed = { ...(found?.plan ?? plan), sender: plan.sender };
    expect(buildEnvelope(resumed, 2, content.subarray(2_000))).toEqual(buildEnvelope(plan, 2, content.subarray(2_000)));
    const others: SendPlan[] = [
      { ...wanted, to: from },
      { ...wanted, sender: null },
      { ...wanted, chunkBytes: 999 },
      { ...wanted, tag: null },
      { ...wanted, file: { ...plan.file, sha256: new Uint8Array(32) } },
      { ...wanted, recipient: { ...plan.recipient, keyId: `${plan.to}#other` } },
    ];
    for (const other of others) expect(await findUnfinished(folder, other, nowMs)).toBeNull();
    // A recipient that has replaced its key holds the old secret: the set goes on as it began, byte for byte.
    const rotated = { ...wanted, recipient: { ...plan.recipient, publicKey: new Uint8Array(32) } };
    expect((await findUnfinished(folder, rotated, nowMs))?.plan.recipient).toEqual(plan.recipient);
  });

  test("is thrown away when its messages have expired", async () => {
    const folder = freshPath();
    await saveOutgoing(folder, plan, 2);
    expect(await findUnfinished(folder, plan, nowMs + 25 * 3_600_000)).toBeNull();
    expect(readdirSync(folder)).toEqual([]);
  });
});
