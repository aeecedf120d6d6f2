/**
 * Examples of signed updates that really verify: the DID and root key of the worked vectors (seed of 32
 * bytes 07), its document as registered, the counters at 0, and 12:00 on 16 July 2026. A test makes every
 * signature anew and sends every example to a running Directory at that time.
 * Source: docs/ledger.md 5.
 */
import { exampleDid, exampleKey } from "./schema.ts";

export const exampleTime = "2026-07-16T12:00:00Z";
export const exampleValidUntil = "1784203500000";

export const exampleMethod = {
  id: `${exampleDid}#k1`,
  type: "Multikey",
  controller: exampleDid,
  publicKeyMultibase: exampleKey,
};

export const exampleKeyAgreement = {
  id: `${exampleDid}#x25519-1`,
  type: "X25519KeyAgreementKey2020",
  controller: exampleDid,
  publicKeyMultibase: "z6LSgtvMnb35HnMsEx48tQXVmXHLUAutTBadN6Zr6bwfmtkz",
};

export const exampleService = {
  id: `${exampleDid}#cache`,
  type: "SvcCacheService",
  serviceEndpoint: ["https://cache.example"],
  authorization: [`${exampleDid}#k1`],
};

/** The document of worked vector 9. */
export const exampleDocument = {
  id: exampleDid,
  verificationMethod: [exampleMethod],
  authentication: [exampleMethod.id],
  keyAgreement: [],
  service: [exampleService],
};

const secondMethod = { ...exampleMethod, id: `${exampleDid}#k2` };

/** What stands on the ledger when the examples of updates are sent. */
export const exampleStanding = {
  did_document: {
    ...exampleDocument,
    verificationMethod: [exampleMethod, secondMethod],
    keyAgreement: [exampleKeyAgreement],
  },
  alias: "team.one",
};

const newKey = "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

/** Members of each action besides `did`, `action` and the authorization. */
export const exampleMembers = {
  AddVerificationMethod: { verification_method: { ...exampleMethod, id: `${exampleDid}#k3` } },
  UpdateVerificationMethod: { verification_method: { ...secondMethod, publicKeyMultibase: newKey } },
  RemoveVerificationMethod: { id: secondMethod.id },
  AddAuthentication: { id: secondMethod.id },
  RemoveAuthentication: { id: exampleMethod.id },
  AddKeyAgreement: { key_agreement: { ...exampleKeyAgreement, id: `${exampleDid}#x25519-2` } },
  UpdateKeyAgreement: { key_agreement: { ...exampleKeyAgreement, type: "Multikey" } },
  RemoveKeyAgreement: { id: exampleKeyAgreement.id },
  AddService: {
    service: {
      id: `${exampleDid}#inbox`,
      type: "SvcInboxService",
      serviceEndpoint: ["https://inbox.example"],
      priority: 1,
    },
  },
  UpdateService: { service: { ...exampleService, serviceEndpoint: ["https://cache2.example"] } },
  RemoveService: { id: exampleService.id },
  UpdateRootPubkey: { new_root_pubkey: newKey },
  add_alias: { alias: "team.two" },
  update_alias: { old_alias: "team.one", new_alias: "team.three" },
  remove_alias: { alias: "team.one" },
  deactivate_did: {},
  delete_did: {},
} as const;

export type UpdateAction = keyof typeof exampleMembers;

/** Payload and root signature of each example, made by the test that checks them. */
export const exampleAuthorizations: Readonly<
  Record<UpdateAction, { readonly canonical_payload: string; readonly signature: string }>
