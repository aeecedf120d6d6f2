/**
 * Failures of nodes, connections and accounts: no call is lost, sent twice or wrongly called
 * failed, and a chain that can't be asked is never treated as an empty one.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import {
  type Ledger,
  type Store,
  type StoreEnvironment,
  StoreError,
  type Submission,
} from "../../src/storage/contract.ts";
import {
  authorizedCall,
  documentOf,
  type Identity,
  identityOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { pause } from "../support/wait.ts";
import { type NodeProxy, openProxy } from "./proxy.ts";
import { endStand, freshPath, makeBlock, type Node, openStore, startNode, until } from "./stand.ts";

let node: Node;
beforeAll(async () => {
  node = await startNode({ manual: true });
});
afterAll(endStand);

const logged: string[] = [];
const environment: StoreEnvironment = {
  now: Date.now,
  log: (_, message, fields) => logged.push(`${message} ${JSON.stringify(fields)}`),
  fatal: (reason) => logged.push(`fatal: ${reason}`),
};
const quick = { reconnect_max_ms: 200, resend_ms: 400 };

const stranger = () => identityOf(crypto.randomUUID());
const register = (identity: Identity) =>
  registrationOf(identity, { timestamp: String(Date.now()) });

async function taken(ledger: Ledger, identity: Identity): Promise<Submission> {
  // A busy machine may take longer for the first connection than a start waits.
  await until("a connection", async () => (await codeOf(ledger.head())) === "answered");
  const outcome = await ledger.submit(register(identity), "register");
  if (isFault(outcome)) throw new Error(`${outcome.code} ${outcome.detail}`);
  return outcome;
}

/** Builds blocks until every submission has come to its end. */
async function settle(
  ledger: Ledger,
  submissions: readonly Submission[],
  build = true,
): Promise<Submission[]> {
  return until("the submissions to settle", async () => {
    if (build) await makeBlock(node);
    await Bun.sleep(100);
    const now = await Promise.all(submissions.map(({ txHash }) => ledger.submission(txHash)));
    return now.every((one) => one !== null && one.state !== "pending" && one.state !== "in_block")
      ? (now as Submission[])
      : null;
  });
}

/** Every DID has its first record. A machine that is busy may lose a connection on the way. */
async function eachOnce(ledger: Ledger, identities: readonly Identity[]): Promise<void> {
  for (const { did } of identities) {
    const account = await until("an answer", () =>
      ledger.account(did).catch((error: unknown) => {
        if (error instanceof StoreError && error.code === "unavailable") return null;
        throw error;
      }),
    );
    expect(account.record?.version).toBe(1n);
  }
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => "answered",
    (error: unknown) => (error instanceof StoreError ? error.code : String(error)),
  );
}

async function withStore<T>(
  settings: Record<string, unknown>,
  use: (store: Store, ledger: Ledger) => Promise<T>,
  endpoints = [node.endpoint],
): Promise<T> {
  const store = await openStore(environment, { endpoints, ...quick, ...settings });
  try {
    return await use(store, store.capabilities.ledger!);
  } finally {
    await store.close();
  }
}

async function behindProxy<T>(
  use: (proxy: NodeProxy, ledger: Ledger, store: Store) => Promise<T>,
  settings = {},
): Promise<T> {
  const proxy = openProxy(node.endpoint);
  try {
    return await withStore(settings, (store, ledger) => use(proxy, ledger, store), [
      proxy.endpoint,
    ]);
  } finally {
    proxy.close();
  }
}

