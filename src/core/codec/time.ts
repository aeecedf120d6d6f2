/**
 * Timestamps and durations of the wire. In: ISO-8601 with seconds and an explicit zone, or decimal
 * epoch seconds or milliseconds, always as text. Out: UTC with milliseconds, durations in hours,
 * minutes and seconds. No clock is read here.
 * Source: rules sections 1 and 10.
 */

export const secondMs = 1_000;
export const minuteMs = 60 * secondMs;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;
export const weekMs = 7 * dayMs;

const durationMsMin = secondMs;
const durationMsMax = 30 * dayMs;

/** Decimal timestamps below this are seconds, the others milliseconds. */
const secondsBelow = 100_000_000_000;

const isoForm = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:Z|([+-])(\d{2}):(\d{2}))$/;

/** Epoch milliseconds (fractions of a millisecond are cut off), or `null` when the text is not a timestamp. */
export function parseTimestamp(text: string): number | null {
  return parseUtcMs(text) ?? parseAnyTimestamp(text);
}

/**
 * `2026-07-16T12:00:00Z` and `2026-07-16T12:00:00.000Z`, which most senders write; `null` for all other texts, which
 * may be timestamps nevertheless. Cost: a tenth of the general form.
 */
function parseUtcMs(text: string): number | null {
  const { length } = text;
  if ((length !== 20 && length !== 24) || text.charCodeAt(length - 1) !== 0x5a) return null;
  if (text[4] !== "-" || text[7] !== "-" || text[10] !== "T" || text[13] !== ":" || text[16] !== ":") return null;
  if (length === 24 && text[19] !== ".") return null;
  const year = 100 * twoDigits(text, 0) + twoDigits(text, 2);
  const month = twoDigits(text, 5);
  const day = twoDigits(text, 8);
  const hour = twoDigits(text, 11);
  const minute = twoDigits(text, 14);
  const second = twoDigits(text, 17);
  // Three digits as two overlapping pairs.
  const fractionMs = length === 20 ? 0 : 10 * twoDigits(text, 20) + (twoDigits(text, 21) % 10);
  // A comparison with NaN, which anything but a digit makes, is false.
  const inRange = year >= 1970 && month >= 1 && month <= 12 && day >= 1 && hour <= 23;
  // Every such month has these days; the general form handles the others.
  if (!(day <= (month === 2 ? 28 : 30))) return null;
  if (!inRange || !(minute <= 59 && second <= 59 && fractionMs <= 999)) return null;
  return Date.UTC(year, month - 1, day, hour, minute, second, fractionMs);
}

/** The number of two digits, or NaN. */
function twoDigits(text: string, at: number): number {
  const tens = text.charCodeAt(at) - 0x30;
  const ones = text.charCodeAt(at + 1) - 0x30;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? 10 * tens + ones : Number.NaN;
}

function parseAnyTimestamp(text: string): number | null {
  if (text.length > 40) return null;
  if (/^[0-9]{1,16}$/.test(text)) return parseEpoch(text);
  const m = isoForm.exec(text);
  if (m === null) return null;
  const [year, month, day, hour, minute, second] = [m[1], m[2], m[3], m[4], m[5], m[6]].map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  if (hour > 23 || minute > 59 || second > 59) return null;
  const fractionMs = m[7] === undefined ? 0 : Number(m[7].padEnd(3, "0").slice(0, 3));
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCFullYear() !== year || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  const offsetMs = parseOffset(m[8], m[9], m[10]);
  if (offsetMs === null) return null;
  const ms = date.getTime() + hour * hourMs + minute * minuteMs + second * secondMs + fractionMs - offsetMs;
  return ms >= 0 && ms <= timestampMsMax ? ms : null;
}

/** The last millisecond of the year 9999, so that what is read can be written in ISO-8601. */
const timestampMsMax = 253_402_300_799_999;

function parseEpoch(text: string): number | null {
  const value = Number(text);
  const ms = value < secondsBelow ? value * secondMs : value;
  return ms <= timestampMsMax ? ms : null;
}

function parseOffset(sign: string | undefined, hours: string | undefined, minutes: string | undefined): number | null {
  if (sign === undefined) return 0;
  const [h, m] = [Number(hours), Number(minutes)];
  if (h > 23 || m > 59) return null;
  return (sign === "-" ? -1 : 1) * (h * hourMs + m * minuteMs);
}

