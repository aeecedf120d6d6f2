/**
 * Scenarios of the signed updates by the operations' own rules: components that exist or don't,
 * keys that are not admitted, aliases of others, full lists.
 */

import { expect } from "bun:test";
import { dayMs } from "../../../src/core/codec/time.ts";
import type { FaultCode } from "../../../src/core/fault.ts";
import type { ActionName } from "../../../src/core/ledger/actions.ts";
import { type Json, type Reply, type Update, updates } from "../../support/directory.ts";
import type { Identity } from "../../support/identity.ts";
import { sampleOf, send } from "./samples.ts";
import {
  agreementOf,
  aliasOf,
  encoded,
  methodWith,
  type Scenario,
  type Stage,
  serviceOf,
  smallOrderKey,
} from "./stage.ts";

/**
 * A refusal by the operation's own rules: members of the standing identity, and the path they
 * belong to.
 */
type Rule = {
  readonly action: ActionName;
  readonly name: string;
  readonly status: number;
  readonly code: FaultCode;
  readonly members: (identity: Identity, stage: Stage) => Json;
  readonly named?: (identity: Identity) => string;
  readonly pointers?: readonly string[];
};

const k9 = ({ did }: Identity) => `${did}#k9`;
const badKey = (identity: Identity, fragment: string): Json => ({
  verification_method: { ...methodWith(identity, fragment), publicKeyMultibase: smallOrderKey },
});
const strange = (identity: Identity, fragment: string): Json => ({
  key_agreement: {
    ...agreementOf(identity, fragment),
    controller: "did:svc:2222222222222222222222",
  },
});
const longUrl = (identity: Identity, fragment: string): Json => ({
  service: { ...serviceOf(identity, fragment), serviceEndpoint: [`https://${"a".repeat(121)}`] },
});

