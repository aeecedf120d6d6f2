/** Work that runs once at a time and once more when it was called for meanwhile. */
import { expect, test } from "bun:test";
import { singleFlight } from "../../../../src/plugins/chain/session.ts";

test("work that is called for at any moment of a run is done once more, one at a time", async () => {
  for (let moment = 0; moment < 16; moment++) {
    let [news, seen, running, most] = [1, 0, 0, 0];
    const call = singleFlight(async () => {
      most = Math.max(most, ++running);
      await null;
      seen = news;
      running--;
    });
    call();
    for (let tick = 0; tick < moment; tick++) await null;
    news = 2;
    call();
    call();
    await Bun.sleep(0);
    expect([moment, seen, most]).toEqual([moment, 2, 1]);
  }
});
