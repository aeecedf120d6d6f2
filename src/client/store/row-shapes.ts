/**
 * The shapes of rows that own devices send each other. A row of another form is not stored, and
 * nothing of a row is stored that its shape doesn't name: a device may be a thief's, and what it
 * had said stays after its removal.
 * Source: docs/trust.md "Own devices".
 */
import { isDid, parseUuid } from "../../core/codec/did.ts";
import {
  array,
  custom,
  keptDid as did,
  mapped,
  natural,
  nullable,
  object,
  oneOf,
  optional,
  parseValue,
  type Shape,
  text,
  truth,
} from "../base/shapes.ts";
import type { GroupRow } from "../groups/bundles.ts";
import type { Authorship } from "../mail/authorship.ts";
import { lastsSecondsMax } from "../mail/content.ts";
import type { ChosenRow } from "./chosen.ts";
import type { Body } from "./files.ts";
import type { PassRow } from "./passes.ts";
import { type MembersOf, givenName as name, personShape, rowOf, timeMs } from "./person-shape.ts";
import {
  type ConversationRow,
  type Copy,
  type EvidenceRow,
  type MessageRow,
  type ProfileRow,
  type RemovalRow,
  unverified,
} from "./rows.ts";

function either<T>(...shapes: readonly Shape<T>[]): Shape<T> {
  const readIn = (value: unknown) =>
    shapes.map((shape) => parseValue(value, shape)).find((read) => read !== null);
  const known = custom<unknown>((value) => readIn(value) !== undefined, "of a known kind");
  return mapped(known, (value) => readIn(value) as T);
}

/** That a calendar can show. */
const dateMs = custom<number>(
  (value) => !Number.isNaN(new Date(Number(value)).getTime()) && timeMs.read(value, "") === value,
  "a date",
);
const conversation = custom<string>(isConversation, "a conversation");
const anyDid = nullable(did);

/** The name of a conversation: a DID, the id of a group, or `unverified`. */
export function isConversation(value: unknown): value is string {
  if (typeof value !== "string") return false;
  return value === unverified || isDid(value) || parseUuid(value) !== null;
}

const copy = rowOf<Copy>({
  did,
  id: text,
  state: oneOf("waiting", "uncertain", "failed", "sent", "received", "read"),
  code: nullable(text),
  reason: nullable(text),
  // Its place in the outbox of the device that sends it.
  out: mapped(
    custom(() => true, "any value"),
    () => null,
  ),
});

type Of<Is> = { readonly is: Is };
type Outside = Extract<Authorship, Of<"outside">>;
type Inside = Extract<Authorship, Of<"inside">>;

const authorship = either<Authorship>(
  rowOf<Outside>({
    is: oneOf("outside"),
    mediaType: text,
    envelope: custom((value) => parseValue(value, object({})) !== null, "an object"),
    key: text,
    nonce: text,
    plainBytes: natural,
  }),
  rowOf<Inside>({
    is: oneOf("inside"),
    mediaType: text,
    keyId: text,
    proofSha256: text,
    keySha256: text,
    envelopeSha256: text,
    signature: text,
  }),
);

/** Pieces are in the store of the device that has them. */
const body = either<Body>(
  rowOf<Extract<Body, Of<"inline">>>({ is: oneOf("inline"), base64: text }),
  rowOf<Extract<Body, Of<"elsewhere">>>({ is: oneOf("elsewhere"), at: did }),
  rowOf<Extract<Body, Of<"removed">>>({ is: oneOf("removed") }),
);

const messageMembers: MembersOf<MessageRow> = {
  id: text,
  from: anyDid,
  verified: nullable(truth),
  trust: nullable(oneOf("unproven", "proven", "logged")),
  distrusted: nullable(text),
  name: text,
  mediaType: text,
  sizeBytes: natural,
  replyTo: nullable(text),
  replyFrom: optional(anyDid),
  group: nullable(text),
  state: optional(nullable(text)),
  wantsReceipt: truth,
  mentions: optional(array(did)),
  isForwarded: optional(truth),
  lastsSeconds: optional(natural),
  messageIds: array(text),
  sentMs: dateMs,
  conversation,
  isOwn: truth,
  arrivedMs: timeMs,
  placedMs: optional(timeMs),
  reaction: nullable(text),
  target: nullable(text),
  targetFrom: optional(anyDid),
  digest: text,
  body,
  to: array(copy),
  authorship: optional(authorship),
};

const choiceOf = <T>(value: Shape<T>) => optional(object({ value, atMs: timeMs }));

/** Of each kind of row that devices send, by the first letter of its key. */
export const rowShapes = {
  p: personShape,
  b: rowOf<ProfileRow>({ did, name, picture: text, atMs: timeMs, isOpen: nullable(truth) }),
  j: rowOf<PassRow>({ did, pass: text }),
  /** Its members are parsed where it is judged (`groups/given.ts`). */
  g: custom<GroupRow>((value) => parseValue(value, object({})) !== null, "an object"),
  m: rowOf<MessageRow>(messageMembers),
  v: rowOf<Pick<MessageRow, "id" | "to"> & Partial<Pick<MessageRow, "from">>>({
    id: text,
    to: array(copy),
    from: optional(anyDid),
  }),
  r: rowOf<MessageRow>({ ...messageMembers, sentMs: timeMs }),
  c: rowOf<Pick<ConversationRow, "id" | "readAtMs">>({ id: conversation, readAtMs: timeMs }),
  q: rowOf<RemovalRow>({ id: text, digest: text, from: optional(anyDid), untilMs: timeMs }),
  w: rowOf<ChosenRow>({
    id: conversation,
    draft: choiceOf(text),
    isPinned: choiceOf(truth),
    isMuted: choiceOf(truth),
    isArchived: choiceOf(truth),
    timer: optional(
      object({
        seconds: custom<number>(
          (value) => parseValue(value, natural) !== null && Number(value) <= lastsSecondsMax,
          "seconds",
        ),
        version: natural,
        by: did,
      }),
    ),
  }),
  z: either<EvidenceRow>(
    rowOf<Extract<EvidenceRow, Of<"proof">>>({ is: oneOf("proof"), did, proof: text }),
    rowOf<Extract<EvidenceRow, Of<"head">>>({
      is: oneOf("head"),
      at: text,
      logKey: text,
      note: text,
    }),
  ),
  /** The end of what decides where a message belongs. */
  f: rowOf<Readonly<Record<never, never>>>({}),
};