describe("a connection", () => {
  test("that is lost makes every answer unavailable, never absent, and comes back by itself", () =>
    behindProxy(async (proxy, ledger, store) => {
      const identity = stranger();
      await settle(ledger, [await taken(ledger, identity)]);
      proxy.cut();
      await until(
        "the loss to be noticed",
        async () => (await codeOf(store.probe())) === "unavailable",
      );
      for (const answer of [
        ledger.account(identity.did),
        ledger.aliasHolder("nobody"),
        ledger.policy("recipient", identity.did),
        ledger.head(),
        ledger.bounds(),
        ledger.submit(register(stranger()), "register"),
      ]) {
        expect(await codeOf(answer)).toBe("unavailable");
      }
      proxy.mend();
      await until("the connection", async () => (await codeOf(store.probe())) === "answered");
      expect((await ledger.account(identity.did)).record?.version).toBe(1n);
    }));

  test("to a node that falls silent is left for the next endpoint", async () => {
    const [first, second] = [openProxy(node.endpoint), openProxy(node.endpoint)];
    await withStore(
      { request_timeout_ms: 5_000 },
      async (store, ledger) => {
        first.answer = () => "silence";
        expect(await codeOf(ledger.account(stranger().did))).toBe("unavailable");
        await until(
          "an answer",
          async () => (await codeOf(ledger.account(stranger().did))) === "answered",
        );
        await store.probe();
      },
      [first.endpoint, second.endpoint],
    );
    first.close();
    second.close();
  });

  test("to a node that refuses a question makes that answer unavailable, and no other", () =>
    behindProxy(async (proxy, ledger) => {
      const { did } = stranger();
      await until("a first answer", async () => (await codeOf(ledger.head())) === "answered");
      const error = { code: -32_601, message: "the method is switched off" };
      proxy.answer = ({ method }) => (method === "state_queryStorageAt" ? { error } : null);
      expect(await codeOf(ledger.account(did))).toBe("unavailable");
      expect(await codeOf(ledger.head())).toBe("answered");
      proxy.answer = () => null;
      expect(await codeOf(ledger.account(did))).toBe("answered");
    }));

  test("to a node that is catching up is not used, and the reason says so", async () => {
    const proxy = openProxy(node.endpoint);
    proxy.answer = ({ method }) =>
      method === "system_health"
        ? { result: { isSyncing: true, peers: 3, shouldHavePeers: true } }
        : null;
    await withStore(
      {},
      async (store) => {
        const reason = await store.probe().catch((error: Error) => error.message);
        expect(reason).toContain("catching up");
        proxy.answer = () => null;
        await until(
          "the node to be used",
          async () => (await codeOf(store.probe())) === "answered",
        );
      },
      [proxy.endpoint],
    );
    proxy.close();
  });

  test("to another chain is refused after a reconnection, and at the start with what differs", () =>
    behindProxy(async (proxy, _, store) => {
      const genesis = `0x${"77".repeat(32)}`;
      proxy.answer = ({ method, params }) =>
        method === "chain_getBlockHash" && params[0] === 0 ? { result: genesis } : null;
      proxy.cut();
      await until(
        "the loss to be noticed",
        async () => (await codeOf(store.probe())) === "unavailable",
      );
      proxy.mend();
      await until("the refusal", async () =>
        (await store.probe().then(() => "", String)).includes("begins with block"),
      );
      proxy.answer = () => null;
      await until("the connection", async () => (await codeOf(store.probe())) === "answered");
    }));

  test("to a chain without our pallets ends the start and names what differs", async () => {
    const proxy = openProxy(node.endpoint);
    const metadata = await node.ask<string>("state_getMetadata");
    const named = (name: string) => Buffer.from(name).toString("hex");
    const foreign = metadata.replaceAll(named("DidRegistry"), named("DidDirector"));
    proxy.answer = ({ method }) => (method === "state_getMetadata" ? { result: foreign } : null);
    const opened = openStore(environment, { endpoints: [proxy.endpoint], ...quick });
    expect(await opened.then(() => "", String)).toContain("there is no pallet DidRegistry");
    proxy.close();
  });

  test("that was never open lets the program start, and is tried again", async () => {
    const proxy = openProxy(node.endpoint);
    proxy.cut();
    await withStore(
      {},
      async (store, ledger) => {
        expect(await codeOf(ledger.account(stranger().did))).toBe("unavailable");
        expect((await ledger.operator()).length).toBe(32);
        proxy.mend();
        await until("the connection", async () => (await codeOf(store.probe())) === "answered");
      },
      [proxy.endpoint],
    );
    proxy.close();
  });
});

