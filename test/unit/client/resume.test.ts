/** A message in chunks that was interrupted: continued for the same content and recipient and for no other, and for a time. */
import { expect, test } from "bun:test";
import { resume } from "../../../src/client/resume.ts";
import { buildEnvelope, type SendPlan } from "../../../src/client/send.ts";
import { processMemory } from "../../../src/client/trust/trust.ts";
import { content, from, plan } from "../../support/send-plan.ts";

const fresh: SendPlan = { ...plan, timestamp: new Date().toISOString() };
const later = (): SendPlan => ({ ...fresh, id: crypto.randomUUID(), seed: new Uint8Array(32) });

async function interrupted(texts = new Map<string, string>(), at = fresh) {
  const memory = processMemory(texts);
  await (await resume(memory, at)).save(2);
  return memory;
}

test("the same content goes on with the same bytes, also when the recipient has replaced its key", async () => {
  const memory = await interrupted();
  const wanted = { ...later(), recipient: { ...plan.recipient, publicKey: new Uint8Array(32) } };
  const resumed = await resume(memory, wanted);
  expect(resumed.delivered).toBe(2);
  expect(await buildEnvelope(resumed.plan, 2, content.subarray(2_000))).toEqual(
    await buildEnvelope(fresh, 2, content.subarray(2_000)),
  );
});

test("other content, another recipient, signer or chunk size begin anew", async () => {
  const others: readonly Partial<SendPlan>[] = [
    { to: from },
    { sender: null },
    { chunkBytes: 999 },
    { tag: null },
    { file: { ...plan.file, sha256: new Uint8Array(32) } },
    { recipient: { ...plan.recipient, keyId: `${plan.to}#other` } },
  ];
  for (const other of others) {
    const wanted = { ...later(), ...other };
    const { plan: chosen, delivered } = await resume(await interrupted(), wanted);
    expect([chosen.id, delivered]).toEqual([wanted.id, 0]);
  }
});

test("what has expired begins anew, and when all is sent nothing is kept", async () => {
  const old = { ...fresh, timestamp: new Date(Date.now() - 25 * 3_600_000).toISOString() };
  const wanted = later();
  const texts = new Map<string, string>();
  const begun = await resume(await interrupted(texts, old), wanted);
  expect([begun.plan.id, begun.delivered]).toEqual([wanted.id, 0]);
  expect(texts.size).toBe(1);
  await begun.save(3);
  expect(texts.size).toBe(0);
});
