/** The DID document: JSON in and out, and what the ledger demands of a whole one. */
import { describe, expect, test } from "bun:test";
import { isFault } from "../../../../src/core/fault.ts";
import {
  type DidDocument,
  embeddedBounds,
  renderDocument,
  type Service,
  type VerificationMethod,
} from "../../../../src/core/ledger/account.ts";
import {
  checkDocument,
  emptyDocument,
  keyFor,
  normalizeDocument,
  normalizeMethod,
  normalizeService,
} from "../../../../src/core/ledger/document.ts";
import { faultOfRefusal, isRefusal } from "../../../../src/core/ledger/refusals.ts";
import { parseDocument } from "../../../../src/core/schema/identity.ts";
import { bob, cache, did, k1, k2, x1 } from "../../../support/alice.ts";
import { keyOf, methodOf } from "../../../support/identity.ts";

const whole: DidDocument = {
  id: did,
  verificationMethod: [k1, k2],
  authentication: [k1.id],
  keyAgreement: [x1],
  service: [cache],
};

/** Where a fault points to, after its code. */
function pointerOf(value: unknown): string {
  if (!isFault(value)) throw new Error(`expected a fault, got ${JSON.stringify(value)}`);
  return `${value.code} ${value.extra.errors?.[0]?.pointer}`;
}

