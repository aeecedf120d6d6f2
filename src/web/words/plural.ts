/**
 * The form of a text that a language has for a count, by the rules of the Unicode
 * CLDR that the browser knows.
 */

type Forms = Partial<Record<Intl.LDMLPluralRule, string>> & { readonly other: string };

/** `#` in a form stands for the count. */
export function pluralOf(language: string): (count: number, forms: Forms) => string {
  const rules = new Intl.PluralRules(language);
  const numbers = new Intl.NumberFormat(language);
  return (count, forms) =>
    (forms[rules.select(count)] ?? forms.other).replace("#", numbers.format(count));
}
