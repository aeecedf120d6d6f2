/**
 * One sample of every signed update: members that the registered document accepts, the component in
 * its path, and the record afterwards. Scenarios spoil them.
 */
import { expect } from "bun:test";
import { encodeHex0x, renderPublicKey } from "../../../src/core/codec/bytes.ts";
import type { ActionName } from "../../../src/core/ledger/actions.ts";
import type { Json, Reply, Terms, Update } from "../../support/directory.ts";
import { type Identity, keyOf } from "../../support/identity.ts";
import {
  agreementOf,
  aliasOf,
  encoded,
  methodWith,
  type Stage,
  sendUpdate,
  serviceOf,
} from "./stage.ts";

type Sample = {
  /** Members that the standing document takes. */
  readonly members: (identity: Identity) => Json;
  /** What the path names besides the DID. */
  readonly named?: (identity: Identity) => string;
  /** What `GET /resolve` shows afterwards. */
  readonly effect: (resolved: Json, identity: Identity) => void;
};

const ids = (list: unknown): string[] =>
  (list as { id: string }[]).map(({ id }) => id.slice(id.indexOf("#")));
const documentOf = (resolved: Json): Json => resolved["document"] as Json;

const samples: Readonly<Partial<Record<ActionName, Sample>>> = {
  AddVerificationMethod: {
    members: (identity) => ({ verification_method: methodWith(identity, "k3") }),
    effect: (resolved) =>
      expect(ids(documentOf(resolved)["verificationMethod"])).toEqual(["#k1", "#k2", "#k3"]),
  },
  UpdateVerificationMethod: {
    members: (identity) => ({ verification_method: methodWith(identity, "k2", "another key") }),
    named: ({ did }) => `${did}#k2`,
    effect: (resolved, identity) => {
      const methods = documentOf(resolved)["verificationMethod"] as Json[];
      expect(methods[1]).toEqual(methodWith(identity, "k2", "another key"));
    },
  },
  RemoveVerificationMethod: {
    members: ({ did }) => ({ id: `${did}#k2` }),
    named: ({ did }) => `${did}#k2`,
    effect: (resolved) => expect(ids(documentOf(resolved)["verificationMethod"])).toEqual(["#k1"]),
  },
  AddAuthentication: {
    members: ({ did }) => ({ id: `${did}#k2` }),
    effect: (resolved, { did }) =>
      expect(documentOf(resolved)["authentication"]).toEqual([`${did}#k1`, `${did}#k2`]),
  },
  RemoveAuthentication: {
    members: ({ did }) => ({ id: `${did}#k1` }),
    named: ({ did }) => `${did}#k1`,
    effect: (resolved) => expect(documentOf(resolved)["authentication"]).toEqual([]),
  },
  AddKeyAgreement: {
    members: (identity) => ({ key_agreement: agreementOf(identity, "x25519-2") }),
    effect: (resolved) =>
      expect(ids(documentOf(resolved)["keyAgreement"])).toEqual(["#x25519-1", "#x25519-2"]),
  },
  UpdateKeyAgreement: {
    members: (identity) => ({
      key_agreement: { ...agreementOf(identity, "x25519-1"), type: "Multikey" },
    }),
    named: ({ did }) => `${did}#x25519-1`,
    effect: (resolved) =>
      expect((documentOf(resolved)["keyAgreement"] as Json[])[0]?.["type"]).toBe("Multikey"),
  },
  RemoveKeyAgreement: {
    members: ({ did }) => ({ id: `${did}#x25519-1` }),
    named: ({ did }) => `${did}#x25519-1`,
    effect: (resolved) => expect(documentOf(resolved)["keyAgreement"]).toEqual([]),
  },
  AddService: {
    members: (identity) => ({ service: { ...serviceOf(identity, "inbox"), priority: 3 } }),
    effect: (resolved) =>
      expect((documentOf(resolved)["service"] as Json[])[1]?.["priority"]).toBe(3),
  },
  UpdateService: {
    members: ({ did }) => ({
      service: {
        id: "#cache",
        type: "SvcCacheService",
        serviceEndpoint: `https://${did.length}.example`,
      },
    }),
    named: ({ did }) => `${did}#cache`,
    effect: (resolved, { did }) =>
      expect(documentOf(resolved)["service"]).toEqual([
        {
          id: `${did}#cache`,
          type: "SvcCacheService",
          serviceEndpoint: [`https://${did.length}.example`],
        },
      ]),
  },
  RemoveService: {
    members: ({ did }) => ({ id: `${did}#cache` }),
    named: ({ did }) => `${did}#cache`,
    effect: (resolved) => expect(documentOf(resolved)["service"]).toEqual([]),
  },
  UpdateRootPubkey: {
    members: () => ({ new_root_pubkey: encodeHex0x(keyOf("the next root").publicKey) }),
    effect: (resolved) =>
      expect(resolved["root_pubkey"]).toBe(renderPublicKey(keyOf("the next root").publicKey)),
  },
  add_alias: {
    members: (identity) => ({ alias: ` ${aliasOf(identity).toUpperCase()}.Two ` }),
    effect: (resolved, identity) =>
      expect(resolved["aliases"]).toEqual([aliasOf(identity), `${aliasOf(identity)}.two`]),
  },
  update_alias: {
    members: (identity) => ({
      old_alias: aliasOf(identity),
      new_alias: `${aliasOf(identity)}.new`,
    }),
    named: aliasOf,
    effect: (resolved, identity) =>
      expect(resolved["aliases"]).toEqual([`${aliasOf(identity)}.new`]),
  },
  remove_alias: {
    members: (identity) => ({ alias: aliasOf(identity) }),
    named: aliasOf,
    effect: (resolved) => expect(resolved["aliases"]).toEqual([]),
  },
  deactivate_did: {
    members: () => ({}),
    effect: (resolved) => expect(resolved["deactivated"]).toBe(true),
  },
  delete_did: {
    members: () => ({}),
    effect: (resolved) => expect(resolved["code"]).toBe("did_not_found"),
  },
};

