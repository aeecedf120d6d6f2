/**
 * Unsigned 64-bit numbers: `bigint` inside, decimal text on the wire, never a floating-point number.
 * Source: rules section 1 ("u64 text").
 */

export const u64Max = 2n ** 64n - 1n;

const decimalForm = /^(0|[1-9][0-9]{0,19})$/;

/** `0` or digits without a leading zero, at most 2^64 - 1; `null` for anything else. */
export function parseU64(text: string): bigint | null {
  if (!decimalForm.test(text)) return null;
  const value = BigInt(text);
  return value <= u64Max ? value : null;
}

/** Decimal text of an unsigned 128-bit number, or `null`. */
export function parseU128(text: string): bigint | null {
  if (!/^(0|[1-9][0-9]{0,38})$/.test(text)) return null;
  const value = BigInt(text);
  return value < 2n ** 128n ? value : null;
}
