/** What a node says of itself. Source: interface "Every node". */
import { type About, aboutShape } from "./answers.ts";
import { type Endpoint, fetchChecked } from "./http.ts";

export const about = (at: Endpoint): Promise<About> =>
  fetchChecked(at, { method: "GET", path: "/node" }, aboutShape);

/** By which push services know a Cache; `null` when it pushes nothing. */
export async function pushKeyAt(at: Endpoint): Promise<string | null> {
  return (await about(at)).push_key ?? null;
}

/**
 * Whether it knows what passes are. Others of the family would refuse a page's
 * request with `Svc-Pass`.
 */
export async function knowsPasses(at: Endpoint): Promise<boolean> {
  return (await about(at)).passes === true;
}
