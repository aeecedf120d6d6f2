/** The media type of a sealed message: the author in it, and relations that other parameters never touch. */
import { expect, test } from "bun:test";
import { parseMediaType, sourceOf, withAuthor } from "../../../src/client/content.ts";

const did = "did:svc:1111111111111111111111";
const relations = { replyTo: "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b", group: null, wantsReceipt: true };

test("an author is read back, and the sender's own media type is without it", () => {
  for (const plain of ["text/plain;charset=utf-8", "", "image/png"]) {
    for (const author of [did, null]) {
      const sealed = parseMediaType(withAuthor(plain, author));
      expect([sealed.author, sealed.plain]).toEqual([author ?? "none", plain]);
    }
    expect(parseMediaType(plain)).toMatchObject({ author: null, plain });
  }
});

test("an author leaves the relations and the sender's own media type as they are", async () => {
  const { file } = await sourceOf("text", {}, relations);
  const sealed = withAuthor(file.mediaType, did);
  const expected = { essence: "text/plain", plain: "text/plain;charset=utf-8", ...relations, author: did };
  expect(parseMediaType(sealed)).toEqual(expected);
});

test("a parameter in front of the marker names no author", () => {
  expect(parseMediaType(`text/plain;from=${did};waypost=1;receipt=1`).author).toBeNull();
});