> = {
  AddVerificationMethod: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310001846469643a7376633a31313131313131313131313131313131313131313131236b33204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0000000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "V9z3aX6AUFqujVsh4Q8ao/eeKAoTOCvhizV9Y8/wJ96lw+4MleVbAmdkXZ/c1W/u+u5ML5SUIs/u8dTq1XcSDQ==",
  },
  UpdateVerificationMethod: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310101846469643a7376633a31313131313131313131313131313131313131313131236b32204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b6954427a31796d75657041513448454859534631483871754735474c5656515233646a6458336d446f6f57700000000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "TPOCGqhoqUcYbEow9jCVloWhK4JTn6RKAev+maVDEbg0Mm92EebmAlGGioWKUCp4GCPUhxj/pL8Tk/R0F1jxAg==",
  },
  RemoveVerificationMethod: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310200000001846469643a7376633a31313131313131313131313131313131313131313131236b320000000000000000e0d9d06a9f01000010726f6f74",
    signature: "os3jIxa/XpZ4mCIIUUeKOSnGG381jVVDCdgqDmxinRjIHxGwShyZW9D43cgdZ2Gdl3Dr6KFIgjwlinGVeWWoDA==",
  },
  AddAuthentication: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310300000001846469643a7376633a31313131313131313131313131313131313131313131236b320000000000000000e0d9d06a9f01000010726f6f74",
    signature: "Q7snVkKQenUwE9OLBe/9XXoqe9lZ9jdm3jBySYxLsFRCve8+lniYzEsOkOQPUorMCqOmYMe5/qcJvZ5FOIPbCQ==",
  },
  RemoveAuthentication: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310400000001846469643a7376633a31313131313131313131313131313131313131313131236b310000000000000000e0d9d06a9f01000010726f6f74",
    signature: "3SKokK24iChPp5ZUU1aahDzLm0cPVvtclDSczIv4Cxz5uwMaih1OuJChrt39/NqEyZd6QjOfjtxj9LYOXnYHDg==",
  },
  AddKeyAgreement: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310500019c6469643a7376633a31313131313131313131313131313131313131313131237832353531392d32645832353531394b657941677265656d656e744b657932303230786469643a7376633a31313131313131313131313131313131313131313131c07a364c536774764d6e623335486e4d7345783438745158566d58484c55417574544261644e365a72366277666d746b7a00000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "VcQ5GEipp9wIzjw8eEBrekN7qJRHy302vWrXH4zDNaNJJ0ZPGwOKmIbd9nATAukHAbUW4pT7VjLmk6N+qqQPBQ==",
  },
  UpdateKeyAgreement: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310600019c6469643a7376633a31313131313131313131313131313131313131313131237832353531392d31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364c536774764d6e623335486e4d7345783438745158566d58484c55417574544261644e365a72366277666d746b7a00000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "3+BERuVsIyaFocaonId2CQBlalpqbCYHEBFnYk2bSPJhrPpnEwB5a+/wlDQ3cgowtJ8Rbxpsyuzd9E8wtEJdAw==",
  },
  RemoveKeyAgreement: {
    canonical_payload:
      "0x786469643a7376633a3131313131313131313131313131313131313131313107000000019c6469643a7376633a31313131313131313131313131313131313131313131237832353531392d310000000000000000e0d9d06a9f01000010726f6f74",
    signature: "GRQPoE64Mf0/lo847wGtyv2I8PzxU4gUYXqCsfmyA3aylpm0Dvcc+iL+kxoT/cGpU0a9S+xd754ZPxAQedI2DQ==",
  },
  AddService: {
    canonical_payload:
      "0x786469643a7376633a3131313131313131313131313131313131313131313108000001906469643a7376633a3131313131313131313131313131313131313131313123696e626f783c537663496e626f7853657276696365045468747470733a2f2f696e626f782e6578616d706c65000101000000000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "E0tPel5C0TOmwoGCPBDUUJAVFS6aytmO0uxhmGqcUz2WDm93o8nOuDgoiY90K77rnLhOmeN5V8V/rnvmwYUBDQ==",
  },
  UpdateService: {
    canonical_payload:
      "0x786469643a7376633a3131313131313131313131313131313131313131313109000001906469643a7376633a313131313131313131313131313131313131313131312363616368653c537663436163686553657276696365045868747470733a2f2f6361636865322e6578616d706c650104846469643a7376633a31313131313131313131313131313131313131313131236b3100000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "5H+6lD8ONXMfOk3llSRKbQNVbY9GgnshpmHfXG6jnIdzX5KNGbE+wA0P4nAuB60W/t7IuAVGMhjngZNBAXT7Aw==",
  },
  RemoveService: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310a00000001906469643a7376633a313131313131313131313131313131313131313131312363616368650000000000000000e0d9d06a9f01000010726f6f74",
    signature: "TYZ4uLU/XHaZRLt0m4ULrDSrw2FQMZZGH0xYkYt0BQd9I8HhoEp752c+1HoXj0Pxkz0agdWcXgeB2utwkDw2Aw==",
  },
  UpdateRootPubkey: {
    canonical_payload:
      "0x786469643a7376633a31313131313131313131313131313131313131313131803b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da290000000000000000e0d9d06a9f01000010726f6f74",
    signature: "gI5J9l6yU8JlmyoYhg3EyCur4bkOkIirq1GUvTjyuuMQ4BJtMB4TRx+oQzf/ck4TrjDoOZKp2+3R33vnUJkaBw==",
  },
  add_alias: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310001207465616d2e74776f00000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "/IELGmENSys7DtTO9wv+Si2y1Oj4e9miLgECapakm6fsNzJFHWvBKgmRvPuiqMh7igNI1vTCz3DxNAegSjNWAQ==",
  },
  update_alias: {
    canonical_payload:
      "0x786469643a7376633a31313131313131313131313131313131313131313131010001207465616d2e6f6e6501287465616d2e74687265650000000000000000e0d9d06a9f01000010726f6f74",
    signature: "znH/+ztK4wQ/RHEfSNpfD63GkaZQjNaqb0wLC5qUg3qXRw4xWESAzS/jC3YeJuJVlRAfQxqXCK9XMF5tg++sAQ==",
  },
  remove_alias: {
    canonical_payload:
      "0x786469643a7376633a313131313131313131313131313131313131313131310201207465616d2e6f6e6500000000000000000000e0d9d06a9f01000010726f6f74",
    signature: "1X8iYNhx8eZE3deFEFALWS8u8gmpAEaY1x9UmF7glt9qmOx+XJ8ELFjM8VMRdVKwfo7DKTFInEfVjwEtiVppDA==",
  },
  deactivate_did: {
    canonical_payload:
      "0x786469643a7376633a31313131313131313131313131313131313131313131040000000000000000e0d9d06a9f01000010726f6f74",
    signature: "sNbLtmBWlNVx454XplgDBYfZ3GNU2eoWxY24zqMl8bHWG7v94fjYRY/Z+TM4YNYuEUKrWsvnxpZ8AYA3PYMbCQ==",
  },
  delete_did: {
    canonical_payload:
      "0x786469643a7376633a31313131313131313131313131313131313131313131070000000000000000e0d9d06a9f01000010726f6f74",
    signature: "BGF+g95AMlftY350aEazvAJ6gjnBYug5rF5EB37cjMr4lkLVwlATrojlEeGztMEedX8lsJKnOFZRRt7sUIVnBg==",
  },
};
