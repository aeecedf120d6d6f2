/**
 * `GET /node`: what a node says about itself, so that a client can check an address before it publishes it.
 */
import { type About, AboutAnswer } from "../../core/schema/node.ts";
import type { Route } from "./route.ts";

export function aboutRoute(about: () => About): Route {
  return {
    method: "GET",
    path: "/node",
    operation: {
      id: "node",
      summary: "Roles, public endpoints, version and keys of this node",
      tag: "Node",
      responses: { 200: { description: "What this node is.", schema: AboutAnswer } },
      codes: [],
    },
    bodyBytesMax: null,
    capacity: "reserved",
    faults: "problem",
    handle: () => ({ status: 200, json: about() }),
  };
}
