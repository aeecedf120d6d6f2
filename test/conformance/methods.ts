/**
 * Every method of every capability; a method that the contract gains or loses is a type error here.
 */
import type { Capabilities, CapabilityName } from "../../src/storage/contract.ts";

export const capabilityMethods = {
  mailbox: {
    store: 1,
    list: 1,
    summary: 1,
    read: 1,
    chunks: 1,
    message: 1,
    known: 1,
    remove: 1,
    claimAndRemove: 1,
    expire: 1,
    stats: 1,
    oldest: 1,
  },
  replay: { claim: 1, expire: 1 },
  receipts: { put: 1, putIfAbsent: 1, get: 1, remove: 1, scan: 1, expire: 1 },
  ledger: {
    head: 1,
    bounds: 1,
    account: 1,
    keyProof: 1,
    aliasHolder: 1,
    aliasReserve: 1,
    policy: 1,
    stamp: 1,
    submit: 1,
    submission: 1,
    operator: 1,
    proofs: 1,
  },
  logs: {
    head: 1,
    genesisSeed: 1,
    tile: 1,
    inclusion: 1,
    consistency: 1,
    inMap: 1,
    copy: 1,
    copiedBytes: 1,
    adopt: 1,
    restart: 1,
    note: 1,
    keepNote: 1,
  },
} as const satisfies {
  readonly [Name in CapabilityName]: Record<keyof NonNullable<Capabilities[Name]>, 1>;
};
