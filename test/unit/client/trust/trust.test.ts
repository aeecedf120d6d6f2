/**
 * What a client believes of one DID: answers that overtake each other, repeats, and a memory that
 * others share.
 */
import { expect, test } from "bun:test";
import { memoryKeys } from "../../../../src/client/keys/key-stores.ts";
import { Trust } from "../../../../src/client/trust/trust.ts";
import { encodeDidDocument } from "../../../../src/core/ledger/document-codec.ts";
import { keepKeyProof } from "../../../../src/core/ledger/keep.ts";
import { encodeKeyProof, type KeyProof } from "../../../../src/core/ledger/key-proof.ts";
import { clientCode } from "../../../support/client-code.ts";
import {
  certifiedOf,
  documentOf,
  registrationOf,
  setDocumentOf,
} from "../../../support/identity.ts";
import { everyProof, operatorAccount } from "../../../support/world.ts";

const { genesisHash } = everyProof;
const binding = { genesisHash, submitter: operatorAccount };
const carol = certifiedOf("carol", genesisHash);
const registered = keepKeyProof(
  null,
  registrationOf(carol, { timestamp: "v3:0:1893456000000", binding }),
  binding,
);
const replacement = {
  timestamp: "v3:0:1893456000000",
  docBlob: encodeDidDocument(documentOf(carol)),
};
const [older, newer] = [
  registered,
  keepKeyProof(registered, setDocumentOf(carol, replacement, genesisHash), binding),
].map((proof) => encodeKeyProof(proof as KeyProof)) as [Uint8Array, Uint8Array];

/** A client of a Directory that shows this proof. */
function trusting(shown: Uint8Array, memory = memoryKeys()) {
  const asked: string[] = [];
  const readProof = async (_did: string, known: string) => {
    asked.push(known);
    return known === new Bun.CryptoHasher("sha256").update(shown).digest("hex")
      ? new Uint8Array(0)
      : shown;
  };
  return { asked, trust: new Trust(readProof, () => memory), memory };
}

test("an answer that a later one overtook on its way is no alarm, because the Directory shows the later one now", async () => {
  const { trust, asked } = trusting(newer);
  await trust.prove(carol.did, newer);
  expect((await trust.prove(carol.did, older)).steps[0].nonce).toBe(1n);
  expect(asked.length).toBe(1);
});

test("an old record that the Directory still shows is one", async () => {
  const { trust, memory } = trusting(older);
  await trust.prove(carol.did, newer);
  expect(await clientCode(() => trust.prove(carol.did, older))).toBe("record_went_back");
  // In another program with the same memory, too.
  expect(await clientCode(() => trusting(older, memory).trust.prove(carol.did, null))).toBe(
    "record_went_back",
  );
});

test("a proof is verified once, and named by its hash from then on", async () => {
  const { trust, asked } = trusting(newer);
  const first = await trust.prove(carol.did, null);
  expect(await trust.prove(carol.did, null)).toBe(first);
  expect(await trust.prove(carol.did, new Uint8Array(0))).toBe(first);
  expect(asked).toEqual(["", new Bun.CryptoHasher("sha256").update(newer).digest("hex")]);
});

test("who is forgotten is believed anew", async () => {
  const { trust } = trusting(older);
  await trust.prove(carol.did, newer);
  await trust.forget(carol.did);
  expect((await trust.prove(carol.did, null)).steps[0].nonce).toBe(0n);
});
