/** Names and media types as a store keeps them: a sender may write millions of characters. */

/** In UTF-16 code units. */
const unitsMax = 1_024;
const ending = /\.[\p{L}\p{N}]{1,16}$/u;

/** The ending of a file stays, and no letter is cut in two. */
export function keptName(name: string): string {
  if (name.length <= unitsMax) return name;
  const [last = ""] = ending.exec(name.slice(-64)) ?? [];
  return cutAt(name, unitsMax - last.length) + last;
}

export const keptType = (mediaType: string): string => cutAt(mediaType, unitsMax);

/** At most so many code units, without half of a pair. */
function cutAt(text: string, units: number): string {
  const part = text.slice(0, units);
  return /[\ud800-\udbff]$/.test(part) ? part.slice(0, -1) : part;
}
