/**
 * The options of the bus belong to its driver: every problem under the name of its setting, before
 * connecting.
 */
import { describe, expect, test } from "bun:test";
import { checkBus } from "../../../src/app/stores.ts";
import { natsOptions } from "../../../src/plugins/bus/nats.ts";
import { settings } from "../../support/settings.ts";

const problemsOf = (bus: Readonly<Record<string, unknown>>) =>
  checkBus(settings({ bus })).map(({ setting }) => setting);

describe("the options of the bus", () => {
  test("are none for one process", () => expect(problemsOf({})).toEqual([]));

  test("have defaults but for the servers", () => {
    expect(problemsOf({ plugin: "nats", servers: ["nats://127.0.0.1:4222"] })).toEqual([]);
    expect(problemsOf({ plugin: "nats" })).toEqual(["bus.servers"]);
    expect(natsOptions.parse({ servers: ["tls://bus:4222"] })).toMatchObject({
      subject_prefix: "waypost",
      token: null,
    });
  });

  test.each([
    ["bus.servers.0", { servers: ["http://127.0.0.1"] }],
    ["bus.servers.0", { servers: ["nats://user:password@host"] }],
    ["bus.subject_prefix", { servers: ["nats://host"], subject_prefix: "a.b" }],
    ["bus.tls_cert_file", { servers: ["nats://host"], tls_key_file: "/key.pem" }],
    ["bus.srvers", { servers: ["nats://host"], srvers: 1 }],
  ])("%s is a problem in %p", (setting, options) => {
    expect(problemsOf({ plugin: "nats", ...options })).toEqual([setting]);
  });

  test("may stay in a file that names the bus of one process, but not be wrong", () => {
    expect(problemsOf({ plugin: "local", subject_prefix: "one" })).toEqual([]);
    expect(problemsOf({ plugin: "local", colour: 1 })).toEqual(["bus.colour"]);
  });
});
