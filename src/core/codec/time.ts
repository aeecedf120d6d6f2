/**
 * Timestamps and durations of the wire. In: ISO-8601 with seconds and an explicit zone, or decimal
 * epoch seconds or milliseconds, always as text. Out: UTC with milliseconds, durations in hours,
 * minutes and seconds. No clock is read here.
 * Source: rules section 1.
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

const isoForm =
  /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3])(?::[0-5]\d){2}(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** The last millisecond of the year 9999, so that what is read can be written in ISO-8601. */
const timestampMsMax = 253_402_300_799_999;

/**
 * Epoch milliseconds (fractions of a millisecond are cut off), or `null` when the text is
 * not a timestamp.
 */
export function parseTimestamp(text: string): number | null {
  if (text.length > 40) return null;
  const ms = /^[0-9]{1,16}$/.test(text) ? parseEpoch(text) : parseIso(text);
  return ms !== null && ms >= 0 && ms <= timestampMsMax ? ms : null;
}

function parseEpoch(text: string): number {
  const value = Number(text);
  return value < secondsBelow ? value * secondMs : value;
}

/** `Date.parse` takes three times as long, and some carry a 31st of June over. */
function parseIso(text: string): number | null {
  if (!isoForm.test(text)) return null;
  const year = numberAt(text, 0, 4);
  const day = numberAt(text, 8, 2);
  const midnight = Date.UTC(year, numberAt(text, 5, 2) - 1, day);
  // `Date.UTC` puts a year below 100 into the last century, and carries a 31st of June over too.
  if (year < 1_969 || new Date(midnight).getUTCDate() !== day) return null;
  const zone = text.length - (text.endsWith("Z") ? 1 : "+01:00".length);
  const minutes = minutesAt(text, 11) - offsetMinutes(text, zone);
  const fractionDigits = Math.min(zone - 20, 3);
  const ms = numberAt(text, 20, fractionDigits) * 10 ** (3 - fractionDigits);
  return midnight + minutes * minuteMs + numberAt(text, 17, 2) * secondMs + ms;
}

/** Of `Z`, or of a sign with hours and minutes. */
function offsetMinutes(text: string, zone: number): number {
  if (text[zone] === "Z") return 0;
  const minutes = minutesAt(text, zone + 1);
  return text[zone] === "-" ? -minutes : minutes;
}

/** Of hours and minutes. */
function minutesAt(text: string, start: number): number {
  return 60 * numberAt(text, start, 2) + numberAt(text, start + 3, 2);
}

/** The number of so many digits. */
function numberAt(text: string, start: number, digits: number): number {
  let number = 0;
  for (let at = start; at < start + digits; at++) number = 10 * number + text.charCodeAt(at) - 0x30;
  return number;
}

/** ISO-8601 UTC with milliseconds and `Z`. */
export function renderTimestamp(ms: number): string {
  return new Date(ms).toISOString();
}

const isoDurationForm = /^P(?:\d+W|(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)$/;
const unitNames = "wdhms";
const unitsMs = [weekMs, dayMs, hourMs, minuteMs, secondMs];
const countDigitsMax = 10;

/**
 * The two forms for readers of the schema, who know no other; `minLength` 2 leaves the
 * empty text out.
 */
export const durationPattern =
  "^(([0-9]{1,10}w)?([0-9]{1,10}d)?([0-9]{1,10}h)?([0-9]{1,10}m)?([0-9]{1,10}s)?" +
  "|P([0-9]{1,10}W|([0-9]{1,10}D)?(T([0-9]{1,10}H)?([0-9]{1,10}M)?([0-9]{1,10}S)?)?))$";

/**
 * Milliseconds of a duration of 1 second to 30 days in short (`1d12h`) or ISO-8601 form,
 * else `null`.
 */
export function parseDuration(text: string): number | null {
  const short =
    isoDurationForm.test(text) && !text.endsWith("T")
      ? text.replace(/[PT]/g, "").toLowerCase()
      : text;
  const ms = parseShort(short);
  return ms !== null && ms >= durationMsMin && ms <= durationMsMax ? ms : null;
}

/** Counts above 0, each with its unit, from weeks down to seconds. */
function parseShort(text: string): number | null {
  let [ms, count, digits, nextUnit] = [0, 0, 0, 0];
  for (let at = 0; at < text.length; at++) {
    const digit = text.charCodeAt(at) - 0x30;
    if (digit >= 0 && digit <= 9) {
      count = 10 * count + digit;
      digits += 1;
      continue;
    }
    const unit = unitNames.indexOf(text.charAt(at), nextUnit);
    if (unit < 0 || count === 0 || digits > countDigitsMax) return null;
    ms += count * unitsMs[unit]!;
    count = 0;
    digits = 0;
    nextUnit = unit + 1;
  }
  return digits === 0 ? ms : null;
}

/**
 * ISO-8601 in hours, minutes and seconds: `PT24H`, `PT1H30M`, `PT45S`; a fraction of a
 * second is cut off.
 */
export function renderDuration(ms: number): string {
  const seconds = Math.floor(ms / secondMs);
  const hours = counted(Math.floor(seconds / 3600), "H");
  const minutes = counted(Math.floor(seconds / 60) % 60, "M");
  return `PT${hours + minutes + counted(seconds % 60, "S") || "0S"}`;
}

const counted = (count: number, unit: string): string => (count > 0 ? `${count}${unit}` : "");
