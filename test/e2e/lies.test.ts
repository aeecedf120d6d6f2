/**
 * The lies of docs/trust.md, told at once to the SDK, to the SDK as npm packs it in Node, and to
 * the commands of the executable: each ends with its own code. The commands find a lie by the SDK
 * and add how they end and what they print, so they are told one lie of each kind.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ClientError } from "../../src/client/base/failure.ts";
import { executable, run, scratchFolder } from "../support/executable.ts";
import {
  type LieStage,
  openHonest,
  policyOf,
  startLieStage,
  type Victim,
} from "../support/lie-stage.ts";
import { type LieRow, lies, tell } from "../support/lies.ts";
import { testKey } from "../support/logs.ts";
import type { LyingDirectory } from "../support/lying-directory.ts";
import { installPackedSdk, type PackedSdk, place } from "./packed-sdk.ts";

const scratch = scratchFolder();
let sdk: PackedSdk;
let stage: LieStage;
beforeAll(async () => {
  [sdk, stage] = await Promise.all([installPackedSdk(), startLieStage("packed"), executable()]);
  writeFileSync(join(scratch.path, "hello.txt"), "hello");
  writeFileSync(join(scratch.path, "policy"), stage.policy);
}, 300_000);
afterAll(async () => {
  for (const child of children) child.kill();
  await stage?.stop();
  sdk?.remove();
  scratch.remove();
});

type MakeVictim = (proxy: LyingDirectory, hasPolicy: boolean) => Promise<Victim>;

// ----------------------------------------------------------------------------------------- the SDK

const orCode = (work: Promise<string>): Promise<string> =>
  work.catch((error: unknown) => (error instanceof ClientError ? error.code : String(error)));

const source: MakeVictim = async (proxy, hasPolicy) => {
  const policy = hasPolicy ? { policy: stage.policy } : {};
  const me = await openHonest(stage.made.nodes.url, { directoryUrl: proxy.url, ...policy });
  return {
    did: me.did,
    send: (to, trust) =>
      orCode(
        me
          .send(to, "hello", trust === undefined ? {} : { trust })
          .then((sent) => sent.recipient.trust),
      ),
    look: (did) => orCode(me.fingerprint(did).then(({ distrusted }) => distrusted ?? "proven")),
    receive: async () => {
      for await (const message of me.messages()) {
        await message.ack();
        return message.distrusted ?? message.trust ?? "unverified";
      }
      return "nothing";
    },
  };
};

// ---------------------------------------------------------------------------------- the packed SDK

const children: Bun.Subprocess[] = [];

const packed: MakeVictim = async (proxy, hasPolicy) => {
  const program = place(sdk, "test/e2e/victim.mjs", "victim.mjs");
  const env = { WAYPOST_URL: stage.made.nodes.url, WAYPOST_DIRECTORY_URL: proxy.url };
  const child = Bun.spawn(["node", program], {
    cwd: sdk.folder,
    env: { ...process.env, ...env, POLICY: hasPolicy ? stage.policy : "" },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  children.push(child);
  const lines = linesOf(child.stdout);
  const next = async () => JSON.parse((await lines.next()).value ?? '"ended"') as string;
  const ask = (...words: unknown[]) => {
    child.stdin.write(`${JSON.stringify(words)}\n`);
    child.stdin.flush();
    return next();
  };
  return {
    did: await next(),
    send: (to, trust) => ask("send", to, trust),
    look: (did) => ask("look", did),
    receive: () => ask("receive"),
  };
};

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of stream) {
    text += decoder.decode(bytes, { stream: true });
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    yield* lines;
  }
}

// ------------------------------------------------------------------------------------ the commands

type Env = Readonly<Record<string, string>>;

/** The JSON that a command printed; it exits with 1 for `ok: false`, else with 0. */
async function waypost(env: Env, ...args: string[]) {
  const { code, stdout, stderr } = await run([...args, "--json"], { cwd: scratch.path, env });
  const json = JSON.parse(stdout || stderr || "null") ?? { code: `exit ${code}` };
  expect([args, code]).toEqual([args, json.ok === false ? 1 : 0]);
  return json;
}

const commands: MakeVictim = async (proxy, hasPolicy) => {
  const as = hasPolicy ? "wendy" : "paul";
  const env = {
    WAYPOST_URL: stage.made.nodes.url,
    WAYPOST_DIRECTORY_URL: proxy.url,
    WAYPOST_AS: as,
  };
  const ask = (...args: string[]) =>
    waypost(env, ...args, ...(hasPolicy ? ["--policy", "policy"] : []));
  const { did } = await ask("did", "create", "--name", as);
  return {
    did,
    send: async (to, trust) => {
      const demand = trust === undefined ? [] : ["--trust", trust];
      const sent = await ask("send", "--to", to, "--file", "hello.txt", ...demand);
      return sent.ok ? sent.recipient.trust : sent.code;
    },
    look: async (target) => (await ask("did", "show", target)).trust,
    receive: async () => {
      const { received } = await ask("receive", "--out", "inbox", "--wait-for", "60s");
      expect(received.length).toBe(1);
      const [{ from_trust, from_distrusted }] = received;
      return from_distrusted ?? from_trust ?? "unverified";
    },
  };
};

