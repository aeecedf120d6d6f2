/** Bodies: under their cap, as they arrive, of the right type, before their deadline. */
import { describe, expect, test } from "bun:test";
import { discardBody, readBody } from "../../../../src/nodes/http/body.ts";
import { countedBytesMin, createFairShare } from "../../../../src/nodes/http/capacity.ts";
import { codeOf, echo, jsonType, post, take, testApp, testRoute } from "../../../support/app.ts";
import { pause } from "../../../support/wait.ts";

describe("bodies", () => {
  const { ask } = testApp([take, echo]);

  test.each([
    ["too many bytes", "x".repeat(101), jsonType, "too_large"],
    ["no content type", "{}", {}, "unsupported_media_type"],
    ["another content type", "{}", { "content-type": "text/plain" }, "unsupported_media_type"],
    [
      "another charset",
      "{}",
      { "content-type": "application/json; charset=latin1" },
      "unsupported_media_type",
    ],
    [
      "a content encoding",
      "{}",
      { ...jsonType, "content-encoding": "gzip" },
      "unsupported_media_type",
    ],
  ])("a body with %s is refused and ends the connection", async (_name, body, headers, code) => {
    const response = await ask("/things", post(body, headers));
    expect(await codeOf(response)).toBe(code);
    expect(response.headers.get("connection")).toBe("close");
  });

  test("a streamed body counts as it arrives", async () => {
    const parts = (count: number): ReadableStream =>
      new ReadableStream({
        start(controller) {
          for (let i = 0; i < count; i++) controller.enqueue(new Uint8Array(50));
          controller.close();
        },
      });
    expect(await (await ask("/things", post(parts(2)))).json()).toMatchObject({ bytes: 100 });
    expect(await codeOf(await ask("/things", post(parts(3))))).toBe("too_large");
  });

  test("a body that stalls is refused at the deadline", async () => {
    const slow = testApp([take], { server: { body_deadline: 20 } });
    const response = await slow.ask(
      "/things",
      post(new ReadableStream({ start: () => undefined })),
    );
    expect(await codeOf(response)).toBe("invalid_request");
  });

  test("parameters of the content type are taken when they say UTF-8", async () => {
    for (const type of [
      "application/json; charset=utf-8",
      "Application/JSON;charset=UTF-8",
      "application/json;",
    ]) {
      expect((await ask("/things", post("{}", { "content-type": type }))).status).toBe(200);
    }
  });

  test("no body at all needs no content type", async () => {
    expect((await ask("/things", { method: "POST" })).status).toBe(200);
  });

  test("a body on a route without one is refused", async () => {
    const route = testApp([
      testRoute({ method: "DELETE", path: "/x", handle: () => ({ status: 204 }) }),
    ]);
    expect(
      await codeOf(await route.ask("/x", { method: "DELETE", body: "{}", headers: jsonType })),
    ).toBe("invalid_request");
  });
});

test("a body that found no room lets another one arrive while it is thrown away", async () => {
  const budget = createFairShare(6 * countedBytesMin);
  const arriving = () => {
    const sides = new TransformStream<Uint8Array, Uint8Array>(undefined, undefined, {
      highWaterMark: 8,
    });
    const writer = sides.writable.getWriter();
    const init = { method: "POST", body: sides.readable, headers: jsonType };
    const request = new Request("http://waypost.invalid/", init);
    const rules = { bytesMax: 1 << 20, deadlineMs: 2_000, budget, client: "a" };
    const send = async (parts: number) => {
      await writer.write(new Uint8Array(parts * countedBytesMin));
      await pause(5, "the reader takes what was written");
    };
    return {
      send,
      writer,
      read: readBody(request, null, rules),
      discard: () => discardBody(request, rules),
    };
  };
  const [first, second] = [arriving(), arriving()];
  await first.send(1);
  await second.send(2);
  await second.send(1);
  await first.send(1);
  await first.writer.close();
  expect(await first.read).toMatchObject({ held: 2 * countedBytesMin });
  expect(await second.read).toBe("full");
  const discarded = second.discard();
  expect(budget.total).toBe(3 * countedBytesMin);
  await second.writer.close();
  await discarded;
  expect(budget.total).toBe(2 * countedBytesMin);
});
