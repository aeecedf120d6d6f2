/** Texts of invitations: whose they are, until when, and that nothing in them can be changed. */
import { expect, test } from "bun:test";
import { makeInvitation, openInvitation } from "../../../../src/client/store/invitations.ts";

const seed = new Uint8Array(32).fill(7);
const nowMs = Date.UTC(2026, 10, 28);

test("one opens under the keys that made it, until its time", () => {
  for (const isOnce of [true, false]) {
    const text = makeInvitation(seed, { untilMs: nowMs + 60_000, isOnce });
    expect(openInvitation(seed, text, nowMs)).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{16}$/),
      isOnce,
    });
    expect(openInvitation(seed, text, nowMs + 60_000)).toBeNull();
    expect(openInvitation(new Uint8Array(32), text, nowMs)).toBeNull();
  }
});

test("no character of it can be another one, and none be added or left out", () => {
  const text = makeInvitation(seed, { untilMs: nowMs + 60_000, isOnce: true });
  for (let i = 0; i < text.length; i++) {
    const other = text[i] === "0" ? "1" : "0";
    expect(openInvitation(seed, text.slice(0, i) + other + text.slice(i + 1), nowMs)).toBeNull();
  }
  for (const wrong of ["", "x", text.slice(2), `${text}00`, text.repeat(1_000)])
    expect(openInvitation(seed, wrong, nowMs)).toBeNull();
});

test("two are different ones", () => {
  const terms = { untilMs: nowMs + 60_000, isOnce: true };
  expect(makeInvitation(seed, terms)).not.toBe(makeInvitation(seed, terms));
});
