/**
 * Passes of a mailbox: its owner puts a secret, and a sender that shows a pass made by it is known,
 * whatever the acknowledgements say. The Cache keeps no people: a secret, how many passes are
 * valid, and the names of revoked ones.
 * Source: docs/interface.md "Passes", D600.
 */
import { decodeBase64Url } from "../../core/codec/bytes.ts";
import type { MailboxKey } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { dayMs, renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, isFault } from "../../core/fault.ts";
import {
  isValidPass,
  type PassRule,
  parseShownPass,
  passName,
  passSecretBytes,
} from "../../core/message/pass.ts";
import { passesBodyShape, passesShape } from "../../core/schema/messages.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import { rememberDecoded } from "../../storage/table.ts";
import type { Log } from "../http/log.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import { decodeRecord, encodeRecord } from "../parties/records.ts";
import type { OwnedRoute, ProveOwner } from "./owner.ts";

/**
 * Clients put their passes again at least monthly; after a year without an
 * owner, a mailbox is abandoned.
 */
const passesLifeMs = 400 * dayMs;

/** As it is kept: what the owner put. */
type Put = {
  readonly secret: string;
  readonly before?: string;
  readonly passes: number;
  readonly revoked: readonly string[];
};

type Passes = PassRule & { readonly count: number };

export type PassStore = {
  readonly receipts: Receipts;
  readonly log: Log;
  /** Each store reads the record of its mailbox. */
  readonly decode: (key: string, bytes: Uint8Array) => Passes;
};

export function createPassStore(receipts: Receipts, log: Log): PassStore {
  const decode = (bytes: Uint8Array): Passes => ruleOf(decodeRecord<Put>(bytes));
  return {
    receipts,
    log,
    decode: rememberDecoded(decode, { entriesMax: 4_096, bytesMax: 4 * 1024 ** 2 }),
  };
}

function ruleOf({ secret, before, passes, revoked }: Put): Passes {
  const texts = before === undefined ? [secret] : [secret, before];
  const secrets = texts.map((text) => decodeBase64Url(text) ?? new Uint8Array());
  return { secrets, revoked: new Set(revoked), count: passes };
}

/**
 * `null` when the owner has put none: then acknowledgements make people known.
 * Throws when the store fails.
 */
export async function loadPasses(
  { receipts, decode }: PassStore,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<Passes | null> {
  const key = keyOfPasses(mailbox);
  const value = await receipts.get(key, nowMs);
  return value === null ? null : decode(key, value);
}

/** The same for a sender, for whom a store that fails counts as one without passes. */
export async function readPasses(
  store: PassStore,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<Passes | null> {
  try {
    return await loadPasses(store, mailbox, nowMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    store.log("warn", "the passes of a mailbox could not be read; who shows one counts as new", {
      error,
    });
    return null;
  }
}

/**
 * The label of entries whose request has `Svc-Pass`; `null` for a pass that does not count here.
 */
export function passLabel(
  passes: Passes,
  header: string | null,
  shown: { readonly envelope: Uint8Array; readonly nowMs: number },
): string | null {
  const pass = parseShownPass(header);
  if (pass === null || !isValidPass(pass, passes, shown)) return null;
  return `pass:${passName(pass.id)}`;
}

export function keyOfPasses(mailbox: MailboxKey): string {
  return `passes:${mailbox}`;
}

// ------------------------------------------------------------------------------------ putting them

const checkBody = compileShape(passesBodyShape);

/** Two secrets, and the longest list of revoked passes, with generous white space. */
const passesBytesMax = 16 * 1024;

/** The owner says by which passes people are known. */
export function passRoute(store: PassStore, owned: OwnedRoute, prove: ProveOwner): Route {
  return {
    ...owned,
    method: "PUT",
    path: "/cache/pass/:did",
    id: "cachePass",
    summary: "Put the secret by which passes of people are checked",
    request: passesBodyShape,
    answer: [200, "Who shows such a pass is known, and no one by acknowledgements", passesShape],
    bodyBytesMax: passesBytesMax,
    handle: (call) => prove(call, ({ mailbox }) => putPasses(store, mailbox, call)),
  };
}

/** Replaces what is kept. Refuses with `invalid_json` or `invalid_request`. */
async function putPasses(
  { receipts }: PassStore,
  mailbox: MailboxKey,
  call: Call,
): Promise<Answer | Fault> {
  const members = parseJsonObject(call.body);
  const asked = isFault(members) ? members : checkBody(members);
  if (isFault(asked)) return asked;
  for (const name of ["secret", "before"] as const) {
    const text = asked[name];
    if (text !== undefined && decodeBase64Url(text)?.length !== passSecretBytes)
      return badInput("invalid_request", `/${name}`, "must be 32 bytes in base64url");
  }
  const untilMs = call.nowMs + passesLifeMs;
  await receipts.put(keyOfPasses(mailbox), encodeRecord(asked), untilMs);
  const { passes, revoked } = asked;
  return {
    status: 200,
    json: { passes, revoked: revoked.length, expires_at: renderTimestamp(untilMs) },
  };
}
