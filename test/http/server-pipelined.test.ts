/**
 * Requests behind each other in one packet (HTTP/1.1 pipelining): Bun ends the connection
 * (docs/upstream.md), and nothing of the first one is lost.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import { registerSelfSender, type SelfSender, startTestNodes } from "../support/nodes.ts";
import { sendRaw } from "./raw.ts";

let nodes: Awaited<ReturnType<typeof startTestNodes>>;
let sender: SelfSender;
beforeAll(async () => {
  nodes = await startTestNodes();
  sender = await registerSelfSender(nodes.url, `did:svc:${"Pipe".repeat(8)}` as Did);
});
afterAll(() => nodes.stop());

const get = "GET /limits HTTP/1.1\r\nHost: localhost\r\n\r\n";
const postOf = (body: string) =>
  `POST /cache/store HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

describe("a request in the same packet", () => {
  test.each([
    ["a GET", get],
    ["another POST", ""],
  ])("%s behind a POST ends the connection; the envelope is stored", async (_name, second) => {
    const body = sender.envelope();
    const other = sender.envelope();
    const answer = await sendRaw(
      nodes.url,
      postOf(body) + (second === "" ? postOf(other) : second),
    );
    expect([answer.all, answer.closed]).toEqual(["", true]);
    // A repeat finds the first one again; the second one never began.
    const repeated = await sendRaw(nodes.url, postOf(body));
    expect([repeated.status, JSON.parse(repeated.body).deduped]).toEqual([202, true]);
    const later = await sendRaw(nodes.url, postOf(other));
    expect([later.status, JSON.parse(later.body).deduped]).toEqual([202, false]);
  });
});