describe("a node", () => {
  test("that was killed during submissions, or is behind the other one, is not asked", async () => {
    const mortal = await startNode({ manual: true });
    await mortal.ask("dev_newBlock", [{ count: 3 }]);
    await withStore(
      { block_time_ms: 40 },
      async (store, ledger) => {
        const outcomes = Promise.allSettled(
          Array.from({ length: 10 }, () => taken(ledger, stranger())),
        );
        await mortal.kill();
        for (const outcome of await outcomes) {
          if (outcome.status === "fulfilled")
            expect((await ledger.submission(outcome.value.txHash))?.state).toBe("pending");
          else expect(outcome.reason).toBeInstanceOf(StoreError);
        }
        await until(
          "the loss to be noticed",
          async () => (await codeOf(store.probe())) === "unavailable",
        );
        const reborn = await startNode({ manual: true, port: mortal.port });
        await until("the reason", async () =>
          (await store.probe().then(() => "", String)).includes("was final before"),
        );
        expect(await codeOf(ledger.account(stranger().did))).toBe("unavailable");
        await reborn.ask("dev_newBlock", [{ count: 4 }]);
        await until("the refusal", async () =>
          (await store.probe().then(() => "", String)).includes("it has another block"),
        );
      },
      [mortal.endpoint],
    );
  });
});

