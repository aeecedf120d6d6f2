/** Shares of a mailbox: who counts under which label, and how much each may hold. */
import { describe, expect, test } from "bun:test";
import { labelsOf, type Origin, type Sending, sharesOf } from "../../../../src/nodes/cache/shares.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "198.51.100.7" };
const near: Origin = { client: "127.0.0.1", network: "127.0.0.1" };
const friend: Sending = { label: "from:a", known: true };
const newcomer: Sending = { label: "from:a", known: false };
const mebibyte = 1024 ** 2;
const settings = {
  ...cacheDefault,
  recipient_entries_max: 1_000,
  recipient_bytes_max: 100 * mebibyte,
  stranger_share: 50,
  network_share: 20,
  rate_limit_loopback: false,
};

describe("an entry", () => {
  test("of a known sender counts for itself, of a new one for the strangers and its network too", () => {
    expect(labelsOf(friend, far)).toEqual(["from:a"]);
    expect(labelsOf(newcomer, far).slice(0, 2)).toEqual(["from:a", "new"]);
    expect(labelsOf("unsigned", far)[0]).toBe("new");
    expect(labelsOf("unsigned", far)).not.toEqual(labelsOf("unsigned", near));
  });

  test("holds at most its share, and an unsigned one leaves a fifth of the network's to those who sign", () => {
    const entries = (sending: Sending, origin: Origin) =>
      sharesOf(sending, origin, settings).map((one) => one.entriesMax);
    expect(entries(friend, far)).toEqual([500]);
    expect(entries(newcomer, far)).toEqual([500, 200]);
    expect(entries("unsigned", far)).toEqual([500, 160]);
    expect(entries(newcomer, near)).toEqual([500, 300]);
    expect(sharesOf(newcomer, far, settings).map((one) => one.bytesMax)).toEqual([50 * mebibyte, 20 * mebibyte]);
  });
});

test("however small a mailbox is, a share holds 100 entries and a mebibyte", () => {
  const small = { ...settings, recipient_entries_max: 10, recipient_bytes_max: 2 * mebibyte };
  for (const share of sharesOf("unsigned", far, small)) {
    expect([share.entriesMax, share.bytesMax]).toEqual([100, mebibyte]);
  }
});
