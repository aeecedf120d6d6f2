/**
 * Bounds of what the owner of a mailbox says of passes, which a client needs without the
 * shapes. Source: interface "Passes".
 */

/** Valid at once. */
export const passesMax = 1_024;
/** Named as revoked. */
export const revokedPassesMax = 256;