describe("calls", () => {
  test("survive connections that are cut in the middle of 24 registrations", () =>
    behindProxy(async (proxy, ledger) => {
      const identities = Array.from({ length: 24 }, stranger);
      const work = Promise.all(identities.map((identity) => taken(ledger, identity)));
      const submissions = await work;
      for (let cut = 0; cut < 3; cut++) {
        await Bun.sleep(250);
        proxy.cut();
        await makeBlock(node);
        await Bun.sleep(150);
        proxy.mend();
      }
      const ends = await settle(ledger, submissions);
      expect(new Set(ends.map(({ state }) => state))).toEqual(new Set(["finalized"]));
      await eachOnce(ledger, identities);
    }));

  test("wait while blocks are withheld, and are neither failed nor dropped by that", () =>
    withStore({}, async (_, ledger) => {
      const identities = Array.from({ length: 5 }, stranger);
      const submissions = await Promise.all(identities.map((identity) => taken(ledger, identity)));
      await pause(2_500, "longer than resend_ms: they would be failed or dropped");
      for (const { txHash } of submissions)
        expect((await ledger.submission(txHash))?.state).toBe("pending");
      const ends = await settle(ledger, submissions);
      expect(ends.map(({ state }) => state)).toEqual(submissions.map(() => "finalized"));
      await eachOnce(ledger, identities);
    }));

  test("that a node accepted and lost are sent again", () =>
    behindProxy(async (proxy, ledger) => {
      let lost = 0;
      proxy.answer = ({ method }) =>
        method === "author_submitExtrinsic" && lost++ < 4
          ? { result: `0x${"00".repeat(32)}` }
          : null;
      const identities = Array.from({ length: 4 }, stranger);
      const submissions = await Promise.all(identities.map((identity) => taken(ledger, identity)));
      const ends = await settle(ledger, submissions);
      expect(lost).toBeGreaterThan(4);
      expect(ends.map(({ state }) => state)).toEqual(submissions.map(() => "finalized"));
      await eachOnce(ledger, identities);
    }));

  test("of which an only endpoint says nothing are signed again, life after life, and end once it includes them", () =>
    behindProxy(
      async (proxy, ledger) => {
        proxy.answer = ({ method }) =>
          method === "author_submitExtrinsic" ? { result: `0x${"00".repeat(32)}` } : null;
        const submission = await taken(ledger, stranger());
        // Five lives.
        for (let blocks = 0; blocks < 40; blocks++) {
          await makeBlock(node);
          await Bun.sleep(50);
        }
        expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
        proxy.answer = () => null;
        const [end] = await settle(ledger, [submission]);
        expect(end?.state).toBe("finalized");
        const [next] = await settle(ledger, [await taken(ledger, stranger())]);
        expect(next?.state).toBe("finalized");
      },
      { lifetime_blocks: 8 },
    ));

  test("are found after a restart, whether a block included them meanwhile or not", async () => {
    const outbox = freshPath("outbox");
    const identities = Array.from({ length: 12 }, stranger);
    const submissions = await withStore({ outbox }, async (_, ledger) => {
      const all = await Promise.all(identities.map((identity) => taken(ledger, identity)));
      await pause(200, "the node has some of them and not yet all");
      return all;
    });
    await makeBlock(node);
    await withStore({ outbox }, async (_, ledger) => {
      const ends = await settle(ledger, submissions);
      expect(ends.map(({ state }) => state)).toEqual(submissions.map(() => "finalized"));
      await eachOnce(ledger, identities);
    });
  });

  test("of one proof by two Directories have one effect, and both say finalized or why not", async () => {
    await withStore({}, (_, one) =>
      withStore({}, async (_, two) => {
        const identity = stranger();
        await settle(one, [await taken(one, identity)]);
        const terms = {
          nonce: 0n,
          validUntilMs: BigInt(Date.now() + 600_000),
          signerKeyId: "root",
        };
        const alias = `a-${crypto.randomUUID()}`;
        const call = authorizedCall(
          { action: "add_alias", did: identity.did, alias },
          terms,
          identity.root,
        );
        const outcomes = await Promise.all(
          [one, two].map((ledger) => ledger.submit(call, "add_alias")),
        );
        for (const [i, ledger] of [one, two].entries()) {
          const outcome = outcomes[i]!;
          if (isFault(outcome)) throw new Error(outcome.detail);
          const [end] = await settle(ledger, [outcome]);
          expect(end?.state).toBe("finalized");
        }
        expect((await one.account(identity.did)).counters.alias).toBe(1n);
      }),
    );
  });

  test("of one proof that is submitted twice are one submission", () =>
    withStore({}, async (_, ledger) => {
      const identity = stranger();
      await settle(ledger, [await taken(ledger, identity)]);
      const blob = encodeDidDocument(documentOf(identity));
      const call = setDocumentOf(identity, { timestamp: String(Date.now() + 1), docBlob: blob });
      const outcomes = await Promise.all(
        Array.from({ length: 6 }, () => ledger.submit(call, "replace_document")),
      );
      const hashes = new Set(
        outcomes.map((outcome) => (isFault(outcome) ? outcome.code : outcome.txHash)),
      );
      expect(hashes.size).toBe(1);
      const [end] = await settle(ledger, [outcomes[0] as Submission]);
      expect(end?.state).toBe("finalized");
      expect((await ledger.account(identity.did)).record?.version).toBe(2n);
    }));

  test("in blocks that no node has any more are decided by the state", async () => {
    const outbox = freshPath("outbox");
    const proxy = openProxy(node.endpoint);
    const identity = stranger();
    const submission = await withStore({ outbox }, (_, ledger) => taken(ledger, identity), [
      proxy.endpoint,
    ]);
    await until(
      "the node to hold the call",
      async () => (await node.ask<string[]>("author_pendingExtrinsics")).length > 0,
    );
    await makeBlock(node);
    proxy.answer = ({ method }) => (method === "chain_getBlock" ? { result: null } : null);
    await withStore(
      { outbox },
      async (_, ledger) => {
        const [end] = await settle(ledger, [submission]);
        expect([end?.state, end?.block]).toEqual(["finalized", null]);
        await eachOnce(ledger, [identity]);
      },
      [proxy.endpoint],
    );
    proxy.close();
  });

  test("of two Directories on one operator account all come through", () =>
    withStore({}, (_, one) =>
      withStore({}, async (_, two) => {
        const identities = Array.from({ length: 12 }, stranger);
        const submissions = await Promise.all(
          identities.map((identity, i) => taken(i % 2 === 0 ? one : two, identity)),
        );
        const mine = (rest: number) => submissions.filter((_, i) => i % 2 === rest);
        const ends = [...(await settle(one, mine(0))), ...(await settle(two, mine(1)))];
        expect(ends.map(({ state }) => state)).toEqual(submissions.map(() => "finalized"));
        await eachOnce(one, identities);
      }),
    ));
});

