/** The text forms of settings, both ways: durations such as `1h30m`, sizes such as `25MiB`. */

const durationUnitsMs: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};
const sizeUnits: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** Milliseconds of `500ms`, `30s`, `1h30m`; `null` for anything else. */
export function parseDurationSetting(text: string): number | null {
  if (text.length > 40 || !/^(?:\d{1,9}(?:ms|[smhdw]))+$/.test(text)) return null;
  let ms = 0;
  for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g))
    ms += Number(count) * (durationUnitsMs[unit ?? ""] ?? 0);
  return ms;
}

/** Bytes of `25MiB`, `4KiB`, `512B` or of a plain number; `null` for anything else. */
export function parseSizeSetting(value: unknown): number | null {
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value : null;
  const m = typeof value === "string" ? /^(\d{1,12})(B|KiB|MiB|GiB|TiB)$/.exec(value) : null;
  return m === null ? null : Number(m[1]) * (sizeUnits[m[2] ?? ""] ?? 0);
}

export function renderDurationSetting(ms: number): string {
  for (const unit of ["h", "m", "s"]) {
    const unitMs = durationUnitsMs[unit] ?? 1;
    if (ms > 0 && ms % unitMs === 0) return `${ms / unitMs}${unit}`;
  }
  return `${ms}ms`;
}

export function renderSizeSetting(bytes: number): string {
  for (const unit of ["GiB", "MiB", "KiB"]) {
    const unitBytes = sizeUnits[unit] ?? 1;
    if (bytes > 0 && bytes % unitBytes === 0) return `${bytes / unitBytes}${unit}`;
  }
  return `${bytes}B`;
}
