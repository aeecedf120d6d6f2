/**
 * The parsers of passes under mutation: they answer or refuse, and what they accept is written as
 * it came.
 */
import { expect, test } from "bun:test";
import { encodeBase64Url, utf8 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import {
  makePass,
  type Pass,
  parsePass,
  parseShownPass,
  renderPass,
  showPass,
} from "../../src/core/message/pass.ts";
import { attack, check } from "../campaigns/parser-kit.ts";

const keys = { secret: new Uint8Array(32).fill(3), namingKey: new Uint8Array(32).fill(4) };
const person = "did:svc:1111111111111111111111" as Did;
const passes = [1, 2].map(
  (lastDay): Pass => makePass(keys, person, { quarter: "2026-Q4", lastDay }),
);
const decoder = new TextDecoder();

const parsers = {
  "a pass in a message": {
    samples: passes.map(renderPass),
    read: (text: string) => {
      const pass = parsePass(text);
      return pass === null ? null : renderPass(pass);
    },
  },
  "a pass that is shown": {
    samples: passes.map((pass) => showPass(pass, utf8("an envelope"))),
    read: (text: string) => {
      const shown = parseShownPass(text);
      return shown === null ? null : encodeBase64Url(Uint8Array.of(...shown.id, ...shown.proof));
    },
  },
} as const;

test.each(Object.entries(parsers))("100,000 inputs: %s", async (name, { samples, read }) => {
  const figures = await attack(
    {
      name,
      samples: samples.map(utf8),
      run: (input) => {
        const text = decoder.decode(input);
        const again = read(text);
        if (again === null) return "refused";
        check(again === text, "an accepted pass is written as it came");
        return "accepted";
      },
    },
    100_000,
    1,
  );
  expect(figures.inputs).toBe(100_000);
  expect(figures.accepted).toBeGreaterThan(2);
  expect(figures.outcomes).toBe(2);
});
