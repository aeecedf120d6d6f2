/**
 * The setup of the Directory's scenarios: one shared Directory, a ledger that fails on command, and
 * for each scenario identities of its own in the states that refusals need, so that a wrongly
 * accepted request changes nothing for the next scenario. A scenario is a record, so that a test
 * can count which codes of which routes have one.
 */

import { beforeAll, expect, test } from "bun:test";
import type { TSchema } from "@sinclair/typebox";
import { renderPublicKey } from "../../../src/core/codec/bytes.ts";
import { type FaultCode, fault, isFault } from "../../../src/core/fault.ts";
import type { ActionName } from "../../../src/core/ledger/actions.ts";
import { faultOfRefusal, refuse } from "../../../src/core/ledger/refusals.ts";
import { compileShape, problemShape } from "../../../src/core/schema/schema.ts";
import type { DirectorySettings } from "../../../src/nodes/directory/parts.ts";
import { describeInterface } from "../../../src/nodes/http/openapi.ts";
import type { Route } from "../../../src/nodes/http/route.ts";
import { type Ledger, StoreError } from "../../../src/storage/contract.ts";
import {
  beforeBlock,
  type Json,
  type Reply,
  type Terms,
  type TestDirectory,
  type TestDirectoryOptions,
  testDirectory,
  updateBodyOf,
} from "../../support/directory.ts";
import { type Identity, identityOf, keyOf, methodOf } from "../../support/identity.ts";

/** In the place of a route: a path that none serves. */
export const noRoute = "none";

export type Scenario = {
  readonly name: string;
  /** `METHOD /path/:template` of the route, or `noRoute`. */
  readonly route: string;
  readonly status: number;
  readonly code?: FaultCode;
  /** Pointers that the refusal must name. */
  readonly pointers?: readonly string[];
  readonly act: (stage: Stage) => Promise<Reply>;
  readonly check?: (reply: Reply, stage: Stage) => Promise<void> | void;
};

/**
 * A ledger fails on reading, fails on writing, refuses every call, or every call of a DID that made
 * too many.
 */
type Outage = "unreadable" | "full" | "refusing" | "exhausted";

export type Stage = TestDirectory & {
  /** Registered, with the rich document and one alias. */
  readonly standing: Identity;
  readonly deactivated: Identity;
  readonly unknown: Identity;
  /** Other identities in the place of these three, for the next scenario. */
  readonly recast: () => void;
  /** Registers at once what so many scenarios will need as `standing`. */
  readonly prepareCasts: (count: number) => Promise<void>;
  /** What the ledger does until `restore`. */
  readonly breakLedger: (how: Outage) => void;
  readonly restore: () => void;
  /**
   * Runs requests of which no block of the memory ledger has a call before they are done; a chain's
   * blocks take longer.
   */
  readonly beforeBlock: <T>(act: () => Promise<T>) => Promise<T>;
  /** A fresh registered identity with the rich document and the alias `aliasOf`. */
  readonly fresh: (document?: (identity: Identity) => Json) => Promise<Identity>;
};

/** Identities of one scenario, registered when it first asks for them. */
type Cast = { standing?: Identity; deactivated?: Identity; unknown?: Identity };

/** Another driver than the memory one. */
type Elsewhere = Pick<TestDirectoryOptions, "open"> & {
  /**
   * Where a block takes long: identities stay on stage until a call was taken, and are registered
   * some at a time.
   */
  readonly sharesCasts?: true;
};

/** Identities that are registered together when one is needed. */
const togetherMax = 8;

