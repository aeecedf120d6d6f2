/**
 * Bodies of what an operator changes on a running node. They are no part of the interface for clients: only the Unix
 * sockets of an admin listener take them.
 */
import { Type } from "@sinclair/typebox";

export const blocksMax = 10_000;
export const blockReasonMax = 200;
const subjectMax = 160;

export const ReloadRequest = Type.Object({}, { examples: [{}] });

export const BlockRequest = Type.Object(
  {
    add: Type.Array(
      Type.Object(
        {
          subject: Type.String({ maxLength: subjectMax, description: "A DID, an address or a network" }),
          sender_only: Type.Boolean({ description: "Whether a DID may still receive" }),
          reason: Type.Union([Type.String({ maxLength: blockReasonMax }), Type.Null()]),
        },
        { additionalProperties: false },
      ),
      { maxItems: blocksMax },
    ),
    remove: Type.Array(Type.String({ maxLength: subjectMax }), { maxItems: blocksMax }),
  },
  {
    additionalProperties: false,
    examples: [{ add: [{ subject: "203.0.113.0/24", sender_only: false, reason: "floods mailboxes" }], remove: [] }],
  },
);

export const PurgeRequest = Type.Object(
  { recipient: Type.String({ maxLength: 128 }) },
  { additionalProperties: false, examples: [{ recipient: "did:svc:1111111111111111111111" }] },
);
