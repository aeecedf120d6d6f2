/** What goes out in the background, such as receipts of an identity without a local store, while the Relay is away. */
import { afterEach, expect, jest, test } from "bun:test";
import { ClientError } from "../../../src/client/http.ts";
import { persist } from "../../../src/client/receiver.ts";

const away = new ClientError("refused", "cache_unavailable", "away", { status: 502 });
const refused = new ClientError("refused", "recipient_blocked", "no", { status: 403 });

afterEach(() => {
  jest.useRealTimers();
});

/** Work that fails so many times, as an `Error` says. */
function failing(times: number, error: ClientError) {
  const state = { tries: 0 };
  const work = async () => {
    if (state.tries++ < times) throw error;
  };
  return { state, work };
}

async function pass(turns: number): Promise<void> {
  for (let i = 0; i < turns; i++) {
    jest.advanceTimersByTime(30_000);
    for (let n = 0; n < 20; n++) await Promise.resolve();
  }
}

test("is repeated until it is done", async () => {
  jest.useFakeTimers();
  const { state, work } = failing(9, away);
  const done = persist(work, new AbortController().signal);
  await pass(20);
  await done;
  expect(state.tries).toBe(10);
});

test("ends with a refusal for good", async () => {
  const { state, work } = failing(9, refused);
  expect(await persist(work, new AbortController().signal).catch((error: unknown) => error)).toBe(refused);
  expect(state.tries).toBe(1);
});

test("is given up when receiving ends", async () => {
  jest.useFakeTimers();
  const { state, work } = failing(9, away);
  const end = new AbortController();
  const done = persist(work, end.signal).catch((error: unknown) => error);
  for (let n = 0; n < 20; n++) await Promise.resolve();
  end.abort();
  expect([await done, state.tries]).toEqual([away, 1]);
});