export async function openStage(
  options: Partial<DirectorySettings> = {},
  { sharesCasts, ...elsewhere }: Elsewhere = {},
): Promise<Stage> {
  const outage: Trouble = { how: "none", taken: false };
  const directory = await testDirectory({
    ...elsewhere,
    options,
    around: (ledger) => broken(ledger, outage),
  });
  let count = 0;
  const next = (): Identity => identityOf(`stage ${count++}`);
  const membersOf = (identity: Identity, document = richDocument): Json => ({
    did_document: document(identity),
    alias: aliasOf(identity),
  });
  const prepared: Identity[] = [];
  let cast: Cast = {};
  /** What the scenario's requests wait for: its identities enter their state first. */
  let entering: Promise<unknown> = Promise.resolve();
  const enter = (work: () => Promise<unknown>): void => {
    entering = entering.then(async () => {
      const before = { ...outage };
      outage.how = "none";
      await work();
      Object.assign(outage, before);
    });
  };
  const registered = (): Identity => {
    if (prepared.length === 0) {
      const some = Array.from({ length: sharesCasts ? togetherMax : 1 }, next);
      prepared.push(...some);
      enter(() => directory.registerAll(some.map((identity) => [identity, membersOf(identity)])));
    }
    return prepared.pop() as Identity;
  };
  const deactivated = (): Identity => {
    const identity = registered();
    enter(async () => {
      const body = updateBodyOf(identity, "deactivate_did", {}, termsAt(directory));
      await directory.settle(await directory.ask("POST", `/dids/${identity.did}/deactivate`, body));
    });
    return identity;
  };
  return {
    ...directory,
    ask: async (...request) => {
      await entering;
      return directory.ask(...request);
    },
    get standing() {
      cast.standing ??= registered();
      return cast.standing;
    },
    get deactivated() {
      cast.deactivated ??= deactivated();
      return cast.deactivated;
    },
    get unknown() {
      cast.unknown ??= next();
      return cast.unknown;
    },
    recast: () => {
      if (!sharesCasts || outage.taken) cast = {};
      outage.taken = false;
    },
    prepareCasts: async (wanted) => {
      if (sharesCasts) return;
      const identities = Array.from({ length: wanted }, next);
      await directory.registerAll(identities.map((identity) => [identity, membersOf(identity)]));
      prepared.push(...identities);
    },
    fresh: async (document) => {
      const identity = next();
      await directory.register(identity, membersOf(identity, document));
      return identity;
    },
    breakLedger: (how) => {
      outage.how = how;
    },
    restore: () => {
      outage.how = "none";
    },
    beforeBlock: async (act) => {
      await entering;
      return elsewhere.open === undefined ? beforeBlock(act) : act();
    },
  };
}

/** What the ledger does, and whether it has taken a call of the scenario. */
type Trouble = { how: "none" | Outage; taken: boolean };

/** The ledger itself, or what is left of it: reads and submissions behave as a node's would. */
function broken(ledger: Ledger, outage: Trouble): Ledger {
  const submit: Ledger["submit"] = async (call, label) => {
    if (outage.how === "unreadable") throw new StoreError("unavailable", "no answer");
    if (outage.how === "full") throw new StoreError("full", "no room");
    if (outage.how === "refusing") return fault("chain_submission_rejected", "the chain says no");
    if (outage.how === "exhausted") return faultOfRefusal(refuse("TooManyProofs"));
    const outcome = await ledger.submit(call, label);
    if (!isFault(outcome)) outage.taken = true;
    return outcome;
  };
  return new Proxy(ledger, {
    get(target, name) {
      if (name === "submit") return submit;
      const operation: unknown = Reflect.get(target, name);
      if (typeof operation !== "function") return operation;
      return async (...input: unknown[]) => {
        if (outage.how === "unreadable") throw new StoreError("unavailable", "no answer");
        return operation.apply(target, input);
      };
    },
  });
}

export function termsAt(directory: TestDirectory, terms: Partial<Terms> = {}): Terms {
  return { nonce: "0", validUntilMs: directory.nowMs() + 60_000, ...terms };
}

/** Sends a signed update; `spoil` changes the finished body. */
export async function sendUpdate(
  stage: Stage,
  given: {
    readonly identity: Identity;
    readonly action: ActionName;
    readonly method: string;
    readonly path: string;
    readonly members: Json;
    readonly terms?: Partial<Terms>;
    readonly spoil?: (body: Json) => Json;
  },
): Promise<Reply> {
  const body = updateBodyOf(
    given.identity,
    given.action,
    given.members,
    termsAt(stage, given.terms),
  );
  return stage.ask(given.method, given.path, given.spoil?.(body) ?? body);
}

export const aliasOf = ({ did }: Identity): string => `alias-${did.slice(8, 24).toLowerCase()}`;

/** Methods `#k1` (root key, listed) and `#k2`, a key agreement `#x25519-1`, a service `#cache`. */
export function richDocument(identity: Identity): Json {
  const { did, root, label } = identity;
  const [k1, k2] = [methodOf(did, "k1", root), methodOf(did, "k2", keyOf(`${label} k2`))];
  return {
    id: did,
    verificationMethod: [k1, k2],
    authentication: [k1.id],
    keyAgreement: [agreementOf(identity, "x25519-1")],
    service: [serviceOf(identity, "cache")],
  };
}

