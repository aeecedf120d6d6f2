/**
 * The catalogue of words: none is missing in a language, none is without use, and no text stands in
 * the views themselves.
 */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { faultCodes } from "../../../../src/core/fault.ts";
import { english } from "../../../../src/web/words/english.ts";
import { german } from "../../../../src/web/words/german.ts";
import { directionOf, localeOf } from "../../../../src/web/words/locale.ts";
import { pluralOf } from "../../../../src/web/words/plural.ts";

const root = join(import.meta.dir, "..", "..", "..", "..", "src");
const sourcesIn = (folder: string): readonly (readonly [path: string, text: string])[] =>
  [...new Bun.Glob("**/*.{ts,tsx}").scanSync(join(root, folder))]
    .sort()
    .map((path) => [path, readFileSync(join(root, folder, path), "utf8")]);
const views = sourcesIn("web").filter(([path]) => !path.startsWith("words/"));

type Word = string | ((...values: never[]) => string);
/** Each text by its path, such as `states.sent`. */
const wordsOf = (words: object, before = ""): readonly (readonly [key: string, word: Word])[] =>
  Object.entries(words).flatMap(([key, word]: [string, unknown]) =>
    typeof word === "object" && word !== null
      ? wordsOf(word, `${before}${key}.`)
      : [[before + key, word as Word] as const],
  );

/** What a function says when its values are told apart, and where an element goes. */
const shapeOf = (word: Word): string => {
  const values = Array.from({ length: 4 }, (_, i) => 1_001 + i);
  const text = String(typeof word === "string" ? word : word(...(values as never[])));
  const found = [...text.matchAll(/\{\}|1[.,\s]?00[1-4]/g)].map(([one]) => one.replace(/\D/g, ""));
  return found.sort().join(" ");
};

const englishWords = wordsOf(english);
const germanWords = new Map(wordsOf(german));
/** Words that both languages have. */
const same = new Set(["optional", "aBrowser", "unknownFailure", "link"]);

/** Codes of failures that the app's own code would have to cause. */
const forPrograms = new Set<string>([
  "action_mismatch",
  "alias_exists",
  "bundle_stale",
  "chain_submission_rejected",
  "chunk_conflict",
  "component_exists",
  "component_in_use",
  "component_not_found",
  "document_invalid",
  "document_needed",
  "duplicate_conflict",
  "envelope_invalid",
  "invalid_argument",
  "invalid_canonical_payload",
  "invalid_did",
  "invalid_json",
  "invalid_request",
  "invalid_signature",
  "invalid_url",
  "log_inconsistent",
  "method_not_allowed",
  "no_sender",
  "no_store",
  "no_websocket",
  "not_found",
  "not_json",
  "path_body_mismatch",
  "payload_mismatch",
  "policy_invalid",
  "policy_not_found",
  "proof_not_authorized",
  "proof_replayed",
  "recipient_mismatch",
  "sender_signature_invalid",
  "service_not_found",
  "unsigned_update_denied",
  "unsupported_media_type",
]);

