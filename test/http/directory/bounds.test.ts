/**
 * Links and policies beyond the bounds of the body's shape, which are those of the ledger's
 * structures.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { type Json, proofHeadersOf, testDirectory } from "../../support/directory.ts";
import { identityOf } from "../../support/identity.ts";

const opened: { close: () => Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

describe("what breaks a bound is refused at its place, before its nonce is used", () => {
  const links = {
    at: (did: string) => `/dids/${did}/delivery-policy-links`,
    operation: "set_delivery_policy_links",
  };
  const persona = {
    at: (did: string) => `/delivery-policies/personas/${did}`,
    operation: "set_persona_policy",
  };
  const [longest, eight] = ["é".repeat(64), [..."12345678"]];
  const most = {
    recipient_policy: longest,
    tag_policies: eight,
    persona_policies: [longest, "four"],
  };
  const cases = [
    [links, { ...most, tag_policies: [...eight, "9"] }, most, "/tag_policies"],
    [
      links,
      { delivery_policy_links: { persona_policies: ["a", "é".repeat(65)] } },
      most,
      "/delivery_policy_links/persona_policies/1",
    ],
    [
      links,
      { ...most, recipient_policy: "r".repeat(129) },
      { delivery_policy_links: most },
      "/recipient_policy",
    ],
    [
      persona,
      { policy: { allowed_relays: ["relay-1", "ä".repeat(65)] } },
      { policy: { allowed_relays: ["relay-1", "ä".repeat(64)] } },
      "/policy/allowed_relays/1",
    ],
  ] as const;
  for (const [{ at, operation }, beyond, within, pointer] of cases) {
    test(`${operation}: ${pointer}`, async () => {
      const directory = await testDirectory();
      const identity = identityOf("bounded");
      opened.push(directory);
      await directory.register(identity);
      const { did } = identity;
      const nonce = crypto.randomUUID();
      const send = (members: Json) => {
        const body = JSON.stringify({ did, ...members });
        const timestamp = new Date(directory.nowMs()).toISOString();
        const headers = proofHeadersOf(identity, { operation, body, timestamp, nonce });
        return directory.ask("PUT", at(did), body, headers);
      };
      const refused = await send(beyond);
      expect([refused.status, refused.body["code"]]).toEqual([400, "invalid_request"]);
      expect(refused.body["errors"]).toEqual([
        { pointer, message: expect.stringMatching(/^expected /) },
      ]);
      expect((await send(within)).status).toBe(202);
    });
  }
});