export function sampleOf(update: Update): Sample {
  const sample = samples[update.action];
  if (sample === undefined) throw new Error(`no sample for ${update.action}`);
  return sample;
}

/** The path of an update of an identity, percent-encoded as clients of the family encode it. */
export function pathOf(update: Update, identity: Identity): string {
  const values: Record<string, string> = { did: identity.did };
  if (update.subject !== undefined)
    values[update.subject] = sampleOf(update).named?.(identity) ?? "";
  return update.path.replace(/:([A-Za-z]+)/g, (_, name: string) => encoded(values[name] ?? ""));
}

export function membersOf(update: Update, identity: Identity, stage: Stage): Json {
  const members = sampleOf(update).members(identity);
  const timed = update.action.endsWith("_alias");
  return timed ? { ...members, timestamp: new Date(stage.nowMs()).toISOString() } : members;
}

export type Sending = {
  readonly identity?: (stage: Stage) => Identity;
  readonly path?: (stage: Stage) => string;
  readonly members?: (stage: Stage) => Json;
  readonly terms?: (stage: Stage) => Partial<Terms>;
  readonly spoil?: (body: Json, stage: Stage) => Json;
};

export function send(update: Update, stage: Stage, sending: Sending = {}): Promise<Reply> {
  const identity = sending.identity?.(stage) ?? stage.standing;
  return sendUpdate(stage, {
    identity,
    action: update.action,
    method: update.method,
    path: sending.path?.(stage) ?? pathOf(update, identity),
    members: { ...membersOf(update, identity, stage), ...sending.members?.(stage) },
    terms: sending.terms?.(stage) ?? {},
    ...(sending.spoil === undefined
      ? {}
      : { spoil: (body: Json) => sending.spoil?.(body, stage) ?? body }),
  });
}
