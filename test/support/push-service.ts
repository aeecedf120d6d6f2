/**
 * A push service on a real socket, whose answers the test sets, and devices that subscribe at it.
 * They decrypt with another implementation of RFC 8291 than the node's.
 */
import { createECDH, createPublicKey, type ECDH, randomBytes, verify } from "node:crypto";
import ece from "http_ece";

type Pushed = {
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
  readonly atMs: number;
};

export type PushService = Awaited<ReturnType<typeof startPushService>>;
export type Device = ReturnType<typeof deviceAt>;

export async function startPushService() {
  const heard: Pushed[] = [];
  const waiting: (() => void)[] = [];
  const state = {
    answer: (_: Pushed): Response | Promise<Response> => new Response(null, { status: 201 }),
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const body = Buffer.from(await request.arrayBuffer());
      const pushed = {
        path: new URL(request.url).pathname,
        headers: request.headers,
        body,
        atMs: performance.now(),
      };
      heard.push(pushed);
      for (const wake of waiting.splice(0)) wake();
      return state.answer(pushed);
    },
  });
  const url = `http://127.0.0.1:${server.port}`;
  return {
    url,
    heard,
    /** What it answers from now on. */
    answer: (answer: typeof state.answer) => {
      state.answer = answer;
    },
    atLeast: async (count: number) => {
      while (heard.length < count) await new Promise<void>((resolve) => waiting.push(resolve));
    },
    device: (name: string) => deviceAt(url, name, heard),
    stop: () => server.stop(true),
  };
}

function deviceAt(url: string, name: string, heard: readonly Pushed[]) {
  const pair = createECDH("prime256v1");
  pair.generateKeys();
  const auth = randomBytes(16);
  const path = `/wake/${name}`;
  const keys = { p256dh: pair.getPublicKey("base64url"), auth: auth.toString("base64url") };
  const own = () => heard.filter((pushed) => pushed.path === path);
  const texts = () => own().map(({ body }) => openPush(body, pair, auth));
  return {
    /** As a browser renders its subscription. */
    subscription: { endpoint: url + path, expirationTime: null, keys },
    pushes: own,
    texts,
    /** What the last push that brought a token said, as a service worker passes it on. */
    told: () => toldIn(texts()),
    token: (): string | null => toldIn(texts())?.token ?? null,
    /** What the device was woken with: not the tokens. */
    woken: () => texts().filter((text) => !text.startsWith('{"waypost":')),
  };
}

type Told = { readonly id: string; readonly token: string };

function toldIn(texts: readonly string[]): Told | null {
  const last = texts.findLast((text) => text.startsWith('{"waypost":'));
  return last === undefined ? null : (JSON.parse(last) as { waypost: Told }).waypost;
}

export function openPush(body: Buffer, privateKey: ECDH, auth: Buffer): string {
  return ece
    .decrypt(body, { version: "aes128gcm", privateKey, authSecret: auth.toString("base64url") })
    .toString("utf8");
}

/** The claims of a request's authorization, `null` unless the key in it made the signature. */
export function vapidClaims(
  headers: Headers,
): { readonly key: string; readonly claims: Record<string, unknown> } | null {
  const [, token = "", key = ""] =
    /^vapid t=([\w.-]+), k=([\w-]+)$/.exec(headers.get("authorization") ?? "") ?? [];
  const [head = "", claims = "", signature = ""] = token.split(".");
  const point = Buffer.from(key, "base64url");
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((part) =>
    part.toString("base64url"),
  );
  const jwk = createPublicKey({
    key: { kty: "EC", crv: "P-256", x: x ?? "", y: y ?? "" },
    format: "jwk",
  });
  const made = Buffer.from(signature, "base64url");
  const isValid = verify(
    "sha256",
    Buffer.from(`${head}.${claims}`),
    { key: jwk, dsaEncoding: "ieee-p1363" },
    made,
  );
  return isValid ? { key, claims: JSON.parse(Buffer.from(claims, "base64url").toString()) } : null;
}
