/** The values of a proof as a request presents them, by the names under which it sends them. */
export function presented<K extends string>(
  names: Readonly<Record<K, string>>,
  values: Readonly<Record<K, string | null | undefined>>,
): (name: string) => string | null {
  const sent = new Map((Object.keys(names) as K[]).map((key) => [names[key], values[key] ?? null]));
  return (name) => sent.get(name) ?? null;
}
