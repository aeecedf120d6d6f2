/** The bound that a chunked message has everywhere: in envelopes, in schemas and in the SDK. */

/** Chunks of one message. */
export const chunksMax = 65_535;
