/** Loops that wait for news. */
import { expect, test } from "bun:test";
import { Wakeup } from "../../../../src/client/base/failure.ts";

test("a wait ends when it is woken, also by what came since its loop began to read, and not by what came before", async () => {
  const { signal } = new AbortController();
  const news = new Wakeup();
  let ended = "";
  const waits = async (name: string) => {
    await news.next(60_000, signal);
    ended = name;
  };
  news.begin();
  news.wake();
  await waits("woken between");
  expect(ended).toBe("woken between");
  news.begin();
  const waiting = waits("woken later");
  await Bun.sleep(0);
  expect(ended).toBe("woken between");
  news.wake();
  await waiting;
  expect(ended).toBe("woken later");
});