export function agreementOf({ did }: Identity, fragment: string): Json {
  return {
    id: `${did}#${fragment}`,
    type: "X25519KeyAgreementKey2020",
    controller: did,
    publicKeyMultibase: "z6LSgtvMnb35HnMsEx48tQXVmXHLUAutTBadN6Zr6bwfmtkz",
  };
}

export function serviceOf({ did }: Identity, fragment: string): Json {
  return {
    id: `${did}#${fragment}`,
    type: "SvcCacheService",
    serviceEndpoint: ["https://cache.example"],
    authorization: [`${did}#k1`],
  };
}

export function methodWith(
  identity: Identity,
  fragment: string,
  label = `${identity.label} ${fragment}`,
): Json {
  return { ...methodOf(identity.did, fragment, keyOf(label)) };
}

/** The neutral element: on the curve, canonical, of order one. Everything verifies under it. */
export const smallOrderKey = renderPublicKey(Uint8Array.fromHex(`01${"00".repeat(31)}`));

export function encoded(...segments: string[]): string {
  return segments.map(encodeURIComponent).join("/");
}

/**
 * Declares one test for each scenario: status, code, pointers, that the answer has the documented
 * shape and its code is a documented one, and what the scenario itself asserts.
 */
export function playScenarios(scenarios: readonly Scenario[], stageOf: () => Stage): void {
  beforeAll(() => stageOf().prepareCasts(scenarios.length), 600_000);
  for (const scenario of scenarios) {
    test(`${scenario.route} ${scenario.name}`, async () => {
      const stage = stageOf();
      stage.recast();
      const reply = await scenario.act(stage);
      const { status, code } = scenario;
      expect({ status: reply.status, code: reply.body["code"] }).toEqual({ status, code });
      expectDocumented(
        reply,
        stage.routes.find((route) => nameOf(route) === scenario.route),
      );
      const errors = (reply.body["errors"] ?? []) as { pointer: string }[];
      if (scenario.pointers !== undefined) {
        expect(errors.map(({ pointer }) => pointer)).toEqual(
          expect.arrayContaining([...scenario.pointers]),
        );
      }
      await scenario.check?.(reply, stage);
    });
  }
}

export const nameOf = (route: Route): string => `${route.method} ${route.path}`;

const codes = new WeakMap<Route, readonly FaultCode[]>();

/** All codes that OpenAPI shows for a route. */
export function codesOf(route: Route): readonly FaultCode[] {
  const known = codes.get(route);
  if (known !== undefined) return known;
  const { paths } = describeInterface({ version: "", routes: [route], servers: [] });
  const [described] = Object.values(paths).flatMap((operations) => Object.values(operations));
  const found = Object.values(described?.responses ?? {}).flatMap(
    (response) => response["x-codes"] ?? [],
  );
  codes.set(route, found);
  return found;
}

const shapes = new Map<TSchema, (value: unknown) => unknown>();

const isAliasOperation = ({ method, path }: Route): boolean =>
  method !== "GET" && /\/alias(es)?(\/|$)/.test(path);

/**
 * An answer is of the shape that the route documents for its status, a refusal has one of its
 * codes.
 */
export function expectDocumented(reply: Reply, route: Route | undefined): void {
  if (route === undefined) return;
  expect(reply.headers.get("svc-stability")).toBe(isAliasOperation(route) ? "unstable" : null);
  const schema =
    reply.status < 400
      ? [route.answer, route.also].find((one) => one?.[0] === reply.status)?.[2]
      : problemShape;
  if (schema === undefined) throw new Error(`${route.id} does not say what ${reply.status} brings`);
  if (typeof schema === "string") {
    expect(reply.headers.get("content-type")).toBe(schema);
    return;
  }
  const parse = shapes.get(schema) ?? compileShape(schema);
  shapes.set(schema, parse);
  const parsed = parse(reply.body);
  expect(isFault(parsed) ? parsed.extra.errors : []).toEqual([]);
  if (reply.status >= 400) expect(codesOf(route)).toContain(reply.body["code"] as FaultCode);
}