describe("JSON in", () => {
  const json = { ...whole, service: [{ ...cache, priority: 0 }] };

  test("a complete document is its own normal form", () => {
    expect(parseDocument(json, did)).toEqual({ ...whole, service: [{ ...cache, priority: 0 }] });
  });

  test("relative ids are expanded in every place", () => {
    const relative = {
      id: did,
      verificationMethod: [{ ...k1, id: "#k1" }],
      authentication: ["#k1"],
      keyAgreement: [{ ...x1, id: "#x1" }],
      service: [{ ...cache, id: "#cache", authorization: ["#k1"], priority: undefined }],
    };
    const parsed = parseDocument(relative, did);
    expect(parsed).toEqual({ ...whole, verificationMethod: [k1] });
  });

  test("absent lists are empty, @context is left out, a lone endpoint becomes a list", () => {
    expect(parseDocument({ "@context": ["x"], id: did }, did)).toEqual(emptyDocument(did));
    const service = { id: "#s", type: "T", serviceEndpoint: "https://a.example" };
    expect(normalizeService(service, did, "")).toEqual({
      id: `${did}#s`,
      type: "T",
      serviceEndpoint: ["https://a.example"],
      authorization: null,
      priority: null,
    });
  });

  test("an empty authorization stays: it authorizes nobody", () => {
    const service = { id: "#s", type: "T", serviceEndpoint: ["u"], authorization: [] };
    expect(normalizeService(service, did, "")).toMatchObject({ authorization: [] });
  });

  const wrong: readonly (readonly [pointer: string, json: unknown])[] = [
    ["", null],
    ["", []],
    ["", "text"],
    ["/id", {}],
    ["/id", { id: 1 }],
    ["/id", { id: bob.did }],
    ["/extra", { id: did, extra: 1 }],
    ["/a~1b~0c", { id: did, "a/b~c": 1 }],
    ["/assertionMethod", { id: did, assertionMethod: [] }],
    ["/verificationMethod", { id: did, verificationMethod: {} }],
    ["/verificationMethod", { id: did, verificationMethod: null }],
    ["/verificationMethod/0", { id: did, verificationMethod: ["x"] }],
    ["/verificationMethod/1/type", { id: did, verificationMethod: [k1, { ...k2, type: 1 }] }],
    ["/verificationMethod/0/id", { id: did, verificationMethod: [{ ...k1, id: `${bob.did}#k1` }] }],
    ["/verificationMethod/0/id", { id: did, verificationMethod: [{ ...k1, id: "k1" }] }],
    ["/verificationMethod/0/id", { id: did, verificationMethod: [{ ...k1, id: "#" }] }],
    [
      "/verificationMethod/0/id",
      { id: did, verificationMethod: [{ ...k1, id: `#${"x".repeat(192)}` }] },
    ],
    [
      "/verificationMethod/0/controller",
      { id: did, verificationMethod: [{ ...k1, controller: undefined }] },
    ],
    [
      "/verificationMethod/0/publicKeyMultibase",
      { id: did, verificationMethod: [{ ...k1, publicKeyMultibase: null }] },
    ],
    [
      "/verificationMethod/0/publicKeyJwk",
      { id: did, verificationMethod: [{ ...k1, publicKeyJwk: {} }] },
    ],
    ["/authentication/0", { id: did, authentication: [k1] }],
    ["/authentication/0", { id: did, authentication: ["root"] }],
    ["/keyAgreement/0/id", { id: did, keyAgreement: [{ ...x1, id: 4 }] }],
    ["/service/0/type", { id: did, service: [{ ...cache, type: undefined }] }],
    [
      "/service/0/serviceEndpoint",
      { id: did, service: [{ ...cache, serviceEndpoint: undefined }] },
    ],
    [
      "/service/0/serviceEndpoint",
      { id: did, service: [{ ...cache, serviceEndpoint: { uri: "x" } }] },
    ],
    ["/service/0/serviceEndpoint", { id: did, service: [{ ...cache, serviceEndpoint: ["u", 2] }] }],
    ["/service/0/authorization", { id: did, service: [{ ...cache, authorization: null }] }],
    [
      "/service/0/authorization/0",
      { id: did, service: [{ ...cache, authorization: [`${bob.did}#k`] }] },
    ],
    ["/service/0/priority", { id: did, service: [{ ...cache, priority: -1 }] }],
    ["/service/0/priority", { id: did, service: [{ ...cache, priority: 1.5 }] }],
    ["/service/0/priority", { id: did, service: [{ ...cache, priority: 2 ** 32 }] }],
    ["/service/0/priority", { id: did, service: [{ ...cache, priority: "1" }] }],
  ];
  for (const [i, [pointer, document]] of wrong.entries()) {
    // `priority: null` inside `cache` would be a defect of its own.
    const clean = JSON.parse(JSON.stringify(document ?? null), (key, value) =>
      key === "" && value && Array.isArray(value.service)
        ? { ...value, service: value.service.map(withoutNulls) }
        : value,
    );
    test(`shape ${i} is refused at ${pointer === "" ? "the document" : pointer}`, () => {
      expect(pointerOf(parseDocument(clean, did))).toBe(`invalid_request ${pointer}`);
    });
  }

  test("single components have the same normal form, and pointers begin at the component", () => {
    expect(normalizeMethod({ ...k1, id: "#k1" }, did, "")).toEqual(k1);
    expect(normalizeMethod(x1, did, "")).toEqual(x1);
    expect(pointerOf(normalizeMethod({ ...k1, id: "k1" }, did, "/verification_method"))).toBe(
      "invalid_request /verification_method/id",
    );
    const service = { id: "#s", type: "T", serviceEndpoint: [], authorization: ["root"] };
    expect(pointerOf(normalizeService(service, did, "/service"))).toBe(
      "invalid_request /service/authorization/0",
    );
    const document = { id: did, authentication: ["#k1", "k2"] };
    expect(pointerOf(normalizeDocument(document, did, "/document"))).toBe(
      "invalid_request /document/authentication/1",
    );
    // Of another DID, with ids that are its own.
    const others = { id: bob.did, authentication: [`${bob.did}#k1`] };
    expect(pointerOf(normalizeDocument(others, did, "/document"))).toBe(
      "invalid_request /document/id",
    );
  });
});

/** A service as JSON carries it: unset members are absent. */
function withoutNulls(service: Record<string, unknown>): Record<string, unknown> {
  const { priority, ...rest } = service;
  return priority === null ? rest : service;
}

describe("JSON out", () => {
  test("has all four lists, and authorization and priority only when they are set", () => {
    expect(renderDocument(emptyDocument(did))).toEqual({
      id: did,
      verificationMethod: [],
      authentication: [],
      keyAgreement: [],
      service: [],
    });
    const bare: Service = { ...cache, authorization: null };
    const set: Service = { ...cache, authorization: [], priority: 0 };
    const rendered = JSON.parse(JSON.stringify(renderDocument({ ...whole, service: [bare, set] })));
    expect(rendered.service).toEqual([
      { id: cache.id, type: cache.type, serviceEndpoint: cache.serviceEndpoint },
      {
        id: cache.id,
        type: cache.type,
        serviceEndpoint: cache.serviceEndpoint,
        authorization: [],
        priority: 0,
      },
    ]);
  });

  test("reads back as the same document", () => {
    expect(parseDocument(JSON.parse(JSON.stringify(renderDocument(whole))), did)).toEqual(whole);
  });
});