test("--trust and --policy decide whom the commands believe, and what they say about it", async () => {
  const { url } = stage.made.nodes;
  const keys = join(scratch.path, "flags");
  const env = { WAYPOST_URL: url, WAYPOST_KEYS: keys };
  await waypost(env, "did", "create", "--name", "gil");
  const bob = await openHonest(url);
  const send = (to: string, ...flags: string[]) =>
    waypost(env, "send", "--to", to, "--file", "hello.txt", ...flags);
  const codeOf = async (to: string, ...flags: string[]) => (await send(to, ...flags)).code;

  expect((await send(bob.did, "--trust", "logged", "--policy", "policy")).recipient.trust).toBe(
    "logged",
  );
  expect((await send(bob.did, "--policy", "policy")).recipient.trust).toBe("logged");
  expect((await send(bob.did)).recipient.trust).toBe("proven");
  expect((await waypost({ ...env, WAYPOST_POLICY: "policy" }, "did", "show", bob.did)).trust).toBe(
    "logged",
  );
  expect((await waypost(env, "did", "show", bob.did)).trust).toBe("proven");

  // Without witnesses, or with others, nothing is logged.
  writeFileSync(join(scratch.path, "other"), policyOf(testKey("other.example/witness", "witness")));
  writeFileSync(join(scratch.path, "broken"), "witness w x\nquorum w\n");
  expect(await codeOf(bob.did, "--trust", "logged")).toBe("log_unwitnessed");
  expect(await codeOf(bob.did, "--trust", "logged", "--policy", "other")).toBe("log_unwitnessed");
  expect(await codeOf(bob.did, "--policy", "broken")).toBe("policy_invalid");
  expect(await codeOf(bob.did, "--policy", "nowhere")).toBe("failed");
  expect(await codeOf(bob.did, "--trust", "believed")).toBe("usage");
  // A policy demands it, unless less is asked for.
  expect(await codeOf(bob.did, "--policy", "other")).toBe("log_unwitnessed");
  const asked = ["--trust", "proven", "--policy", "other"];
  const doubt = await run(["send", "--to", bob.did, "--file", "hello.txt", ...asked], {
    cwd: scratch.path,
    env,
  });
  expect([doubt.code, doubt.stderr.includes("(log_unwitnessed)")]).toEqual([0, true]);

  // A random DID is unproven, and refused where keys must be proven.
  const proxy = stage.proxied();
  proxy.lie = {
    json: ({ path, json }) =>
      path === "/limits" ? { ...json, self_certifying_dids: false } : null,
  };
  const random = await openHonest(url, { directoryUrl: proxy.url, allowRandom: true });
  expect((await send(random.did)).recipient.trust).toBe("unproven");
  for (const level of ["proven", "logged"])
    expect(await codeOf(random.did, "--trust", level)).toBe("proof_missing");

  await bob.send((await waypost(env, "did", "show")).did, "hello");
  const { received } = await waypost(
    env,
    "receive",
    "--out",
    "logged",
    "--wait-for",
    "60s",
    "--policy",
    "policy",
  );
  expect(received.map(({ from_trust }: { from_trust: string }) => from_trust)).toEqual(["logged"]);
}, 120_000);

describe("told to everybody", () => {
  const standOf = async (hasPolicy: boolean) => {
    const proxy = stage.proxied();
    const makers = Object.entries({
      "the SDK": source,
      "the packed SDK": packed,
      "the commands": commands,
    });
    const victims = await Promise.all(
      makers.map(async ([name, make]) => [name, await make(proxy, hasPolicy)] as const),
    );
    return { proxy, victims: Object.fromEntries(victims) };
  };
  let [plain, witnessed]: (Awaited<ReturnType<typeof standOf>> | null)[] = [null, null];
  beforeAll(async () => {
    [plain, witnessed] = await Promise.all([standOf(false), standOf(true)]);
  }, 60_000);

  const kindOf = ({ code, policy, lowers, ofBob }: LieRow) =>
    JSON.stringify([code, policy, lowers, ofBob]);
  const isFirstOfKind = (row: LieRow) => lies.find((one) => kindOf(one) === kindOf(row)) === row;

  test.each(lies.map((row) => [row.name, row.code, row] as const))(
    "%s: %s",
    async (_name, _code, row) => {
      const stand = row.policy === undefined ? plain : witnessed;
      if (!stand) throw new Error("the victims are not there");
      const { "the commands": commanding, ...others } = stand.victims;
      if (commanding === undefined) throw new Error("no commands");
      await tell(row, stage, isFirstOfKind(row) ? stand : { ...stand, victims: others });
    },
    120_000,
  );
});
