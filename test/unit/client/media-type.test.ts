/** The media type of a sealed message: the author in it, and relations that other parameters never touch. */
import { expect, test } from "bun:test";
import { authorOf, parseMediaType, withAuthor, withoutAuthor, withRelations } from "../../../src/client/media-type.ts";

const did = "did:svc:1111111111111111111111";
const relations = { replyTo: "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b", group: null, wantsReceipt: true };

test("an author is read back, and taken away without a trace", () => {
  for (const plain of ["text/plain;charset=utf-8", "", "image/png", withRelations("text/plain", relations)]) {
    for (const author of [did, null]) {
      const sealed = withAuthor(plain, author);
      expect(authorOf(sealed)).toBe(author ?? "none");
      expect(withoutAuthor(sealed)).toBe(plain);
    }
    expect([authorOf(plain), withoutAuthor(plain)]).toEqual([null, plain]);
  }
});

test("an author leaves the relations and the sender's own media type as they are", () => {
  const sealed = withAuthor(withRelations("text/plain;charset=utf-8", relations), did);
  expect(parseMediaType(sealed)).toEqual({ essence: "text/plain", plain: "text/plain;charset=utf-8", relations });
});

test("a parameter in front of the marker names no author", () => {
  expect(authorOf(`text/plain;from=${did};waypost=1;receipt=1`)).toBeNull();
});
