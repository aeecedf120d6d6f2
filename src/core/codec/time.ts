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

/** The last millisecond of the year 9999, so that what is read can be written in ISO-8601. */
const timestampMsMax = 253_402_300_799_999;

/** Epoch milliseconds (fractions of a millisecond are cut off), or `null` when the text is not a timestamp. */
export function parseTimestamp(text: string): number | null {
  if (text.length > 40) return null;
  const ms = /^[0-9]{1,16}$/.test(text) ? parseEpoch(text) : parseIso(text);
  return ms !== null && ms >= 0 && ms <= timestampMsMax ? ms : null;
}

function parseEpoch(text: string): number {
  const value = Number(text);
  return value < secondsBelow ? value * secondMs : value;
}

function parseIso(text: string): number | null {
  const parts = isoForm.exec(text);
  if (parts === null) return null;
  const part = (at: number) => Number(parts[at] ?? 0);
  const [year, month, day] = [part(1), part(2), part(3)];
  const date = new Date(Date.UTC(year, month - 1, day));
  // `Date.UTC` carries a 31st of June over, and takes a year below 100 for one of the last century.
  if (year < 100 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  const [hour, minute, second, offsetHours, offsetMinutes] = [part(4), part(5), part(6), part(9), part(10)];
  if (hour > 23 || minute > 59 || second > 59 || offsetHours > 23 || offsetMinutes > 59) return null;
  const fractionMs = Number((parts[7] ?? "").padEnd(3, "0").slice(0, 3));
  const offsetMs = (parts[8] === "-" ? -1 : 1) * (offsetHours * hourMs + offsetMinutes * minuteMs);
  return date.getTime() + hour * hourMs + minute * minuteMs + second * secondMs + fractionMs - offsetMs;
}

/** ISO-8601 UTC with milliseconds and `Z`. */
export function renderTimestamp(ms: number): string {
  return new Date(ms).toISOString();
}

const shortForm = /^(?:(\d{1,10})w)?(?:(\d{1,10})d)?(?:(\d{1,10})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s)?$/;
const isoWeeksForm = /^P(\d{1,10})W$/;
const isoDurationForm = /^P(?:(\d{1,10})D)?(?:T(?=\d)(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,10})S)?)?$/;

/** Milliseconds of a duration of 1 second to 30 days in short (`1d12h`) or ISO-8601 form, else `null`. */
export function parseDuration(text: string): number | null {
  const parts = text.length === 0 || text.length > 64 ? null : durationParts(text);
  if (parts === null || parts.some((part) => part === 0)) return null;
  const units = [weekMs, dayMs, hourMs, minuteMs, secondMs];
  const ms = parts.reduce<number>((sum, part, i) => sum + (part ?? 0) * (units[i] as number), 0);
  return ms >= durationMsMin && ms <= durationMsMax ? ms : null;
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
