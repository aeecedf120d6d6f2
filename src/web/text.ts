/**
 * Texts of strangers made fit to show: names without control and direction characters, cut by graphemes and by code units
 * (one grapheme can have ten thousand marks), file names that are names only; and times, sizes and links.
 */

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
  /[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0]/gu;

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

export function shortDid(did: string): string {
  const id = did.slice(did.lastIndexOf(":") + 1);
  return `${id.slice(0, 6)}…${id.slice(-4)}`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "long" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long" });
const fullDate = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "long",
  year: "numeric",
});

/** A time that no clock has (a stranger's message can state one) is shown as none. */
const isReal = (at: Date): boolean => Number.isFinite(at.getTime());
export const timeOf = (at: Date): string => (isReal(at) ? clock.format(at) : "");

export function dayOf(at: Date, now = new Date()): string {
  if (!isReal(at)) return "";
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const days = Math.ceil((midnight - at.getTime()) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return weekday.format(at);
  return (at.getFullYear() === now.getFullYear() ? date : fullDate).format(at);
}

export function whenOf(at: Date): string {
  const day = dayOf(at);
  return day === "Today" ? timeOf(at) : day;
}

export function sizeOf(bytes: number): string {
  if (bytes < 1_000) return `${bytes} bytes`;
  const [value, unit] =
    bytes < 1e6 ? [bytes / 1e3, "KB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** Text with its addresses of the web. */
export function piecesOf(text: string): { readonly text: string; readonly isLink: boolean }[] {
  const parts = text.split(
    /(https?:\/\/[^\s<>"'\u202a-\u202e\u2066-\u2069]{1,2000}[^\s<>"'.,;:!?)\]\u202a-\u202e\u2066-\u2069])/,
  );
  return parts
    .map((part, i) => ({ text: part, isLink: i % 2 === 1 && URL.canParse(part) }))
    .filter((one) => one.text !== "");
}
