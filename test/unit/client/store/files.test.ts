/** Content in the pieces of a local store, read in parts. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { bodyReader, pieceBytes, saveContent } from "../../../../src/client/store/files.ts";
import { Table } from "../../../../src/client/store/table.ts";

test("content that is read in parts opens each piece once, and parts may lie in any piece", async () => {
  const table = await Table.open(memoryStore(), crypto.getRandomValues(new Uint8Array(32)));
  const content = new Uint8Array(3 * pieceBytes - 5).map((_, i) => (i * 2_654_435_761) >>> 24);
  const { saved: body } = await saveContent(table, Date.now, {
    fill: (write) => write(content),
    rows: async (_, body) => body,
  });
  if (body === null) throw new Error("nothing was kept");
  const opened: string[] = [];
  const { bytes } = table;
  table.bytes = (key) => {
    opened.push(key);
    return bytes.call(table, key);
  };
  const read = bodyReader(table, body);
  const partBytes = 65_536;
  const parts: Uint8Array[] = [];
  for (let from = 0; from < content.length; from += partBytes)
    parts.push(await read(from, Math.min(from + partBytes, content.length)));
  expect(Buffer.concat(parts).equals(content)).toBe(true);
  expect([opened.length, new Set(opened).size]).toEqual([3, 3]);

  const over = [pieceBytes - 3, 2 * pieceBytes + 3] as const;
  expect(await read(...over)).toEqual(content.subarray(...over));
  expect(await read(0, 4)).toEqual(content.subarray(0, 4));
  expect(await read(9, 9)).toEqual(new Uint8Array(0));
});