describe("the best head", () => {
  test("has a call that is not final: it is pending, signed once, and final after the block was taken back", () =>
    behindProxy(async (proxy, ledger) => {
      const frozen = await node.ask<string>("chain_getFinalizedHead");
      proxy.answer = ({ method }) =>
        method === "chain_getFinalizedHead" ? { result: frozen } : null;
      const identity = stranger();
      const submission = await taken(ledger, identity);
      await until("a block with the call", async () => {
        if ((await node.ask<string[]>("author_pendingExtrinsics")).length > 0)
          await makeBlock(node);
        const { block } = await node.ask<{ block: { extrinsics: string[] } }>("chain_getBlock");
        return block.extrinsics.length > 1;
      });
      // Sent again meanwhile, it is the same extrinsic.
      const sent = proxy.seen.get("author_submitExtrinsic") ?? 0;
      await until(
        "it to be sent again",
        async () => (proxy.seen.get("author_submitExtrinsic") ?? 0) > sent,
      );
      expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
      expect((await ledger.account(identity.did)).record).toBeNull();
      await node.ask("dev_setHead", [frozen]);
      proxy.answer = () => null;
      const [end] = await settle(ledger, [submission]);
      expect(end?.state).toBe("finalized");
      await eachOnce(ledger, [identity]);
    }));
});

describe("a runtime upgrade", () => {
  test("makes the driver read the metadata and sign what the new runtime refused when its life is over", () =>
    behindProxy(
      async (proxy, ledger) => {
        type Version = Record<string, unknown>;
        const version = await node.ask<Version>("state_getRuntimeVersion");
        await until("a first answer", async () => (await codeOf(ledger.head())) === "answered");
        const read = proxy.seen.get("state_getMetadata") ?? 0;
        proxy.answer = ({ method }) =>
          method === "state_getRuntimeVersion"
            ? { result: { ...version, specVersion: 1_000 } }
            : null;
        await makeBlock(node);
        await until("the metadata", async () => (proxy.seen.get("state_getMetadata") ?? 0) > read);
        const identity = stranger();
        await until(
          "the new head",
          async () =>
            (await ledger.head()).finalized.hash ===
            (await node.ask<string>("chain_getFinalizedHead")),
        );
        // The node itself still has the old runtime, so it does not take what is signed for the new
        // one.
        const submission = await taken(ledger, identity);
        await makeBlock(node);
        await pause(300, "it would be dropped as refused");
        expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
        proxy.answer = () => null;
        const [end] = await settle(ledger, [submission]);
        expect(end?.state).toBe("finalized");
        await eachOnce(ledger, [identity]);
      },
      { lifetime_blocks: 8 },
    ));

  test("to a runtime that is not ours makes the chain unavailable, with the reason", async () => {
    // The other runtime is this one under another name of a pallet.
    const metadata = await node.ask<string>("state_getMetadata");
    const named = (name: string) => Buffer.from(name).toString("hex");
    const foreign = metadata.replaceAll(named("AliasNonces"), named("AliasNoncez"));
    await behindProxy(async (proxy, _, store) => {
      const version = await node.ask<Record<string, unknown>>("state_getRuntimeVersion");
      proxy.answer = ({ method }) => {
        if (method === "state_getRuntimeVersion")
          return { result: { ...version, specVersion: 1_001 } };
        return method === "state_getMetadata" ? { result: foreign } : null;
      };
      await makeBlock(node);
      await until("the reason", async () =>
        (await store.probe().then(() => "", String)).includes("DidRegistry.AliasNonces is missing"),
      );
      proxy.answer = () => null;
      await until("the connection", async () => (await codeOf(store.probe())) === "answered");
    });
  });
});

describe("the cache of answers", () => {
  test("asks the node one question once per block, however often it is read", () =>
    behindProxy(async (proxy, ledger) => {
      const { did } = stranger();
      let asked = 0;
      proxy.answer = ({ method, params }) => {
        // Questions about heads and the operator's account have fewer keys.
        if (method === "state_queryStorageAt" && (params[0] as readonly string[]).length >= 7)
          asked++;
        return null;
      };
      await Promise.all(Array.from({ length: 50 }, () => ledger.account(did)));
      expect(asked).toBe(1);
      const { hash } = (await ledger.head()).finalized;
      await makeBlock(node);
      await until("the next head", async () => (await ledger.head()).finalized.hash !== hash);
      await Promise.all(Array.from({ length: 50 }, () => ledger.account(did)));
      expect(asked).toBe(2);
    }));
});
