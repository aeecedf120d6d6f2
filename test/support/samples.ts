/**
 * A value of the shape that a schema describes, out of what the schema says: its examples, names,
 * bounds and types.
 */
type Described = {
  readonly examples?: readonly unknown[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Described[];
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Described>>;
  readonly required?: readonly string[];
  readonly items?: Described;
  readonly minimum?: number;
};

/** Optional members are left out, but for those that `also` names. */
export function sampleOf(schema: unknown, also: readonly string[] = []): unknown {
  const {
    examples = [],
    const: literal,
    enum: values = [],
    anyOf,
    type,
    minimum = 1,
  } = schema as Described;
  const [given = literal] = [...examples, ...values];
  if (given !== undefined) return given;
  if (anyOf !== undefined)
    return sampleOf(anyOf.find((one) => one.examples !== undefined) ?? anyOf[0], also);
  const { properties = {}, required = [], items } = schema as Described;
  if (type === "object") {
    const names = Object.keys(properties).filter(
      (name) => required.includes(name) || also.includes(name),
    );
    return Object.fromEntries(names.map((name) => [name, sampleOf(properties[name], also)]));
  }
  if (type === "array") return [sampleOf(items, also)];
  if (type === "integer" || type === "number") return minimum;
  return type === "boolean" ? true : type === "null" ? null : "text";
}
