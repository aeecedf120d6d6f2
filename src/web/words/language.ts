/** The words that the app shows, and the locale by which it writes dates and numbers. */
import { english, type Words } from "./english.ts";
import { directionOf, isLanguage, type Language, localeOf } from "./locale.ts";

const setting = "language";

/** What is chosen, or `null` for the browser's. */
export function chosenLanguage(): Language | null {
  const chosen = localStorage.getItem(setting);
  return isLanguage(chosen) ? chosen : null;
}

/**
 * The words of the language, and how it writes dates and numbers. Another
 * choice loads the page anew.
 */
export let t: Words = english;
export let locale = "en";

const others: Partial<Record<Language, () => Promise<Words>>> = {
  de: async () => (await import("./german.ts")).german,
};

/** Before anything is drawn. */
export async function loadWords(): Promise<void> {
  const { language, locale: found } = localeOf(storedChoice(), navigator.languages);
  // Where it can't be loaded, English says so with everything else.
  const loaded = await others[language]?.().catch(() => null);
  if (loaded === null) return;
  t = loaded ?? english;
  locale = found;
  document.documentElement.lang = language;
  document.documentElement.dir = directionOf(language);
}

/** A browser that keeps nothing for this page throws. */
function storedChoice(): string | null {
  try {
    return chosenLanguage();
  } catch {
    return null;
  }
}

/** `null`: as the browser has it. What was typed is a draft by then. */
export function chooseLanguage(language: string | null): void {
  if (isLanguage(language)) localStorage.setItem(setting, language);
  else localStorage.removeItem(setting);
  location.reload();
}