describe("rules of a whole document", () => {
  const many = <T>(count: number, make: (i: number) => T) =>
    Array.from({ length: count }, (_, i) => make(i));
  const method = (i: number): VerificationMethod => methodOf(did, `m${i}`, keyOf(`m${i}`));
  const service = (i: number): Service => ({ ...cache, id: `${did}#s${i}` });
  const cases: readonly (readonly [
    name: string,
    patch: Partial<DidDocument>,
    error: string | null,
  ])[] = [
    ["the complete document", {}, null],
    ["an empty document", { ...emptyDocument(did) }, null],
    ["another DID", { id: bob.did }, "InvalidDocument"],
    ["five methods", { verificationMethod: many(5, method), authentication: [] }, null],
    ["six methods", { verificationMethod: many(6, method), authentication: [] }, "InvalidDocument"],
    [
      "four in authentication",
      { verificationMethod: many(5, method), authentication: many(4, (i) => method(i).id) },
      null,
    ],
    [
      "five in authentication",
      { verificationMethod: many(5, method), authentication: many(5, (i) => method(i).id) },
      "InvalidDocument",
    ],
    [
      "six key agreements",
      { keyAgreement: many(6, (i) => ({ ...x1, id: `${did}#x${i}` })) },
      "InvalidDocument",
    ],
    ["four services", { service: many(4, service) }, null],
    ["five services", { service: many(5, service) }, "InvalidDocument"],
    ["five endpoints", { service: [{ ...cache, serviceEndpoint: many(5, String) }] }, null],
    [
      "six endpoints",
      { service: [{ ...cache, serviceEndpoint: many(6, String) }] },
      "InvalidDocument",
    ],
    [
      "an endpoint of 129 bytes",
      { service: [{ ...cache, serviceEndpoint: [`${"é".repeat(64)}x`] }] },
      "InvalidDocument",
    ],
    [
      "an endpoint of 128 bytes",
      { service: [{ ...cache, serviceEndpoint: ["é".repeat(64)] }] },
      null,
    ],
    [
      "nine keys in an authorization",
      { service: [{ ...cache, authorization: many(9, (i) => `${did}#${i}`) }] },
      "InvalidDocument",
    ],
    ["a type of 65 bytes", { service: [{ ...cache, type: "t".repeat(65) }] }, "InvalidDocument"],
    [
      "an id of 193 bytes",
      { service: [{ ...cache, id: `${did}#${"x".repeat(192 - did.length)}` }] },
      "InvalidDocument",
    ],
    [
      "an id of 192 bytes",
      { service: [{ ...cache, id: `${did}#${"x".repeat(191 - did.length)}` }] },
      null,
    ],
    [
      "a key of 129 bytes",
      { keyAgreement: [{ ...x1, publicKeyMultibase: "z".repeat(129) }] },
      "InvalidDocument",
    ],
    [
      "a method without id",
      { verificationMethod: [{ ...k1, id: "" }], authentication: [] },
      "InvalidDocument",
    ],
    [
      "a method of another controller",
      { verificationMethod: [{ ...k1, controller: bob.did }] },
      "InvalidDocument",
    ],
    [
      "a method twice",
      { verificationMethod: [k1, { ...k2, id: k1.id }] },
      "VerificationMethodAlreadyExists",
    ],
    [
      "authentication without a method",
      { authentication: [k1.id, `${did}#k9`] },
      "VerificationMethodNotFound",
    ],
    ["authentication twice", { authentication: [k1.id, k1.id] }, "AuthenticationAlreadyExists"],
    [
      "a key agreement without key",
      { keyAgreement: [{ ...x1, publicKeyMultibase: "" }] },
      "InvalidDocument",
    ],
    ["a key agreement twice", { keyAgreement: [x1, x1] }, "KeyAgreementAlreadyExists"],
    ["a service without type", { service: [{ ...cache, type: "" }] }, "InvalidDocument"],
    [
      "a service without endpoint",
      { service: [{ ...cache, serviceEndpoint: [] }] },
      "InvalidDocument",
    ],
    ["an empty endpoint", { service: [{ ...cache, serviceEndpoint: [""] }] }, null],
    [
      "an empty id in an authorization",
      { service: [{ ...cache, authorization: [""] }] },
      "InvalidDocument",
    ],
    [
      "an authorization of no method",
      { service: [{ ...cache, authorization: [`${did}#k9`] }] },
      null,
    ],
    ["a service twice", { service: [cache, cache] }, "ServiceAlreadyExists"],
    ["one id in several lists", { service: [{ ...cache, id: k1.id }] }, null],
    [
      "a key of small order",
      {
        verificationMethod: [
          k1,
          { ...k2, publicKeyMultibase: "z11111111111111111111111111111111" },
        ],
      },
      "InvalidDocument",
    ],
    [
      "a malformed key",
      { verificationMethod: [k1, { ...k2, publicKeyMultibase: "zNo" }] },
      "InvalidDocument",
    ],
    [
      "an X25519 key under Multikey",
      {
        verificationMethod: [
          k1,
          { ...k2, publicKeyMultibase: "z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc" },
        ],
      },
      "InvalidDocument",
    ],
    [
      "an opaque key of another type",
      { verificationMethod: [k1, { ...k2, type: "JsonWebKey2020", publicKeyMultibase: "x" }] },
      null,
    ],
  ];
  for (const [name, patch, error] of cases) {
    test(`${name}: ${error ?? "accepted"}`, () => {
      const refusal = checkDocument({ ...whole, ...patch }, did, embeddedBounds);
      expect(refusal?.error ?? null).toBe(error as null);
      if (isRefusal(refusal)) expect(faultOfRefusal(refusal).code).toBe("document_invalid");
    });
  }

  test("of several broken rules, the first in the runtime's order is reported", () => {
    const worse: DidDocument = {
      ...whole,
      id: bob.did,
      verificationMethod: [k1, k1],
      authentication: ["x"],
      keyAgreement: [x1, x1],
      service: [cache, cache],
    };
    const steps: readonly (readonly [Partial<DidDocument>, string | null])[] = [
      [{}, "InvalidDocument"],
      [{ id: did }, "VerificationMethodAlreadyExists"],
      [{ verificationMethod: [k1] }, "VerificationMethodNotFound"],
      [{ authentication: [k1.id, k1.id] }, "AuthenticationAlreadyExists"],
      [{ authentication: [k1.id] }, "KeyAgreementAlreadyExists"],
      [{ keyAgreement: [x1] }, "ServiceAlreadyExists"],
      [{ service: [cache] }, null],
    ];
    let document = worse;
    for (const [mend, error] of steps) {
      document = { ...document, ...mend };
      expect(checkDocument(document, did, embeddedBounds)?.error ?? null).toBe(error as null);
    }
  });

  test("the bounds of another ledger apply as well", () => {
    expect(checkDocument(whole, did, { ...embeddedBounds, idBytes: did.length + 3 })?.error).toBe(
      "InvalidDocument",
    );
    expect(checkDocument(whole, did, { ...embeddedBounds, verificationMethods: 1 })?.error).toBe(
      "InvalidDocument",
    );
  });
});

