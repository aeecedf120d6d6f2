/** People whose names look the same. */
import { expect, test } from "bun:test";
import type { Person } from "../../../src/client/package.ts";
import type { Did } from "../../../src/core/codec/did.ts";
import { twinsOf } from "../../../src/web/text.ts";

const person = (did: string, name: string, claimed = ""): Person => ({
  did: did as Did,
  name,
  alias: null,
  isKnown: name !== "",
  isBlocked: false,
  claimed: { name: claimed, atMs: 0 },
});

test("what is not seen, accents, case and width make no other name", () => {
  const same = [
    "Bob",
    "B\u200bob",
    "bob",
    "B\u00adob\u2060",
    "\uff22ob",
    "Bo\u0301b",
    "Bo b",
    "B\u034fob",
  ];
  for (const name of same)
    expect(twinsOf([person("did:svc:a", "bob"), person("did:svc:b", name)]).size).toBe(2);
  for (const name of ["Rob", "Bo", "\u200b", "\u200b \u3164", ""])
    expect(twinsOf([person("did:svc:a", "bob"), person("did:svc:b", name)]).size).toBe(0);
});

test("a stranger who takes a friend's name makes both names longer, and no one else's", () => {
  const people = [
    person("did:svc:a", "Bob"),
    person("did:svc:b", "", "B\u200bob"),
    person("did:svc:c", "Carol", "Bob"),
    person("did:svc:d", ""),
    person("did:svc:e", "", "\u200b"),
  ];
  expect(twinsOf(people)).toEqual(new Set(["did:svc:a", "did:svc:b"]));
});
