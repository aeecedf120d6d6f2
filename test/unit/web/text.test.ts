/**
 * Texts of strangers as the app shows them: addresses, days of the calendar, and names that differ
 * by what can't be seen.
 */
import { describe, expect, test } from "bun:test";
import { dayOf, oneLine, piecesOf, shortDid } from "../../../src/web/text.ts";

describe("addresses of the web in a text", () => {
  test.each([
    ["https://a.example/x_(y)", ["https://a.example/x_(y)"]],
    ["(https://a.example/x)", ["https://a.example/x"]],
    ["((https://a.example/x_(y)))", ["https://a.example/x_(y)"]],
    ["[https://a.example/x]", ["https://a.example/x"]],
    ["See https://a.example/x.", ["https://a.example/x"]],
    ["https://a.example/x?!…", ["https://a.example/x"]],
    ["https://a.example/x！", ["https://a.example/x"]],
    ["https://a.example/x”, she said", ["https://a.example/x"]],
    ["「https://a.example/x」。", ["https://a.example/x"]],
    ["https://a.example/x।", ["https://a.example/x"]],
    ["HTTPS://a.example/x", ["HTTPS://a.example/x"]],
    [
      "https://a.example/ https://b.example/?q=1#top",
      ["https://a.example/", "https://b.example/?q=1#top"],
    ],
    ["https://a.example/it's-here", ["https://a.example/it's-here"]],
    [
      "看https://a.example/x，很好。见https://b.example/日本。",
      ["https://a.example/x", "https://b.example/日本"],
    ],
    ["https://a.example/x\u200b", ["https://a.example/x"]],
    ["xhttps://a.example", []],
    ["ftp://a.example/x and javascript:alert(1)", []],
    ["https://", []],
  ])("%s", (text, links) => {
    const pieces = piecesOf(text);
    expect(pieces.filter(({ isLink }) => isLink).map((one) => one.text)).toEqual(links);
    expect(pieces.map((one) => one.text).join("")).toBe(text);
  });

  test("a host of letters that look like others is shown as it is asked for", () => {
    expect(piecesOf("https://аррӏе.com/")[0]?.host).toBe("xn--80ak6aa92e.com");
    expect(piecesOf("https://apple.com/ä")[0]?.host).toBeNull();
  });
});

describe("bold and code", () => {
  test.each([
    ["This is *important*: run `bun test`.", ["bold important", "code bun test"]],
    ["*both* and *again*", ["bold both", "bold again"]],
    ["(*in brackets*)", ["bold in brackets"]],
    ["`*not bold*`", ["code *not bold*"]],
    ["2*3*4 = 24, a * b * c, **, ` `` x", []],
    ["*across\nlines*", []],
    ["*https://a.example/x*", []],
  ])("%s", (text, styles) => {
    const pieces = piecesOf(text);
    expect(
      pieces.flatMap(({ style, text: words }) => (style ? [`${style} ${words}`] : [])),
    ).toEqual(styles);
    expect(pieces.filter(({ text: words }) => words === "")).toEqual([]);
  });
});

describe("days", () => {
  const saturday = new Intl.DateTimeFormat(undefined, { weekday: "long" }).format(
    new Date("2026-03-28T12:00:00"),
  );
  const zone = process.env["TZ"];
  test.each([
    ["2026-03-28T23:30:00", "2026-03-30T10:00:00", saturday],
    ["2026-03-29T00:30:00", "2026-03-30T10:00:00", "Yesterday"],
    ["2026-03-30T00:30:00", "2026-03-30T10:00:00", "Today"],
    ["2026-10-24T23:30:00", "2026-10-26T00:30:00", saturday],
    ["2026-10-25T00:30:00", "2026-10-26T00:30:00", "Yesterday"],
    ["2026-10-26T23:59:00", "2026-10-26T00:30:00", "Today"],
  ])("%s seen from %s is %s", (at, now, name) => {
    process.env["TZ"] = "Europe/Berlin";
    try {
      expect(dayOf(new Date(at), new Date(now))).toBe(name);
    } finally {
      process.env["TZ"] = zone ?? "UTC";
    }
  });
});

test.each([
  "A\u034flice",
  "Alice\u2800",
  "Al\u17b4ice",
  "Alice\u{e0041}",
  "\u200bAlice",
  "Al\u00adice",
])("%j is shown as Alice", (name) => {
  expect(oneLine(name)).toBe("Alice");
});

test("people without a name are told apart by eighteen characters", () => {
  const alike = ["did:svc:wpAcCD7k2mPQxyzxyzYe9t4hY3", "did:svc:wpAcCDaaaaPQxyzxyzaaaaYe9t"];
  expect(shortDid(alike[0]!)).not.toBe(shortDid(alike[1]!));
  expect(shortDid(alike[0]!)).toBe("wpAcCD7k2m…Ye9t4hY3");
});
