/**
 * Texts of strangers made fit to show: names without control and direction characters, cut by
 * graphemes and by code units (one grapheme can have ten thousand marks), file names that are names
 * only; and times, sizes and links.
 */

import type { Person } from "../client/package.ts";
import { locale, t } from "./words/language.ts";

const segmenter = new Intl.Segmenter();
const unitsPerGrapheme = 24;

/** At most so many graphemes, with an ellipsis where something was cut. */
export function cut(text: string, graphemes: number): string {
  let out = "";
  let count = 0;
  // A bounded part is enough: the segmenter would read a megabyte.
  const part = text.slice(0, graphemes * unitsPerGrapheme);
  for (const { segment } of segmenter.segment(part)) {
    if (count === graphemes) return `${out}…`;
    out += segment.slice(0, unitsPerGrapheme);
    count += 1;
  }
  return part.length < text.length ? `${out}…` : out;
}

/** Control, direction and invisible characters; the joiner and the selector of emoji stay. */
const unshown =
  /[\u034f\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\u{e0000}-\u{e007f}]/gu;

/** A name or another text of one line. */
export function oneLine(text: string, graphemes = 60): string {
  const start = text.slice(0, graphemes * unitsPerGrapheme * 2);
  return cut(
    start
      .replace(/[\s\p{Cc}]+/gu, " ")
      .replace(unshown, "")
      .trim(),
    graphemes,
  );
}

