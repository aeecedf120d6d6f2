/**
 * The same journey at a node of `@waypost/client/testing`; the process ends without stopping it.
 */
import { testNode } from "@waypost/client/testing";

const { url } = await testNode();
if (globalThis.Deno === undefined) process.env.WAYPOST_URL = url;
else Deno.env.set("WAYPOST_URL", url);
await import("./journey.mjs");
