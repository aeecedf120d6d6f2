/**
 * Shapes of the answers that every node gives about itself: health, readiness, limits, refusals. Each
 * carries its example, and `/openapi.json` is made of them.
 * Source: decisions sections 9 and 10 ("Reads").
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

export const ProblemEntrySchema = Type.Object(
  { code: Type.String(), status: Type.Integer(), title: Type.String() },
  { examples: [{ code: "not_found", status: 404, title: "No such resource" }] },
);
export type ProblemEntry = Static<typeof ProblemEntrySchema>;

export const ProblemList = Type.Object(
  { problems: Type.Array(ProblemEntrySchema) },
  { examples: [{ problems: [{ code: "not_found", status: 404, title: "No such resource" }] }] },
);
