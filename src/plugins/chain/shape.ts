/**
 * Types of a chain's metadata as short texts, to compare them with what this program reads and writes:
 * two types have one text exactly when they have one encoding. Names of fields do not show, names and
 * order of variants do. Bounded vectors and account ids read as what they wrap.
 */
import type { PortableRegistry } from "@polkadot/types";
import type { SiLookupTypeId } from "@polkadot/types/interfaces";

export function shapeOf(lookup: PortableRegistry, id: SiLookupTypeId, depth = 0): string {
  if (depth > 16) return "…";
  const { def, path } = lookup.getSiType(id);
  const inner = (type: SiLookupTypeId) => shapeOf(lookup, type, depth + 1);
  if (def.isPrimitive) return def.asPrimitive.type.toLowerCase();
  if (def.isCompact) return `compact ${inner(def.asCompact.type)}`;
  if (def.isSequence) return listOf(inner(def.asSequence.type));
  if (def.isArray) return `${inner(def.asArray.type)}*${def.asArray.len.toNumber()}`;
  if (def.isTuple) return tupleOf(def.asTuple.map(inner));
  if (def.isComposite) return tupleOf(def.asComposite.fields.map((field) => inner(field.type)));
  if (!def.isVariant) return def.type;
  const { variants } = def.asVariant;
  const some = path.at(-1)?.toString() === "Option" ? variants.find(({ name }) => name.eq("Some")) : undefined;
  if (some?.fields[0] !== undefined) return `${inner(some.fields[0].type)}?`;
  return variants
    .map(({ name, index, fields }) =>
      variantOf(
        name.toString(),
        index.toNumber(),
        fields.map((field) => inner(field.type)),
      ),
    )
    .join("|");
}

const listOf = (item: string): string => (item === "u8" ? "bytes" : `[${item}]`);
const tupleOf = (items: readonly string[]): string =>
  items.length === 1 ? (items[0] as string) : `(${items.join(",")})`;
const variantOf = (name: string, index: number, fields: readonly string[]): string =>
  `${index}:${name}${fields.length === 0 ? "" : tupleOf(fields)}`;
