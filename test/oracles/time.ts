/**
 * A deliberate copy: the first parsers of timestamps and durations, for the oracle of envelopes.
 */

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;
const weekMs = 7 * dayMs;

const durationMsMin = secondMs;
const durationMsMax = 30 * dayMs;

/** Decimal timestamps below this are seconds, the others milliseconds. */
const secondsBelow = 100_000_000_000;

const isoForm =
  /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:Z|([+-])(\d{2}):(\d{2}))$/;

/**
 * Epoch milliseconds (fractions of a millisecond are cut off), or `null` when the text is not a
 * timestamp.
 */
export function parseTimestamp(text: string): number | null {
  if (text.length > 40) return null;
  if (/^[0-9]{1,16}$/.test(text)) return parseEpoch(text);
  const m = isoForm.exec(text);
  if (m === null) return null;
  const [year, month, day, hour, minute, second] = [m[1], m[2], m[3], m[4], m[5], m[6]].map(
    Number,
  ) as [number, number, number, number, number, number];
  if (hour > 23 || minute > 59 || second > 59) return null;
  const fractionMs = m[7] === undefined ? 0 : Number(m[7].padEnd(3, "0").slice(0, 3));
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (
    date.getUTCFullYear() !== year ||
    date.getUTCMonth() !== month - 1 ||
    date.getUTCDate() !== day
  )
    return null;
  const offsetMs = parseOffset(m[8], m[9], m[10]);
  if (offsetMs === null) return null;
  const ms =
    date.getTime() + hour * hourMs + minute * minuteMs + second * secondMs + fractionMs - offsetMs;
  return ms >= 0 && ms <= timestampMsMax ? ms : null;
}

/** The last millisecond of the year 9999, so that what is read can be written in ISO-8601. */
const timestampMsMax = 253_402_300_799_999;

function parseEpoch(text: string): number | null {
  const value = Number(text);
  const ms = value < secondsBelow ? value * secondMs : value;
  return ms <= timestampMsMax ? ms : null;
}

function parseOffset(
  sign: string | undefined,
  hours: string | undefined,
  minutes: string | undefined,
): number | null {
  if (sign === undefined) return 0;
  const [h, m] = [Number(hours), Number(minutes)];
  if (h > 23 || m > 59) return null;
  return (sign === "-" ? -1 : 1) * (h * hourMs + m * minuteMs);
}

const shortForm =
  /^(?:(\d{1,10})w)?(?:(\d{1,10})d)?(?:(\d{1,10})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s)?$/;
const isoWeeksForm = /^P(\d{1,10})W$/;
const isoDurationForm =
  /^P(?:(\d{1,10})D)?(?:T(?=\d)(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,10})S)?)?$/;

/**
 * Milliseconds of a duration of 1 second to 30 days in short (`1d12h`) or ISO-8601 form, else
 * `null`.
 */
export function parseDuration(text: string): number | null {
  if (text.length === 0 || text.length > 64) return null;
  const parts = durationParts(text);
  if (parts === null || parts.some((part) => part === 0)) return null;
  const units = [weekMs, dayMs, hourMs, minuteMs, secondMs];
  const ms = parts.reduce<number>((sum, part, i) => sum + (part ?? 0) * (units[i] as number), 0);
  return ms >= durationMsMin && ms <= durationMsMax ? ms : null;
}

/** Weeks, days, hours, minutes, seconds as written; `undefined` where the text has none. */
function durationParts(text: string): (number | undefined)[] | null {
  const number = (digits: string | undefined) =>
    digits === undefined ? undefined : Number(digits);
  const weeks = isoWeeksForm.exec(text);
  if (weeks !== null) return [number(weeks[1])];
  const iso = text.length > 1 ? isoDurationForm.exec(text) : null;
  if (iso !== null)
    return [undefined, number(iso[1]), number(iso[2]), number(iso[3]), number(iso[4])];
  const short = shortForm.exec(text);
  return short === null ? null : [1, 2, 3, 4, 5].map((i) => number(short[i]));
}