/** A file name to save under: no path, no hidden file, the ending kept. */
export function fileName(name: string): string {
  const plain = oneLine(name.slice(-400).replace(/[/\\:*?"<>|]/g, "_"), 200).replace(/^[.\s]+/, "");
  const ending = /\.[\p{L}\p{N}]{1,10}$/u.exec(plain)?.[0] ?? "";
  const stem = cut(plain.slice(0, plain.length - ending.length), 80).replace("…", "");
  return `${stem === "" ? "file" : stem}${ending}`;
}

/** Eighteen characters of it: another DID with the same ones can't be found. */
export function shortDid(did: string): string {
  const id = did.slice(did.lastIndexOf(":") + 1);
  return id.length <= 19 ? id : `${id.slice(0, 10)}…${id.slice(-8)}`;
}

/**
 * A format of the app's locale, which is known when it is first needed. Making
 * one costs a list's drawing.
 */
function formatOf(options: Intl.DateTimeFormatOptions): (at: Date) => string {
  let made: Intl.DateTimeFormat | null = null;
  return (at) => {
    made ??= new Intl.DateTimeFormat(locale, options);
    return made.format(at);
  };
}

const clock = formatOf({ hour: "numeric", minute: "2-digit" });
const weekday = formatOf({ weekday: "long" });
const date = formatOf({ day: "numeric", month: "long" });
const fullDate = formatOf({ day: "numeric", month: "long", year: "numeric" });
export const dateTimeOf = formatOf({ dateStyle: "medium", timeStyle: "short" });

/** A time that no clock has (a stranger's message can state one) is shown as none. */
const isReal = (at: Date): boolean => Number.isFinite(at.getTime());
export const timeOf = (at: Date): string => (isReal(at) ? clock(at) : "");

/** The days of the calendar, which may have 23 or 25 hours. */
const calendarDay = (at: Date): number =>
  Date.UTC(at.getFullYear(), at.getMonth(), at.getDate()) / 86_400_000;

export function dayOf(at: Date, now = new Date()): string {
  if (!isReal(at)) return "";
  const days = calendarDay(now) - calendarDay(at);
  if (days <= 0) return t.today;
  if (days === 1) return t.yesterday;
  if (days < 7) return weekday(at);
  return (at.getFullYear() === now.getFullYear() ? date : fullDate)(at);
}

export function whenOf(at: Date): string {
  const day = dayOf(at);
  return day === t.today ? timeOf(at) : day;
}

const sizes = [
  [1, "byte"],
  [1e3, "kilobyte"],
  [1e6, "megabyte"],
  [1e9, "gigabyte"],
] as const;

export function sizeText(bytes: number): string {
  const at = sizes.findLastIndex(([from]) => bytes >= from);
  const [from, unit] = sizes[Math.max(0, at)] ?? [1, "byte"];
  const value = bytes / from;
  const digits = unit !== "byte" && value < 10 ? 1 : 0;
  const format = new Intl.NumberFormat(locale, {
    style: "unit",
    unit,
    unitDisplay: unit === "byte" ? "long" : "short",
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return format.format(value);
}

const durations = [
  [604_800, "week"],
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
  [1, "second"],
] as const;

/** Such as "2 days", in the largest unit that is whole. */
export function durationOf(seconds: number): string {
  const [size, unit] = durations.find(([one]) => seconds % one === 0) ?? [1, "second"];
  const format = new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: "long" });
  return format.format(seconds / size);
}

export type Piece = {
  readonly text: string;
  readonly isLink: boolean;
  /** Of words between stars or backticks, which are not shown. */
  readonly style: "bold" | "code" | null;
  /** The host as it is asked for, where the text has it in letters that look like others. */
  readonly host: string | null;
};

/**
 * Not in the middle of a Latin word, and up to what no address has as it is: space, invisible and
 * direction characters, and the stops of scripts that put no space behind them.
 */
const address =
  /(?<![a-z0-9])https?:\/\/[^\s<>"。、，；：！？｡､\u00ad\u200b\u200e\u200f\u2060\ufeff\u202a-\u202e\u2066-\u2069]{1,2000}/giu;

/**
 * `*bold*` and `` `code` `` on one line, where they stand alone: 2*3*4 and a_b stay as they are.
 */
const styled =
  /(?<![\p{L}\p{N}*`])(?:\*(?![\s*])([^*\n]{1,400})(?<!\s)\*|`([^`\n]{1,400})`)(?![\p{L}\p{N}*`])/gu;

function styledOf(words: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  const say = (text: string, style: Piece["style"]) =>
    text !== "" && pieces.push({ text, isLink: false, host: null, style });
  for (const { 0: found, 1: bold, 2: code, index } of words.matchAll(styled)) {
    say(words.slice(end, index), null);
    say(bold ?? code ?? "", bold === undefined ? "code" : "bold");
    end = index + found.length;
  }
  say(words.slice(end), null);
  return pieces;
}

/** Text with its addresses of the web, and what is bold or code. */
export function piecesOf(text: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  const say = (words: string) => pieces.push(...styledOf(words));
  for (const { 0: found, index } of text.matchAll(address)) {
    const link = withoutPunctuation(found);
    const url = URL.parse(link);
    if (url === null) continue;
    say(text.slice(end, index));
    const host = isPlainHost(link) ? null : url.hostname;
    pieces.push({ text: link, isLink: true, host, style: null });
    end = index + link.length;
  }
  say(text.slice(end));
  return pieces;
}

const isPlainHost = (link: string): boolean => /^https?:\/\/[\x21-\x7e]+(?:[/?#]|$)/iu.test(link);

const openingOf: Readonly<Record<string, string>> = {
  ")": "(",
  "]": "[",
  "}": "{",
  "）": "（",
  "］": "［",
  "」": "「",
  "』": "『",
  "】": "【",
  "》": "《",
  "〉": "〈",
};

/**
 * Without what ends the sentence around it: stops and quotes of any script, and
 * brackets that it does not open.
 */
function withoutPunctuation(link: string): string {
  const characters = [...link];
  for (;;) {
    const last = characters.at(-1) ?? "";
    const opening = openingOf[last];
    const isOwn =
      opening !== undefined && countOf(characters, opening) >= countOf(characters, last);
    if (
      isOwn ||
      !(/[.,;:!?')\]}]/.test(last) || (/[^\x00-\x7f]/.test(last) && /[\p{P}\p{S}]/u.test(last)))
    )
      return characters.join("");
    characters.pop();
  }
}

const countOf = (characters: readonly string[], sought: string): number =>
  characters.filter((one) => one === sought).length;

// ------------------------------------------------------------------------------------------ search

/**
 * What words are written with or without: invisible characters, vowel signs of Arabic and
 * Hebrew, the dot of a Turkish İ.
 */
const optional =
  /[\p{Cf}\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670]|(?<=i)\u0307/gu;

/** Letters that people take for the same: of any width and case, and composed or not. */
export const folded = (text: string): string =>
  // A capital ẞ has two letters as an upper case only when it is a small one.
  text
    .normalize("NFKC")
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replace(optional, "")
    .normalize("NFKC");

/**
 * Whether a folded text is long enough to look for: one letter is a word
 * where a script has thousands.
 */
export const isSought = (sought: string): boolean =>
  [...sought].length >= 2 ||
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u.test(sought);

/**
 * Where the folded text begins in one that is not folded; folding changes lengths.
 * -1 when it is not there.
 */
export function originalIndex(said: string, sought: string): number {
  const place = folded(said).indexOf(sought);
  if (place <= 0) return place;
  let before = 0;
  for (const { segment, index } of segmenter.segment(said)) {
    if (before >= place) return index;
    before += folded(segment).length;
  }
  return -1;
}

// ------------------------------------------------------------------------------------------- names

/** What is read of a name; empty for one without a letter. */
const seenOf = (name: string): string =>
  folded(oneLine(name))
    .normalize("NFKD")
    .replace(/[\p{M}\p{Cf}\s]/gu, "");

/** As this user calls them, or as they call themselves. */
const calledOf = ({ name, alias, claimed }: Person): string =>
  oneLine(name) || oneLine(alias ?? "") || oneLine(claimed?.name ?? "");

/** The DIDs of those whose name somebody else has too. */
export function twinsOf(people: readonly Person[]): ReadonlySet<string> {
  const by = new Map<string, string[]>();
  for (const person of people) {
    const seen = seenOf(calledOf(person));
    if (seen !== "") by.set(seen, [...(by.get(seen) ?? []), person.did]);
  }
  return new Set([...by.values()].flatMap((same) => (same.length < 2 ? [] : same)));
}