describe("who may sign", () => {
  const record = { document: whole, rootPubkey: keyOf("alice root").publicKey };

  test("a method's key counts only when the DID controls it, and signs for the DID only when it is listed", () => {
    expect(keyFor(record, k2.id, "service")).toEqual(keyOf("alice k2").publicKey);
    for (const purpose of ["change", "send"] as const) {
      expect(keyFor(record, k2.id, purpose)).toBeNull();
      expect(keyFor(record, k1.id, purpose)).toEqual(keyOf("alice k1").publicKey);
      expect(keyFor(record, `${did}#k9`, purpose)).toBeNull();
    }
    const foreign = { ...whole, verificationMethod: [{ ...k1, controller: bob.did }] };
    for (const purpose of ["change", "send", "service"] as const) {
      expect(keyFor({ document: foreign }, k1.id, purpose)).toBeNull();
    }
  });

  test("root changes the identity and does nothing else", () => {
    expect(keyFor(record, "root", "change")).toEqual(record.rootPubkey);
    expect(keyFor({ ...record, document: null }, "root", "change")).toEqual(record.rootPubkey);
    expect(keyFor({ ...record, rootPubkey: null }, "root", "change")).toBeNull();
    expect([keyFor(record, "root", "send"), keyFor(record, "root", "service")]).toEqual([
      null,
      null,
    ]);
  });
});
