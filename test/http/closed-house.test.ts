/**
 * Who is served where the operator chooses who registers: own recipients from anyone who writes to
 * them, and others only for what own people sign.
 */
import { afterAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { registerBodyOf, testDirectory } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { openInbox, startProvider } from "../support/providers.ts";

const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
});

const resolve = async () => ["127.0.0.1"];
const waiting = { timeoutMs: 60_000, intervalMs: 20 };

type Changes = Pick<ConfigInput, "directory" | "cache">;
type House = TestNodes & {
  /** Reads a configuration with another value. */
  readonly register: (registration: "invite" | "closed") => Promise<unknown>;
};

async function houseWith(changes: Changes): Promise<House> {
  const own = `http://localhost:${freePort()}`;
  const config = {
    server: { listen: [own.slice("http://".length).replace("localhost", "127.0.0.1")] },
    directory: {
      enabled: true,
      rate_limit_loopback: false,
      public_endpoint: own,
      ...changes.directory,
    },
    relay: relayAt(own),
    cache: { enabled: true, public_endpoints: [own], ...changes.cache },
  };
  const stores = { main: { plugin: "memory", block_time_ms: 50 } };
  const nodes = await startTestNodes({ stores, ...config }, {}, { resolve });
  stops.push(nodes.stop);
  const register = async (registration: "invite" | "closed") => {
    const directory = { ...config.directory, registration };
    const next = checkConfig({ stores, ...config, directory });
    if (!next.ok) throw new Error(JSON.stringify(next.problems));
    expect((await nodes.reload(next.config)).changed).toEqual(["directory.registration"]);
  };
  return { ...nodes, url: own, register };
}

/** Of another Directory, with the house's Relay and Cache in the document. */
async function guestOf(house: string, home: string): Promise<Waypost> {
  const urls = { directoryUrl: `http://${home}`, relayUrl: house, cacheUrl: house };
  const guest = await Waypost.open({ ...urls, keys: memoryKeys(), waiting });
  stops.push(() => guest.close());
  // Now the house knows where the guest is at home, also without a word about it.
  expect((await fetch(`${house}/resolve/${guest.did}?home=${home}`)).status).toBe(200);
  return guest;
}

async function answerOf(house: string, path: string, to: string): Promise<string> {
  const timestamp = new Date().toISOString();
  const envelope = { message_id: crypto.randomUUID(), to, timestamp, payload: { n: 1 } };
  const answer = await fetch(house + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(envelope),
  });
  const { code = "stored" } = (await answer.json()) as { code?: string };
  return `${answer.status} ${code}`;
}

const paths = ["/cache/store", "/relay"];

async function elsewhere() {
  const provider = await startProvider({ port: freePort() });
  stops.push(provider.stop);
  return provider;
}

test("a closed house serves its own, whoever writes to them, and takes out what they sign", async () => {
  const [house, other] = [await houseWith({}), await elsewhere()];
  const member = await Waypost.open({ url: house.url, keys: memoryKeys(), waiting });
  const guest = await guestOf(house.url, other.home);
  const outsider = await Waypost.open({
    url: `http://${other.home}`,
    keys: memoryKeys(),
    waiting,
  });
  const [atMember, atOutsider] = [openInbox(member), openInbox(outsider)];
  stops.push(atMember.close, atOutsider.close);
  // An open house serves guests.
  for (const path of paths)
    expect(await answerOf(house.url, path, guest.did)).toMatch(/^202 (stored|cached)$/);
  for (const registration of ["invite", "closed"] as const) {
    await house.register(registration);
    for (const path of paths) {
      expect([path, await answerOf(house.url, path, guest.did)]).toEqual([
        path,
        "403 policy_denied",
      ]);
      expect(await answerOf(house.url, path, member.did)).toMatch(
        /^20[02] (stored|delivered|cached)$/,
      );
    }
    // Senders as before: from outside to a member, and a member to somebody elsewhere.
    await outsider.send(`${member.did}@${house.url.slice("http://".length)}`, "in");
    expect((await atMember.next()).text).toBe("in");
    const out = await member.send(`${outsider.did}@${other.home}`, "out");
    expect(out.last?.code).toBe("forwarded");
    expect((await atOutsider.next()).text).toBe("out");
  }
}, 60_000);

test("the setting decides whatever the registration is", async () => {
  const other = await elsewhere();
  const rows = [
    ["any", "closed", /^202 (stored|cached)$/],
    ["own", "open", /^403 policy_denied$/],
  ] as const;
  for (const [recipients, registration, expected] of rows) {
    const house = await houseWith({ directory: { registration }, cache: { recipients } });
    const guest = await guestOf(house.url, other.home);
    for (const path of paths) expect(await answerOf(house.url, path, guest.did)).toMatch(expected);
  }
}, 60_000);

test("a Relay and a Cache of their own follow what the Directory says of its registration", async () => {
  const [house, other] = [
    await houseWith({ directory: { registration: "closed" } }),
    await elsewhere(),
  ];
  const own = `http://127.0.0.1:${freePort()}`;
  const beside = await startTestNodes({
    server: { listen: [own.slice("http://".length)], recipients: house.url },
    directory: {},
    relay: relayAt(own),
    cache: { enabled: true, public_endpoints: [own] },
  });
  stops.push(beside.stop);
  const known = await guestOf(house.url, other.home);
  const urls = { directoryUrl: `http://${other.home}`, relayUrl: own, cacheUrl: own };
  // A bundle that is put before its home is known would have the Cache remember for ten seconds
  // that it knows no such DID.
  const there = await Waypost.open({ ...urls, keys: memoryKeys(), waiting, announce: false });
  stops.push(() => there.close());
  expect((await fetch(`${house.url}/resolve/${there.did}?home=${other.home}`)).status).toBe(200);
  for (const path of paths) {
    expect([path, await answerOf(own, path, there.did)]).toEqual([path, "403 policy_denied"]);
    expect([path, await answerOf(house.url, path, known.did)]).toEqual([path, "403 policy_denied"]);
  }
}, 60_000);

test("no name but a self-certifying one begins like it", async () => {
  const directory = await testDirectory();
  stops.push(directory.close);
  const own = identityOf("lookalike");
  const did = `did:svc:wpAcCD${"2".repeat(16)}Ye9t` as Did;
  const renamed = JSON.stringify(registerBodyOf(own, directory.nowMs())).replaceAll(own.did, did);
  for (const path of ["/register-did", "/register-did/prepare"]) {
    const { timestamp, signature, ...prepared } = JSON.parse(renamed) as Record<string, unknown>;
    const body = path.endsWith("prepare") ? prepared : { ...prepared, timestamp, signature };
    const { status, body: refusal } = await directory.ask("POST", path, body);
    expect([path, status, refusal["code"]]).toEqual([path, 400, "invalid_did"]);
  }
});