const rules: readonly Rule[] = [
  {
    action: "AddVerificationMethod",
    name: "a method that exists",
    status: 409,
    code: "component_exists",
    members: (i) => ({ verification_method: methodWith(i, "k1") }),
  },
  {
    action: "AddVerificationMethod",
    name: "a key of small order",
    status: 422,
    code: "document_invalid",
    members: (i) => badKey(i, "k3"),
  },
  {
    action: "AddVerificationMethod",
    name: "a method with a member too many",
    status: 400,
    code: "invalid_request",
    members: (i) => ({ verification_method: methodWith(i, "k3") }),
    pointers: ["/verification_method/extra"],
  },
  {
    action: "UpdateVerificationMethod",
    name: "a method that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ verification_method: methodWith(i, "k9") }),
    named: k9,
  },
  {
    action: "UpdateVerificationMethod",
    name: "a key of small order",
    status: 422,
    code: "document_invalid",
    members: (i) => badKey(i, "k2"),
  },
  {
    action: "UpdateVerificationMethod",
    name: "another method than the path names",
    status: 400,
    code: "path_body_mismatch",
    members: (i) => ({ verification_method: methodWith(i, "k1") }),
    pointers: ["/verification_method/id"],
  },
  {
    action: "RemoveVerificationMethod",
    name: "a method that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ id: k9(i) }),
    named: k9,
  },
  {
    action: "RemoveVerificationMethod",
    name: "a method that authentication lists",
    status: 409,
    code: "component_in_use",
    members: ({ did }) => ({ id: `${did}#k1` }),
    named: ({ did }) => `${did}#k1`,
  },
  {
    action: "RemoveVerificationMethod",
    name: "another method than the path names",
    status: 400,
    code: "path_body_mismatch",
    members: (i) => ({ id: k9(i) }),
    pointers: ["/id"],
  },
  {
    action: "AddAuthentication",
    name: "a method that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ id: k9(i) }),
  },
  {
    action: "AddAuthentication",
    name: "a method that is listed",
    status: 409,
    code: "component_exists",
    members: ({ did }) => ({ id: `${did}#k1` }),
  },
  {
    action: "RemoveAuthentication",
    name: "a method that is not listed",
    status: 404,
    code: "component_not_found",
    members: ({ did }) => ({ id: `${did}#k2` }),
    named: ({ did }) => `${did}#k2`,
  },
  {
    action: "AddKeyAgreement",
    name: "an agreement that exists",
    status: 409,
    code: "component_exists",
    members: (i) => ({ key_agreement: agreementOf(i, "x25519-1") }),
  },
  {
    action: "AddKeyAgreement",
    name: "a controller that is not the DID",
    status: 422,
    code: "document_invalid",
    members: (i) => strange(i, "x25519-2"),
  },
  {
    action: "UpdateKeyAgreement",
    name: "an agreement that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ key_agreement: agreementOf(i, "k9") }),
    named: k9,
  },
  {
    action: "UpdateKeyAgreement",
    name: "a controller that is not the DID",
    status: 422,
    code: "document_invalid",
    members: (i) => strange(i, "x25519-1"),
  },
  {
    action: "RemoveKeyAgreement",
    name: "an agreement that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ id: k9(i) }),
    named: k9,
  },
  {
    action: "AddService",
    name: "a service that exists",
    status: 409,
    code: "component_exists",
    members: (i) => ({ service: serviceOf(i, "cache") }),
  },
  {
    action: "AddService",
    name: "an endpoint that is too long",
    status: 422,
    code: "document_invalid",
    members: (i) => longUrl(i, "inbox"),
  },
  {
    action: "UpdateService",
    name: "a service that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ service: serviceOf(i, "k9") }),
    named: k9,
  },
  {
    action: "UpdateService",
    name: "an endpoint that is too long",
    status: 422,
    code: "document_invalid",
    members: (i) => longUrl(i, "cache"),
  },
  {
    action: "UpdateService",
    name: "a service that is not an object",
    status: 400,
    code: "invalid_request",
    members: (i) => ({ service: serviceOf(i, "cache") }),
    pointers: ["/service"],
  },
  {
    action: "RemoveService",
    name: "a service that does not exist",
    status: 404,
    code: "component_not_found",
    members: (i) => ({ id: k9(i) }),
    named: k9,
  },
  {
    action: "UpdateRootPubkey",
    name: "a key of small order",
    status: 422,
    code: "document_invalid",
    members: () => ({ new_root_pubkey: smallOrderKey }),
  },
  {
    action: "add_alias",
    name: "an alias of another DID",
    status: 409,
    code: "alias_taken",
    members: (_, { deactivated }) => ({ alias: aliasOf(deactivated) }),
  },
  ...(["add_alias", "update_alias"] as const).map((action) => ({
    action,
    name: "an alias that the operator reserves",
    status: 403,
    code: "alias_reserved" as const,
    members: () => ({ [action === "add_alias" ? "alias" : "new_alias"]: "Postmaster" }),
  })),
  {
    action: "add_alias",
    name: "its own alias again",
    status: 409,
    code: "alias_exists",
    members: (i) => ({ alias: aliasOf(i).toUpperCase() }),
  },
  {
    action: "add_alias",
    name: "a stale timestamp",
    status: 400,
    code: "authorization_expired",
    members: (_, stage) => ({ timestamp: new Date(stage.nowMs() - 300_001).toISOString() }),
    pointers: ["/timestamp"],
  },
  {
    action: "add_alias",
    name: "a timestamp of the future",
    status: 400,
    code: "authorization_too_far_ahead",
    members: (_, stage) => ({ timestamp: String(stage.nowMs() + 300_001) }),
    pointers: ["/timestamp"],
  },
  {
    action: "update_alias",
    name: "an alias of another DID",
    status: 409,
    code: "alias_taken",
    members: (_, { deactivated }) => ({ new_alias: aliasOf(deactivated) }),
  },
  {
    action: "update_alias",
    name: "the same alias",
    status: 409,
    code: "alias_exists",
    members: (i) => ({ new_alias: aliasOf(i) }),
  },
  {
    action: "update_alias",
    name: "an alias the DID does not have",
    status: 404,
    code: "alias_not_found",
    members: () => ({ old_alias: "not.mine" }),
    named: () => "not.mine",
  },
  {
    action: "update_alias",
    name: "another alias than the path names",
    status: 400,
    code: "path_body_mismatch",
    members: () => ({ old_alias: "not.mine" }),
    pointers: ["/old_alias"],
  },
  {
    action: "remove_alias",
    name: "an alias the DID does not have",
    status: 404,
    code: "alias_not_found",
    members: () => ({ alias: "not.mine" }),
    named: () => "not.mine",
  },
  {
    action: "remove_alias",
    name: "another alias than the path names",
    status: 400,
    code: "path_body_mismatch",
    members: () => ({ alias: "not.mine" }),
    pointers: ["/alias"],
  },
];

