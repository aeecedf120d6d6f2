/**
 * `WAYPOST_TEST_WHOLE=1` repeats as often as before a release, and otherwise as often as each
 * change needs.
 */
export const isWhole = process.env["WAYPOST_TEST_WHOLE"] === "1";

/** How often the same is done with other random choices. No kind of check depends on it. */
export const times = (each: number, whole: number): number => (isWhole ? whole : each);
