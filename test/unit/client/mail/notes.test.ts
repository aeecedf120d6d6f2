/**
 * Notes: what a receipt, typing or a profile of a stranger says, and that another form or version
 * says nothing.
 */
import { expect, test } from "bun:test";
import { profileType, receiptType, typingType } from "../../../../src/client/mail/content.ts";
import { parseNote } from "../../../../src/client/mail/notes.ts";

const id = "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b";
const notes = [
  [receiptType, { read: [id] }, { is: "receipt", state: "read", ids: [id] }],
  [receiptType, { delivered: [id] }, { is: "receipt", state: "received", ids: [id] }],
  [typingType, { typing: true }, { is: "typing", isTyping: true }],
  [profileType, { name: "Ada" }, { is: "profile", name: "Ada", picture: "" }],
] as const;

test.each(notes)(
  "a note of the type %s and version 1 counts, and one of another version says nothing",
  (...row) => {
    const [type, members, note] = row;
    expect(parseNote(type, { v: 1, ...members })).toEqual(note as never);
    for (const v of [undefined, 0, 2, "1"])
      expect(parseNote(type, { v, ...members })).toEqual({ is: "nothing" });
  },
);
