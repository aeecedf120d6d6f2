/**
 * The SDK sends envelopes to a Relay on a socket: retries with the same bytes, and chunk sets that
 * continue.
 */
import { describe, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { sendPlan } from "../../src/client/mail/send.ts";
import { endpoint } from "../../src/client/net/http.ts";
import { plan, source, to } from "../support/send-plan.ts";

/** A Relay that answers as the test says, and keeps what it was sent. */
function scriptedRelay(answers: readonly { status: number; success?: boolean; code?: string }[]) {
  const bodies: Uint8Array[] = [];
  const paths: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const answer = answers[Math.min(bodies.length, answers.length - 1)] ?? { status: 500 };
      bodies.push(new Uint8Array(await request.arrayBuffer()));
      paths.push(new URL(request.url).pathname);
      const { status, success = status < 300, code = success ? "cached" : "x" } = answer;
      return Response.json({ success, code, delivery_mode: "cache", message: "" }, { status });
    },
  });
  return {
    bodies,
    paths,
    at: endpoint(`http://127.0.0.1:${server.port}`, 5_000),
    stop: () => server.stop(true),
  };
}

describe("sending to the Relay", () => {
  /** A message of one envelope. */
  const post = ({ at }: ReturnType<typeof scriptedRelay>, retries: number) =>
    sendPlan({ ...plan, chunkBytes: 10_000 }, source, { relay: at, retries });

  test("a passing failure is repeated with the same bytes", async () => {
    const repeated = async (status: number) => {
      const relay = scriptedRelay([{ status }, { status: 202 }]);
      const { last } = await post(relay, 3);
      relay.stop();
      expect([last?.code, relay.bodies.length]).toEqual(["cached", 2]);
      expect(relay.bodies[1]).toEqual(relay.bodies[0] as Uint8Array);
      expect(relay.paths[0]).toBe(`/relay/${encodeURIComponent(to)}`);
    };
    await Promise.all([425, 429, 502, 503, 507].map(repeated));
  });

  const final: [name: string, answer: { status: number; success?: boolean; code?: string }][] = [
    ["a refusal", { status: 403, code: "policy_denied" }],
    ["an internal error", { status: 500, code: "internal_error" }],
    ["a time-out behind the Relay", { status: 504, code: "upstream_timeout" }],
    ["a 2xx that reports no success", { status: 200, success: false, code: "not_deliverable" }],
  ];
  for (const [name, answer] of final) {
    test(`${name} is not repeated`, async () => {
      const relay = scriptedRelay([answer]);
      const error = await post(relay, 3).catch((cause: unknown) => cause);
      relay.stop();
      expect(relay.bodies.length).toBe(1);
      expect(error instanceof ClientError ? [error.code, error.status] : error).toEqual([
        answer.code,
        answer.status,
      ]);
    });
  }

  test("without retries left the last failure is reported", async () => {
    const relay = scriptedRelay([{ status: 503, code: "service_unavailable" }]);
    const error = await post(relay, 0).catch((cause: unknown) => cause);
    relay.stop();
    expect(error instanceof ClientError && error.code).toBe("service_unavailable");
    const gone = await post(relay, 0).catch((cause: unknown) => cause);
    expect(gone instanceof ClientError && gone.kind).toBe("unreachable");
  });

  test("an interrupted set continues where it stopped, with the same bytes", async () => {
    const relay = scriptedRelay([
      { status: 202 },
      { status: 403, code: "policy_denied" },
      { status: 202 },
    ]);
    const options = { relay: relay.at, retries: 0 };
    let delivered = 0;
    const onDelivered = () => {
      delivered++;
    };
    await sendPlan(plan, source, { ...options, from: 0, onDelivered }).catch(() => undefined);
    expect(delivered).toBe(1);
    const sent = await sendPlan(plan, source, { ...options, from: delivered, onDelivered });
    relay.stop();
    expect([sent.chunks, sent.messageIds.length, delivered]).toEqual([3, 2, 3]);
    expect(relay.bodies[2]).toEqual(relay.bodies[1] as Uint8Array);
  });
});
