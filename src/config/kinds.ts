/**
 * The kinds of values that settings have, each with the text of its refusal and its pattern
 * for editors. A kind is a Zod schema; which settings there are is in `schema.ts`.
 */
import { z } from "zod";
import { dayMs, hourMs, minuteMs, secondMs, weekMs } from "../core/codec/time.ts";
import { homeOfUrl, parseHome } from "../core/ledger/home.ts";
import { isProxyNetwork, parseListenAddress, parseNetwork } from "../core/message/address.ts";
import { adminRights } from "../core/schema/admin.ts";
import { parseNamedAddress } from "../core/trust/note.ts";
import { parseSizeSetting, renderInUnits, renderSizeSetting } from "../storage/setting-problem.ts";

// ------------------------------------------------------------------------------- kinds of settings

type Range = { readonly min?: number; readonly max?: number };

/**
 * Text with a unit, read as a number. What `meta` holds goes into the JSON Schema; `form`
 * is for `reference.ts`.
 */
function withUnit(
  standard: string,
  { min = 1, max = Number.MAX_SAFE_INTEGER }: Range,
  unit: {
    readonly form: "duration" | "size";
    readonly example: string;
    readonly parse: (value: unknown) => number | null;
    readonly render: (value: number) => string;
    readonly json: Readonly<Record<string, unknown>>;
  },
) {
  const transform = (value: unknown, context: z.RefinementCtx): number => {
    const parsed = unit.parse(value);
    if (parsed !== null && parsed >= min && parsed <= max) return parsed;
    const bounds = `must be from ${unit.render(min)} to ${unit.render(max)}`;
    context.addIssue(parsed === null ? `must be a ${unit.form} such as ${unit.example}` : bounds);
    return z.NEVER;
  };
  const meta = { form: unit.form, ...unit.json };
  return z.unknown().transform(transform).prefault(standard).meta(meta);
}

export const duration = (standard: string, range: Range = {}) =>
  withUnit(
    standard,
    { max: 366 * dayMs, ...range },
    {
      form: "duration",
      example: '"30s" or "1h30m"',
      parse: (value) => (typeof value === "string" ? parseDurationSetting(value) : null),
      render: renderDurationSetting,
      json: { type: "string", pattern: "^([0-9]+(ms|[smhdw]))+$" },
    },
  );

/** Without a default: what it means to leave it out is the reader's. */
export const sizeOrNone = z
  .unknown()
  .optional()
  .transform((value, context) => {
    if (value === undefined) return undefined;
    const parsed = parseSizeSetting(value);
    if (parsed !== null && parsed >= 1) return parsed;
    context.addIssue('must be a size such as "25MiB" or a number of bytes');
    return z.NEVER;
  })
  .meta({ type: ["string", "integer"], pattern: "^[0-9]+(B|KiB|MiB|GiB|TiB)$", minimum: 1 });

export const size = (standard: string, range: Range = {}) =>
  withUnit(standard, range, {
    form: "size",
    example: '"25MiB" or a number of bytes',
    parse: parseSizeSetting,
    render: renderSizeSetting,
    json: { type: ["string", "integer"], pattern: "^[0-9]+(B|KiB|MiB|GiB|TiB)$", minimum: 0 },
  });

export const count = (value: number, { min = 1, max = 1_000_000_000 }: Range = {}) =>
  z.int().min(min).max(max).prefault(value);
export const flag = (value: boolean) => z.boolean().prefault(value);
export const name = z
  .string()
  .regex(/^[a-z][a-z0-9_-]{0,31}$/, "must be a name of a-z, 0-9, _ and -");
export const store = name.prefault("main");
export const text = z.string().min(1).max(2_048);
export const filePath = z.string().min(1).max(4_096).nullable().prefault(null);
export const listOf = (
  entry: typeof text,
  { min = 0, max = 1_000, standard = [] as string[] } = {},
) => z.array(entry).min(min).max(max).prefault(standard);

export const listenAddress = text
  .refine(
    (address) => parseListenAddress(address) !== null,
    'must be host:port, [v6]:port or unix:/path (of at most 94 characters), such as "127.0.0.1:7400", with a port of at most 65535',
  )
  .meta({ pattern: "^(unix:.+|.+:[0-9]{1,5})$" });
