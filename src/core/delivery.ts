/**
 * The delivery plan as a pure reducer: outcomes of attempts in, the next step or a DeliveryResult out.
 * Source: decisions sections 5 and 10.
 */
export type DeliveryMode = "direct" | "forwarded" | "cache" | "failed";
