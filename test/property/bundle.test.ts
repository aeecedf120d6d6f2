/**
 * The parser of key bundles under mutation: it answers or refuses, and what it accepts renders as
 * it came.
 */
import { expect, test } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { type JsonObject, parseJson } from "../../src/core/codec/json.ts";
import { isFault } from "../../src/core/fault.ts";
import { bundleDigest, parseBundle, renderBundle } from "../../src/core/message/bundle.ts";
import { attack, check } from "../campaigns/parser-kit.ts";
import { bundleKey, bundleOf } from "../support/bundles.ts";
import { createPerson } from "../support/cache-node.ts";

const bob = createPerson(1);
const samples = [7, 8].map((fill) =>
  renderBundle(bundleOf(bob, Date.UTC(2026, 10, 28), { publicKey: bundleKey(fill) })),
);

test("100,000 inputs", async () => {
  const figures = await attack(
    {
      name: "key bundle",
      samples: samples.map((sample) => utf8(JSON.stringify(sample))),
      run: (input) => {
        const value = parseJson(input);
        if (isFault(value)) return value.detail;
        const bundle = parseBundle(value);
        if (isFault(bundle)) return bundle.extra.errors?.[0]?.pointer ?? bundle.code;
        const isSame = Bun.deepEquals(renderBundle(bundle), value as JsonObject);
        check(isSame, "an accepted bundle renders as it came");
        return `accepted ${bundleDigest(bundle).length}`;
      },
    },
    100_000,
    1,
  );
  expect(figures.inputs).toBe(100_000);
  expect(figures.accepted).toBeGreaterThan(2);
  expect(figures.outcomes).toBeGreaterThan(8);
}, 60_000);
