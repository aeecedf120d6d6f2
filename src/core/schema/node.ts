/**
 * Shapes of the answers that every node gives about itself (health, readiness, limits, refusals, status), and of what an
 * operator may change on a running node. Each carries its example, and `/openapi.json` is made of them.
 * Source: rules sections 9 and 10 ("Reads").
 */
import { type Static, Type } from "@sinclair/typebox";

export const HealthAnswer = Type.Object(
  { status: Type.Literal("ok"), version: Type.String() },
  { examples: [{ status: "ok", version: "0.1.0" }] },
);

export const ReadyAnswer = Type.Object(
  { status: Type.Literal("ready"), checks: Type.Record(Type.String(), Type.Literal("ok")) },
  { examples: [{ status: "ready", checks: { "store main": "ok" } }] },
);

const exampleProblem = {
  code: "not_found",
  status: 404,
  title: "No such resource",
  cause: "No route has this path.",
  remedy: "Compare with /openapi.json; a trailing slash counts.",
};

export const ProblemEntrySchema = Type.Object(
  {
    code: Type.String(),
    status: Type.Integer(),
    title: Type.String(),
    cause: Type.String({ description: "what usually causes it" }),
    remedy: Type.String({ description: "what a client does about it" }),
  },
  { examples: [exampleProblem] },
);
export type ProblemEntry = Static<typeof ProblemEntrySchema>;

export const ProblemList = Type.Object(
  { problems: Type.Array(ProblemEntrySchema) },
  { examples: [{ problems: [exampleProblem] }] },
);

export const AboutAnswer = Type.Object(
  {
    roles: Type.Array(Type.Union([Type.Literal("directory"), Type.Literal("relay"), Type.Literal("cache")])),
    version: Type.String(),
    relay_endpoints: Type.Array(Type.String(), { description: "URLs by which documents name this Relay" }),
    relay_public_id: Type.Union([Type.String(), Type.Null()], {
      description: "Name of this Relay in `allowed_relays` of policies",
    }),
    cache_endpoints: Type.Array(Type.String(), {
      description: "URLs by which documents name this Cache and proofs are signed for it",
    }),
    event_proof_key: Type.Union([Type.String(), Type.Null()], {
      description: "Key that signs event proofs, as multibase; `null` when they are not signed",
    }),
    previous_event_proof_keys: Type.Array(Type.Object({ key: Type.String(), valid_until: Type.String() }), {
      description: "Earlier keys; accept their signatures until then",
    }),
  },
  {
    examples: [
      {
        roles: ["directory", "relay", "cache"],
        version: "0.1.0",
        relay_endpoints: ["https://waypost.example.org"],
        relay_public_id: "waypost.example.org",
        cache_endpoints: ["https://waypost.example.org"],
        event_proof_key: null,
        previous_event_proof_keys: [],
      },
    ],
  },
);
export type About = Static<typeof AboutAnswer>;

const SampleRow = Type.Record(Type.String(), Type.Union([Type.Number(), Type.Null()]));

export const StatusAnswer = Type.Object(
  {
    version: Type.String(),
    roles: Type.Array(Type.String()),
    started_at_ms: Type.Integer(),
    ready: Type.Boolean(),
    samples: Type.Array(SampleRow, { description: "One every ten seconds of the last hour, oldest first" }),
    checks: Type.Array(Type.Object({ name: Type.String(), ok: Type.Boolean() })),
    facts: Type.Array(Type.Object({ name: Type.String(), value: Type.String() })),
    warnings: Type.Array(Type.Object({ atMs: Type.Integer(), level: Type.String(), message: Type.String() })),
  },
  {
    examples: [
      {
        version: "0.1.0",
        roles: ["cache"],
        started_at_ms: 1_763_000_000_000,
        ready: true,
        samples: [],
        checks: [{ name: "store main", ok: true }],
        facts: [],
        warnings: [],
      },
    ],
  },
);

// --------------------------------------------------------------------------------------------------------- operations

// Only the Unix sockets of an admin listener accept these bodies; they are no part of the interface for clients.

export const blocksMax = 10_000;
const blockReasonMax = 200;
const subjectMax = 160;

export const ReloadRequest = Type.Object({}, { examples: [{}] });

export const LeaveRequest = Type.Object(
  {
    now: Type.Boolean({ description: "false: answers end their connections; true: the process ends" }),
    pid: Type.Integer({ minimum: 1, description: "The process that takes over" }),
  },
  { examples: [{ now: false, pid: 4711 }] },
);

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
