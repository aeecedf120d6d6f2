/**
 * The language of the app: the one that was chosen, else the first of the browser's that the app
 * has, else English. Dates and numbers are written as in the region that the browser names for it.
 */

/** Languages that are written from right to left. Source: CLDR, `characterOrder`. */
const fromRight = new Set(["ar", "fa", "he", "ur", "yi", "ckb", "dv", "ps", "sd", "ug"]);

/** Under the names that those who read them give them. */
export const languages = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof languages;

export const isLanguage = (name: string | null): name is Language =>
  name !== null && Object.hasOwn(languages, name);
const mainOf = (locale: string): string => locale.toLowerCase().split("-")[0] ?? "";

/** The language to show, and the locale by which it writes dates and numbers. */
export function localeOf(
  chosen: string | null,
  wanted: readonly string[],
): { readonly language: Language; readonly locale: string } {
  const first = wanted.map(mainOf).find(isLanguage) ?? "en";
  const language = isLanguage(chosen) ? chosen : first;
  return { language, locale: wanted.find((one) => mainOf(one) === language) ?? language };
}

export const directionOf = (language: string): "ltr" | "rtl" =>
  fromRight.has(mainOf(language)) ? "rtl" : "ltr";