/** The day rendered last: the texts of one day begin with the same date. */
const renderedDay = { day: Number.NaN, text: "" };

/** ISO-8601 UTC with milliseconds and `Z`. Cost: a tenth of `toISOString` within a day. */
export function renderTimestamp(ms: number): string {
  const day = Math.floor(ms / dayMs);
  if (!(ms >= 0 && ms <= timestampMsMax) || !Number.isInteger(ms)) return new Date(ms).toISOString();
  if (day !== renderedDay.day) {
    renderedDay.text = new Date(ms).toISOString().slice(0, 11);
    renderedDay.day = day;
  }
  const rest = ms - day * dayMs;
  const minutes = Math.floor(rest / minuteMs);
  const seconds = Math.floor((rest % minuteMs) / secondMs);
  const fraction = String(1_000 + (rest % secondMs)).slice(1);
  return `${renderedDay.text}${pairs[Math.floor(minutes / 60)]}:${pairs[minutes % 60]}:${pairs[seconds]}.${fraction}Z`;
}

const pairs: readonly string[] = Array.from({ length: 60 }, (_, number) => String(number).padStart(2, "0"));

const shortForm = /^(?:(\d{1,10})w)?(?:(\d{1,10})d)?(?:(\d{1,10})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s)?$/;
const isoWeeksForm = /^P(\d{1,10})W$/;
const isoDurationForm = /^P(?:(\d{1,10})D)?(?:T(?=\d)(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,10})S)?)?$/;

/** Milliseconds of a duration of 1 second to 30 days in short (`1d12h`) or ISO-8601 form, else `null`. */
export function parseDuration(text: string): number | null {
  const { length } = text;
  if (length === 0 || length > 64) return null;
  // `24h` and `1h` are what most senders write.
  const unitMs = length === 2 || length === 3 ? shortUnitMs(text.charCodeAt(length - 1)) : 0;
  const count = unitMs === 0 ? 0 : length === 3 ? twoDigits(text, 0) : text.charCodeAt(0) - 0x30;
  if (count > 0 && count <= 99 && (length === 3 || count <= 9)) {
    return count * unitMs <= durationMsMax ? count * unitMs : null;
  }
  const parts = durationParts(text);
  if (parts === null || parts.some((part) => part === 0)) return null;
  const units = [weekMs, dayMs, hourMs, minuteMs, secondMs];
  const ms = parts.reduce<number>((sum, part, i) => sum + (part ?? 0) * (units[i] as number), 0);
  return ms >= durationMsMin && ms <= durationMsMax ? ms : null;
}

/** Milliseconds of `w`, `d`, `h`, `m`, `s`; 0 for all other characters. */
function shortUnitMs(code: number): number {
  switch (code) {
    case 0x77:
      return weekMs;
    case 0x64:
      return dayMs;
    case 0x68:
      return hourMs;
    case 0x6d:
      return minuteMs;
    case 0x73:
      return secondMs;
    default:
      return 0;
  }
}

/** Weeks, days, hours, minutes, seconds as written; `undefined` where the text has none. */
function durationParts(text: string): (number | undefined)[] | null {
  const number = (digits: string | undefined) => (digits === undefined ? undefined : Number(digits));
  const weeks = isoWeeksForm.exec(text);
  if (weeks !== null) return [number(weeks[1])];
  const iso = text.length > 1 ? isoDurationForm.exec(text) : null;
  if (iso !== null) return [undefined, number(iso[1]), number(iso[2]), number(iso[3]), number(iso[4])];
  const short = shortForm.exec(text);
  return short === null ? null : [1, 2, 3, 4, 5].map((i) => number(short[i]));
}

/** ISO-8601 in hours, minutes and seconds: `PT24H`, `PT1H30M`, `PT45S`; a fraction of a second is cut off. */
export function renderDuration(ms: number): string {
  const seconds = Math.floor(ms / secondMs);
  const h = Math.floor(seconds / 3600);
  const m = Math.floor((seconds % 3600) / 60);
  const s = seconds % 60;
  const text = `${h > 0 ? `${h}H` : ""}${m > 0 ? `${m}M` : ""}${s > 0 ? `${s}S` : ""}`;
  return text === "" ? "PT0S" : `PT${text}`;
}
