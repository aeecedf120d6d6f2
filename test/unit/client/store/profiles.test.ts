/** Whose profile is kept: of people whom the user knows each, and of strangers so many. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { putProfile } from "../../../../src/client/store/profiles.ts";
import { putPerson } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const profileOf = (did: Did, atMs = 1) => ({
  did,
  name: "A",
  picture: "",
  atMs,
  isOpen: null,
});

test("500 strangers' profiles are kept and no further one, but each of people who are known, and of those again", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const strangers = Array.from({ length: 501 }, (_, n) => identityOf(`stranger ${n}`).did);
  const put = (did: Did, atMs = 1) =>
    table.change((batch) => putProfile(table, batch, profileOf(did, atMs)));
  // As the first 499 have left it.
  await table.change(async (batch) => {
    for (const did of strangers.slice(0, 499))
      await putPerson(table, batch, did, { claimed: { name: "A", atMs: 1 } });
  });
  const [last, beyond] = strangers.slice(499) as [Did, Did];
  expect([await put(last), await put(beyond)]).toEqual([true, false]);
  expect(await put(last, 2)).toBe(true);
  const friend = identityOf("friend").did;
  await table.change(
    async (batch) => void (await putPerson(table, batch, friend, { isKnown: true })),
  );
  expect(await put(friend)).toBe(true);
});
