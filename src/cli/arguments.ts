/**
 * Parsers of option values. They run while the command line is parsed, so a mistake is reported before the
 * command starts. Bounds are those of the program; a ledger or a node may allow less and reports that itself.
 */
import { InvalidArgumentError } from "commander";
import { parseDuration, secondMs } from "../core/codec/time.ts";

/** Where `waypost dev` and the examples listen. */
export const urlDefault = "http://127.0.0.1:7400";

/** Milliseconds of a duration such as `30s` or `5m`. */
export function parseWait(text: string): number {
  const ms = parseDuration(text);
  if (ms === null) throw new InvalidArgumentError("It must be a duration such as 30s or 5m.");
  return ms;
}

/** The same, or a bare number of seconds, 0 among them. */
export function parseSeconds(text: string): number {
  return /^[0-9]{1,6}$/.test(text) ? Number(text) * secondMs : parseWait(text);
}

/** A `ttl` as it goes into an envelope. */
export function parseTtl(text: string): string {
  if (parseDuration(text) === null)
    throw new InvalidArgumentError("It must be from 1 second to 30 days, such as 24h or 1d12h.");
  return text;
}

export function parseBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
    return value;
  };
}

/** As large as any number of the wire: a u32. */
export const parseCount = parseBetween(0, 2 ** 32 - 1);

/** An unsigned integer that may be larger than a number holds exactly: kept as text. */
export function parseAmount(text: string): string {
  if (!/^(0|[1-9][0-9]{0,38})$/.test(text))
    throw new InvalidArgumentError("It must be a whole number without leading zeros.");
  return text;
}

/** The address of a node. */
export function parseUrl(text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new InvalidArgumentError("It must begin with https:// or http://.");
  }
  return text;
}

/** The addresses of an option that may be repeated. */
export function collectUrls(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), parseUrl(text)];
}
