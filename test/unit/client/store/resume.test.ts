/**
 * A message in chunks that was interrupted: continued for the same content and recipient and for no
 * other, and for a time.
 */
import { expect, test } from "bun:test";
import { memoryKeys } from "../../../../src/client/keys/key-stores.ts";
import { withId } from "../../../../src/client/mail/content.ts";
import { buildEnvelope, type SendPlan } from "../../../../src/client/mail/send.ts";
import { changePlans, resume } from "../../../../src/client/store/resume.ts";
import { content, from, plan } from "../../../support/send-plan.ts";

/** Each call gives its message a name, which is part of the media type. */
const planNamed = (id: string): SendPlan => ({
  ...plan,
  id,
  file: { ...plan.file, mediaType: withId(plan.file.mediaType, id) },
  timestamp: new Date().toISOString(),
});
const fresh = planNamed(plan.id);
const later = (): SendPlan => ({ ...planNamed(crypto.randomUUID()), seed: new Uint8Array(32) });

const old = { ...later(), timestamp: new Date(Date.now() - 25 * 3_600_000).toISOString() };
/** Another file of the same size. */
const file = (n: number) => ({ ...plan.file, sha256: new Uint8Array(32).fill(n) });

/** How many are kept. */
const countIn = (texts: Map<string, string>): number => {
  const text = texts.get("sending");
  expect(texts.size).toBe(text === undefined ? 0 : 1);
  return text === undefined ? 0 : (JSON.parse(text) as { plans: object[] }).plans.length;
};

async function interrupted(texts = new Map<string, string>(), at = fresh) {
  const memory = memoryKeys(texts);
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
    { file: { ...plan.file, mediaType: "image/png" } },
    { recipient: { ...plan.recipient, keyId: `${plan.to}#other` } },
  ];
  for (const other of others) {
    const wanted = { ...later(), ...other };
    const { plan: chosen, delivered } = await resume(await interrupted(), wanted);
    expect([chosen.id, delivered]).toEqual([wanted.id, 0]);
  }
});

test("what has expired begins anew, and when all is sent nothing is kept", async () => {
  const wanted = later();
  const texts = new Map<string, string>();
  const begun = await resume(await interrupted(texts, old), wanted);
  expect([begun.plan.id, begun.delivered]).toEqual([wanted.id, 0]);
  expect(countIn(texts)).toBe(1);
  await begun.save(3);
  expect(countIn(texts)).toBe(0);
});

test("what has expired is dropped with its seed, whatever is sent next or opened", async () => {
  const texts = new Map<string, string>();
  const memory = await interrupted(texts, old);
  await interrupted(texts, { ...fresh, to: from });
  expect(countIn(texts)).toBe(1);
  await interrupted(texts, { ...old, file: file(9) });
  await changePlans(memory, (sets) => sets);
  expect(countIn(texts)).toBe(1);
  expect((await resume(memory, { ...later(), to: from })).delivered).toBe(2);
});

test("files on their way to one recipient at the same time are continued each, also by processes at the same step", async () => {
  const texts = new Map<string, string>();
  const plans = [1, 2, 3].map((n) => ({ ...later(), file: file(n) }));
  const sends = await Promise.all(plans.map((one) => resume(memoryKeys(texts), one)));
  for (const { save } of sends) await save(1);
  for (const [n, one] of plans.entries()) {
    const resumed = await resume(memoryKeys(texts), { ...later(), file: one.file });
    expect([n, resumed.plan.id, resumed.delivered]).toEqual([n, one.id, 1]);
  }
  await sends[1]?.save(3);
  expect(countIn(texts)).toBe(2);
});

test("what another process has sent to its end stays sent, and no place of another is taken away", async () => {
  const texts = new Map<string, string>();
  const [mine, again] = [
    await resume(memoryKeys(texts), fresh),
    await resume(memoryKeys(texts), later()),
  ];
  await mine.save(3);
  const { plan: other } = await resume(memoryKeys(texts), { ...later(), file: file(1) });
  await again.save(3);
  expect((await resume(memoryKeys(texts), { ...later(), file: file(1) })).plan.id).toBe(other.id);
  expect(countIn(texts)).toBe(1);
});

test("the newest sixteen are kept", async () => {
  const texts = new Map<string, string>();
  const memory = memoryKeys(texts);
  const at = (n: number) => new Date(Date.now() - 60_000 + n).toISOString();
  const plans = Array.from({ length: 18 }, (_, n) => ({
    ...later(),
    file: file(n),
    timestamp: at(n),
  }));
  for (const one of plans) await (await resume(memory, one)).save(2);
  expect(countIn(texts)).toBe(16);
  for (const one of plans.slice(2))
    expect((await resume(memory, { ...one, id: "other" })).plan.id).toBe(one.id);
});