const networkPattern = "[0-9a-fA-F:.]+(/[0-9]{1,3})?";
export const proxyNetwork = text
  .refine(
    isProxyNetwork,
    'must be an address such as "127.0.0.1", a network such as "10.0.0.0/8" with zeros behind its prefix, or "unix"',
  )
  .meta({ pattern: `^(unix|${networkPattern})$` });
export const privateNetwork = text
  .refine(
    (entry) => parseNetwork(entry) !== null,
    "must be a network such as 10.0.0.0/8, with zeros behind its prefix",
  )
  .refine((entry) => parseNetwork(entry)?.prefixBits !== 0, "must not be every address")
  .meta({ pattern: `^${networkPattern}$` });
export const origin = text
  .refine(isOrigin, 'must be an origin such as "https://app.example" (without a path), or "*"')
  .meta({ pattern: "^(\\*|[a-z][a-z0-9+.-]*://[^/]+)$" });
const endpoint = z
  .string()
  .refine(
    isPublicEndpoint,
    'must be a URL such as "https://relay.example.org", without query, fragment and user',
  )
  .meta({ format: "uri", pattern: "^https?://[^?#]+$" });
export const namedAddress = (type: "log" | "witness") =>
  text
    .refine(
      (entry) => parseNamedAddress(entry)?.key.type === type,
      `must be the vkey of a ${type}, a space and its URL, such as "name+0123abcd+… https://${type}.example/${type}"`,
    )
    .meta({ pattern: "^[^ ]+ https?://[^?# ]+$" });
export const witnessAddress = namedAddress("witness");
export const endpoints = listOf(endpoint, { max: 16 });
export const homeUrl = text
  .refine(
    (url) => homeOfUrl(url) !== null,
    "must be https:// and a host name, without a path; http:// only for an address of this machine",
  )
  .meta({ pattern: "^https?://[^/]+/?$" });
export const homeEntry = text
  .refine(
    (entry) => entry === "*" || parseHome(entry.replace(/^!/, "")) !== null,
    'must be a host, "!" and a host, or "*"',
  )
  .meta({ pattern: "^(\\*|!?[^!/@]+)$" });
export const recipients = z
  .string()
  .refine(
    (source) =>
      source === "local" ||
      /^ledger:[a-z][a-z0-9_-]{0,31}$/.test(source) ||
      isPublicEndpoint(source),
    'must be "local", "ledger:<store>" or the URL of a Directory, such as "https://directory.example.org"',
  )
  .meta({ pattern: "^(local|ledger:[a-z][a-z0-9_-]*|https?://[^?#]+)$" })
  .prefault("local")
  .describe(
    "Where Relay and Cache look up recipients and senders: `local` (this process's Directory), `ledger:<store>`, or a Directory's URL.",
  );

const adminRight = text
  .refine((right) => adminRights.includes(right), `must be one of ${adminRights.join(", ")}`)
  .meta({ enum: [...adminRights] });
export const groupPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$/;
export const adminGroups = z
  .record(
    z
      .string()
      .regex(
        /^(user:)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$/,
        "must be a Unix group, or user: and a user",
      ),
    z.array(adminRight).min(1).max(64),
  )
  .prefault({});

/** An origin as browsers send it, or `*`. */
function isOrigin(text: string): boolean {
  return text === "*" || (URL.canParse(text) && new URL(text).origin === text);
}

/** An endpoint that others reach this node by. */
export function isPublicEndpoint(text: string): boolean {
  if (text.length > 512 || !URL.canParse(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return (
    (protocol === "https:" || protocol === "http:") && username + password + search + hash === ""
  );
}

// -------------------------------------------------------------------------------------- text forms
const durationUnitsMs: Readonly<Record<string, number>> = {
  ms: 1,
  s: secondMs,
  m: minuteMs,
  h: hourMs,
  d: dayMs,
  w: weekMs,
};
/** Milliseconds of `500ms`, `30s`, `1h30m`; `null` for anything else. */
export function parseDurationSetting(text: string): number | null {
  if (text.length > 40 || !/^(?:\d{1,9}(?:ms|[smhdw]))+$/.test(text)) return null;
  let ms = 0;
  for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g))
    ms += Number(count) * (durationUnitsMs[unit ?? ""] ?? 0);
  return ms;
}

export function renderDurationSetting(ms: number): string {
  return renderInUnits(durationUnitsMs, ["h", "m", "s", "ms"], ms);
}