describe("the catalogue of words", () => {
  test("has every text in German, with the same values and the same places", () => {
    const wrong = englishWords.flatMap(([key, word]) => {
      const other = germanWords.get(key);
      if (other === undefined) return [`${key}: missing`];
      const isEmpty = typeof other === "string" && other.trim() === "";
      const isUntranslated = other === word && !same.has(key);
      // In German the message of the SDK is left out: it is English.
      const isShaped = key === "unknownFailure" || shapeOf(other) === shapeOf(word);
      return isEmpty || isUntranslated || !isShaped ? [key] : [];
    });
    expect(wrong).toEqual([]);
    expect(germanWords.size).toBe(englishWords.length);
  });

  test("has no text that nothing shows", () => {
    const all = views.map(([, text]) => text).join("\n");
    const unused = Object.keys(english).filter((key) => !new RegExp(`\\bt\\.${key}\\b`).test(all));
    expect(unused).toEqual([]);
  });

  test("names failures that exist", () => {
    const sdk = sourcesIn("client")
      .map(([, text]) => text)
      .join("\n");
    const known = (code: string) =>
      (faultCodes as readonly string[]).includes(code) || new RegExp(`"${code}"`).test(sdk);
    expect(Object.keys(english.failures).filter((code) => !known(code))).toEqual([]);
  });

  test("has words for each failure that a person may meet", () => {
    const thrown = sourcesIn("client").flatMap(([, text]) => [
      ...text.matchAll(/(?:localError|distrust|temporary)\(\s*"([a-z_]+)"/g),
    ]);
    const met = [...thrown.map(([, code = ""]) => code), ...faultCodes];
    const missing = new Set(met.filter((code) => !(code in english.failures)));
    // Of what only a program that uses the SDK wrongly gets, or no one who uses the app.
    expect([...missing].filter((code) => !forPrograms.has(code)).sort()).toEqual([]);
    expect([...forPrograms].filter((code) => !missing.has(code))).toEqual([]);
  });

  test("has the plural forms of each language", () => {
    expect([0, 1, 2].map((count) => english.peopleCount(count))).toEqual([
      "0 people",
      "1 person",
      "2 people",
    ]);
    expect([1, 2, 1_000].map((count) => german.peopleCount(count))).toEqual([
      "1 Person",
      "2 Personen",
      "1.000 Personen",
    ]);
    const polish = { one: "# plik", few: "# pliki", other: "# plików" };
    expect([1, 2, 5, 22].map((count) => pluralOf("pl")(count, polish))).toEqual([
      "1 plik",
      "2 pliki",
      "5 plików",
      "22 pliki",
    ]);
  });
});

describe("the language", () => {
  test.each([
    [null, ["de-AT", "en"], "de", "de-AT"],
    [null, ["fr", "de"], "de", "de"],
    [null, ["fr-CA"], "en", "en"],
    [null, [], "en", "en"],
    ["de", ["en-GB"], "de", "de"],
    ["en", ["de", "EN-gb"], "en", "EN-gb"],
    ["xx", ["de"], "de", "de"],
    ["constructor", ["en-US"], "en", "en-US"],
  ])("%p of %p is %s, written as in %s", (chosen, wanted, language, locale) => {
    expect(localeOf(chosen, wanted)).toEqual({ language, locale } as ReturnType<typeof localeOf>);
  });

  test("is written from right to left where its letters are", () => {
    expect(["ar-EG", "he", "fa", "ur"].map(directionOf)).toEqual(Array(4).fill("rtl"));
    expect(["de", "en-GB", "ja"].map(directionOf)).toEqual(Array(3).fill("ltr"));
  });
});

/** Texts in the code of a view that a person would read. */
function textsIn(source: string): string[] {
  const plain = new Bun.Transpiler({ loader: "tsx" }).transformSync(source);
  const literal = String.raw`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\`(?:[^\`\\]|\\.)*\``;
  const found = plain.matchAll(new RegExp(`([\\w$"-]+:\\s*|\\w+\\()?(${literal})`, "g"));
  return [...found].flatMap(([, before = "", quoted = ""]) => {
    const text = quoted.slice(1, -1).replace(/\$\{[^}]*\}/g, "#");
    const isPart = /^(?:class|className|d|viewBox|accept|content):/.test(before);
    const isShown = /^(?:children|label|title|alt|placeholder|"aria-label"|ask|submit|busy):/;
    const isSaid = /^(?:toast|Error|warn)\($/.test(before);
    const isSentence = /\p{L}{2}[,:]? \p{L}|^\p{Lu}\p{Ll}+[ .…!?]|\p{L}…$/u.test(text);
    // What stands before or behind an element in a line.
    const isBesideElement = !quoted.startsWith("`") && /^ \p{L}{2}|\p{L}{2} $/u.test(text);
    if (isPart || !/\p{L}{2}/u.test(text)) return [];
    return isSentence || isBesideElement || isShown.test(before) || (isSaid && / /.test(text))
      ? [text]
      : [];
  });
}

/** Names of things, which each language has as they are; and a script's own words. */
const names = new Set([
  "Waypost",
  "(#) Waypost",
  "iPhone or iPad",
  "[autofocus]",
  "device #",
  "device ",
  "take over",
  "# of another version",
  "draft #",
  "# is of another version",
  "not found",
  "(hover: hover)",
  "noopener noreferrer",
]);
const classes =
  /^(?:plain danger|icon turns|bubble calls|count quiet|round \w+|#?\s*message \w+|home \w+|avatar \w+)$/;

describe("the views", () => {
  test("have no text of their own", () => {
    const found = views.flatMap(([path, text]) =>
      textsIn(text)
        .filter((one) => !names.has(one) && !classes.test(one))
        .map((one) => `${path}: ${one}`),
    );
    expect(found).toEqual([]);
  });

  test.each([
    "const a = <p>Hello there</p>;",
    "const a = <p>hello {name} you</p>;",
    'const a = <Button label="hide" />;',
    "const a = <b>edited</b>;",
    'const a = () => toast("gone for good");',
    'const a = isOn ? "Opening…" : "";',
    "const a = `has left you`;",
    'const a = <input placeholder="Optional" />;',
    'throw new Error("It is too large");',
  ])("a text would be found: %s", (source) => {
    expect(textsIn(source)).not.toEqual([]);
  });
});
