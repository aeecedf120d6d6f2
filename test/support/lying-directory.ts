/**
 * A proxy in front of a real Directory that tells the lies of docs/trust.md, and the truth while it
 * has none to tell.
 */

type Said = { readonly path: string; readonly json: Record<string, unknown> };

/** What is made of an answer; `null` leaves it as it is. */
export type Lie = {
  readonly json?: (said: Said) => object | null;
  /** Another proof of a DID, or `none` instead of one; in delivery resolutions too. */
  readonly proof?: (did: string) => Uint8Array | "none" | null;
  /** Another entry of the log for a key in hex, or `none` instead of one. */
  readonly entry?: (key: string, honest: Uint8Array) => Uint8Array | "none" | null;
  /** What it answers at some paths, whatever is true. */
  readonly shows?: Readonly<Record<string, object>>;
  /** What it answers to changes at some paths, which never reach the ledger. */
  readonly swallows?: Readonly<Record<string, object>>;
  /** A path where nothing is answered but a passing failure. */
  readonly refuses?: string;
};

/** `refused` and `swallowed`: how often `refuses` and `swallows` applied. */
export type LyingDirectory = {
  readonly url: string;
  lie: Lie;
  refused: number;
  swallowed: number;
  readonly stop: () => Promise<void>;
};

export function lyingDirectory(real: string): LyingDirectory {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request) => answer(request, real, proxy),
  });
  const proxy: LyingDirectory = {
    url: `http://127.0.0.1:${server.port}`,
    lie: {},
    refused: 0,
    swallowed: 0,
    stop: () => server.stop(true),
  };
  return proxy;
}

async function answer(request: Request, real: string, proxy: LyingDirectory): Promise<Response> {
  const { lie } = proxy;
  const { pathname, search } = new URL(request.url);
  const path = decodeURIComponent(pathname);
  const { method } = request;
  if (path === lie.refuses) {
    proxy.refused++;
    return refusal(502, "chain_unavailable");
  }
  const shown = lie.shows?.[path];
  if (method === "GET" && shown !== undefined) return Response.json(shown);
  const swallowed = method === "GET" ? undefined : lie.swallows?.[path];
  if (swallowed !== undefined) proxy.swallowed++;
  if (swallowed !== undefined) return Response.json(swallowed, { status: 202 });
  const body = method === "GET" ? {} : { body: await request.bytes() };
  const headers = { "content-type": "application/json" };
  const honest = await fetch(`${real}${pathname}${search}`, { method, headers, ...body });
  const key = /^\/log\/entry\/([0-9a-f]{64})$/.exec(path)?.[1];
  if (key !== undefined && lie.entry !== undefined) {
    const bytes = await honest.bytes();
    const other = lie.entry(key, bytes) ?? bytes;
    return other === "none" ? refusal(404, "not_found") : new Response(other.slice());
  }
  const [, proved, resolved] =
    /^(?:\/dids\/([^/]+)\/proof|\/delivery-resolution\/([^/]+))$/.exec(path) ?? [];
  const forged = lie.proof?.(proved ?? resolved ?? "") ?? null;
  if (proved !== undefined && forged !== null)
    return forged === "none" ? refusal(404, "not_found") : new Response(forged.slice());
  if (!honest.headers.get("content-type")?.includes("json"))
    return new Response(await honest.bytes(), honest);
  const { key_proof, ...json } = (await honest.json()) as Record<string, unknown>;
  const keyProof = forged === null ? key_proof : forged === "none" ? undefined : forged.toBase64();
  const told = { ...json, ...(keyProof === undefined ? {} : { key_proof: keyProof }) };
  return Response.json(honest.ok ? (lie.json?.({ path, json: told }) ?? told) : told, {
    status: honest.status,
  });
}

function refusal(status: number, code: string): Response {
  return Response.json({ code, detail: "so it says" }, { status });
}
