/** The examples of the description are signed: an acknowledgement's is a proof that the example's document authorizes. */
import { expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import { ackMembers, decideRetrievalProof, decodeRetrievalProof, memberReader } from "../../src/core/message/proof.ts";
import { ackBodyShape } from "../../src/core/schema/messages.ts";
import { exampleDid, exampleDocument, exampleTime } from "../../src/core/schema/schema.ts";

test("the example of an acknowledgement is a proof that the example's document authorizes", async () => {
  const [body] = ackBodyShape["examples"] as [Record<string, string & string[]>];
  const rule = {
    operation: "ack",
    did: exampleDid,
    deviceId: "",
    subject: (body["message_ids"] as string[]).join(","),
    endpoints: ["https://cache.example"],
    skewMs: 1,
    names: ackMembers,
    serviceType: "SvcCacheService",
  } as const;
  const proof = decodeRetrievalProof(memberReader(body), rule, Date.parse(exampleTime));
  if (isFault(proof)) throw new Error(proof.detail);
  const subject = { did: exampleDid, document: exampleDocument, deactivated: false };
  expect(isFault(await decideRetrievalProof(proof, subject))).toBe(false);
});