/** Spoils that can't be signed, because they are not members of any payload. */
const afterSigning: Readonly<Record<string, (body: Json) => Json>> = {
  "/verification_method/extra": (body) => ({
    ...body,
    verification_method: { ...(body["verification_method"] as Json), extra: 1 },
  }),
  "/service": (body) => ({ ...body, service: [] }),
};

function ruleScenario(rule: Rule): Scenario {
  const update = updates.find(({ action }) => action === rule.action) as Update;
  const { name, status, code, pointers } = rule;
  const spoil = afterSigning[pointers?.[0] ?? ""];
  return {
    name: `refuses ${name}`,
    route: `${update.method} ${update.path}`,
    status,
    code,
    ...(pointers === undefined ? {} : { pointers }),
    act: (stage) => {
      const { standing } = stage;
      const named = (rule.named ?? sampleOf(update).named)?.(standing) ?? "";
      const path = update.path
        .replace(":did", encoded(standing.did))
        .replace(/:[A-Za-z]+/, encoded(named));
      return send(update, stage, {
        path: () => path,
        members: () => rule.members(standing, stage),
        ...(spoil === undefined ? {} : { spoil }),
      });
    },
  };
}

/** Lists that are full: five methods, four entries in authentication, eight aliases. */
const fullLists: readonly Scenario[] = [
  {
    name: "refuses a fifth entry in authentication",
    route: "POST /dids/:did/document/authentication",
    status: 422,
    code: "document_invalid",
    act: async (stage) => {
      const identity = await stage.fresh((own) => {
        const methods = ["a", "b", "c", "d", "e"].map((fragment) => methodWith(own, fragment));
        const authentication = methods.slice(0, 4).map((method) => method["id"]);
        return { id: own.did, verificationMethod: methods, authentication };
      });
      const update = updates.find(({ action }) => action === "AddAuthentication") as Update;
      return send(update, stage, {
        identity: () => identity,
        members: () => ({ id: `${identity.did}#e` }),
      });
    },
  },
  {
    name: "refuses a ninth alias",
    route: "POST /dids/:did/aliases",
    status: 422,
    code: "document_invalid",
    act: async (stage) => {
      const identity = await stage.fresh();
      const update = updates.find(({ action }) => action === "add_alias") as Update;
      let reply: Reply | null = null;
      for (let i = 0; i < 8; i++) {
        reply = await send(update, stage, {
          identity: () => identity,
          members: () => ({ alias: `${aliasOf(identity)}.${i}` }),
          terms: () => ({ nonce: String(i) }),
        });
        if (i < 7) await stage.settle(reply);
      }
      return reply as Reply;
    },
  },
];

/** A second change within the interval; one that the ledger refused before does not count. */
const changedLately = (["add_alias", "update_alias"] as const).map((action): Scenario => {
  const update = updates.find((one) => one.action === action) as Update;
  return {
    name: `${action} refuses a second change within the interval`,
    route: `${update.method} ${update.path}`,
    status: 429,
    code: "alias_changed",
    act: async (stage) => {
      const identity = await stage.fresh();
      const change = (nonce: string, text: string) =>
        send(update, stage, {
          identity: () => identity,
          members: () => {
            const name = `${aliasOf(identity)}.${text}`;
            return action === "add_alias" ? { alias: name } : { new_alias: name };
          },
          terms: () => ({ nonce }),
        });
      stage.settings.alias_interval = 30 * dayMs;
      try {
        expect((await change("7", "a")).body["code"]).toBe("nonce_mismatch");
        const first = await change("0", "b");
        expect(first.status).toBe(202);
        await stage.settle(first);
        return await change("1", "c");
      } finally {
        stage.settings.alias_interval = 0;
      }
    },
    check: (reply) => expect(Number(reply.headers.get("retry-after"))).toBeGreaterThan(2_591_000),
  };
});

export const ruleScenarios: readonly Scenario[] = [
  ...rules.map(ruleScenario),
  ...fullLists,
  ...changedLately,
];
