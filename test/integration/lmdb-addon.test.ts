/**
 * The addon of lmdb that this program loads and embeds can't overflow when a write to the disk
 * fails.
 */
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isMended, mended } from "../../packaging/addon.ts";

const packages = join(import.meta.dir, "../../node_modules/@lmdb");
const addons = readdirSync(packages, { recursive: true, encoding: "utf8" }).filter((name) =>
  name.endsWith(".node"),
);
const long = "Attempting to write page at position %u, size %u, blocks %u, buffer sizes %i %i %i\0";
const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest();

test("every installed addon is mended", () => {
  expect(addons.length).toBeGreaterThan(0);
  for (const name of addons)
    expect([name, isMended(readFileSync(join(packages, name)))]).toEqual([name, true]);
});

test("the text that is too long is replaced in its place, and fits when it is filled in", () => {
  const addon = Buffer.concat([Buffer.alloc(4_100, 7), Buffer.from(long), Buffer.alloc(5_000, 9)]);
  const result = mended(addon);
  expect([isMended(addon), isMended(result), result.length]).toEqual([false, true, addon.length]);
  const text = result.subarray(4_100, result.indexOf(0, 4_100)).toString();
  expect(text.replaceAll("%u", String(2 ** 32 - 1)).length).toBeLessThan(100);
  expect(result.subarray(0, 4_100)).toEqual(addon.subarray(0, 4_100));
  expect(result.subarray(4_100 + long.length)).toEqual(addon.subarray(4_100 + long.length));
});

test.each([4_096, 16_384])(
  "pages of %d bytes that an addon lists with their checksums keep a right one",
  (pageBytes) => {
    const pages = Buffer.concat([
      Buffer.alloc(pageBytes, 1),
      Buffer.from(long.padEnd(pageBytes, "x")),
    ]);
    const sums = [0, 1].map((n) => sha256(pages.subarray(n * pageBytes, (n + 1) * pageBytes)));
    const result = mended(Buffer.concat([pages, ...sums]));
    const listed = [0, 1].map((n) =>
      result.subarray(2 * pageBytes + 32 * n, 2 * pageBytes + 32 * (n + 1)),
    );
    expect(listed).toEqual(
      [0, 1].map((n) => sha256(result.subarray(n * pageBytes, (n + 1) * pageBytes))),
    );
  },
);
