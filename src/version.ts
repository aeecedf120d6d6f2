/** The version of this program, from its package. */
import manifest from "../package.json" with { type: "json" };

export const version: string = manifest.version;

/** Set by `build.ts`: the licenses of what is compiled into the executable. */
declare const NOTICES: string | undefined;

export const notices =
  typeof NOTICES === "string"
    ? NOTICES
    : "The packages in node_modules have their licenses with them.";
