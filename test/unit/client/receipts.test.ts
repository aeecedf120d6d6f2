/** Receipts of an identity without a local store, while the Relay of the recipient is away. */
import { afterEach, expect, jest, test } from "bun:test";
import { ClientError } from "../../../src/client/http.ts";
import { Receipts } from "../../../src/client/receipts.ts";
import type { Did } from "../../../src/core/codec/did.ts";

const alice = "did:svc:1111111111111111" as Did;
const away = new ClientError("refused", "cache_unavailable", "away", { status: 502 });

afterEach(() => {
  jest.useRealTimers();
});

/** A Relay that gives the answers one after the other; an `Error` refuses. Each receipt is the text of its ids. */
function relayOf(answers: readonly (ClientError | null)[]) {
  const posted: string[] = [];
  const failures: string[] = [];
  const host = {
    prepare: async (_: Did, content: unknown) => {
      const { delivered } = content as { delivered: string[] };
      return async () => {
        posted.push(delivered.join(" "));
        const answer = answers[posted.length - 1] ?? null;
        if (answer !== null) throw answer;
      };
    },
    failed: (error: ClientError) => void failures.push(error.code),
  };
  return { host, posted, failures };
}

async function pass(turns: number): Promise<void> {
  for (let i = 0; i < turns; i++) {
    jest.advanceTimersByTime(30_000);
    for (let n = 0; n < 20; n++) await Promise.resolve();
  }
}

test("a receipt is repeated until the Relay has it, and the next one names all that came meanwhile", async () => {
  jest.useFakeTimers();
  const { host, posted, failures } = relayOf(Array.from({ length: 9 }, () => away));
  const receipts = new Receipts(host, new AbortController().signal);
  for (const id of ["a", "b", "c"]) receipts.add(alice, id);
  await pass(20);
  expect(posted).toEqual([...Array.from({ length: 10 }, () => "a"), "b c"]);
  receipts.add(alice, "d");
  await pass(1);
  expect([posted.at(-1), failures]).toEqual(["d", []]);
});

test("a refusal for good and the end of receiving are reported, and what is due is tried once more", async () => {
  jest.useFakeTimers();
  const refused = new ClientError("refused", "recipient_blocked", "no", { status: 403 });
  const { host, posted, failures } = relayOf([refused, away, away]);
  const end = new AbortController();
  const receipts = new Receipts(host, end.signal);
  receipts.add(alice, "a");
  await pass(1);
  receipts.add(alice, "b");
  receipts.add(alice, "c");
  for (let n = 0; n < 20; n++) await Promise.resolve();
  end.abort();
  for (let n = 0; n < 40; n++) await Promise.resolve();
  expect(posted).toEqual(["a", "b", "b", "c"]);
  expect(failures).toEqual(["recipient_blocked", "cache_unavailable"]);
});
