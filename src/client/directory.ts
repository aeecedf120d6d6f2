/**
 * The Directory's routes as typed functions: reads, preparation, and the submission of bodies that were
 * signed elsewhere (`change.ts`). Answers are checked against the same shapes that document them.
 * Source: interface "Directory", decisions sections 4 and 10.
 */
import type { Fault } from "../core/fault.ts";
import {
  aliasAnswer,
  aliasUpdateAnswer,
  deliveryPolicyAnswer,
  extrinsicAnswer,
  noncesAnswer,
  personaPolicyAnswer,
  preparedAnswer,
  registeredAnswer,
  registrationStatusAnswer,
  replaceDocumentAnswer,
  resolvedAnswer,
  submissionAnswer,
  updateAnswer,
} from "../core/schema/directory.ts";
import { compileShape, limitsShape } from "../core/schema/schema.ts";
import { ask, type Endpoint, type Exchange, jsonBody, path } from "./http.ts";

const checks = {
  status: compileShape(registrationStatusAnswer),
  nonces: compileShape(noncesAnswer),
  resolved: compileShape(resolvedAnswer),
  alias: compileShape(aliasAnswer),
  submission: compileShape(submissionAnswer),
  policy: compileShape(deliveryPolicyAnswer),
  personaPolicy: compileShape(personaPolicyAnswer),
  registered: compileShape(registeredAnswer),
  prepared: compileShape(preparedAnswer),
  update: compileShape(updateAnswer),
  aliasUpdate: compileShape(aliasUpdateAnswer),
  extrinsic: compileShape(extrinsicAnswer),
  replaced: compileShape(replaceDocumentAnswer),
  limits: compileShape(limitsShape),
};

type Checked<N extends keyof typeof checks> = Exclude<ReturnType<(typeof checks)[N]>, Fault>;

export type RegistrationStatus = Checked<"status">;
export type Nonces = Checked<"nonces">;
export type Resolved = Checked<"resolved">;
export type SubmissionStatus = Checked<"submission">;
export type RecipientPolicy = Checked<"policy">;
export type Registered = Checked<"registered">;
export type Prepared = Checked<"prepared">;
export type NodeLimits = Checked<"limits">;
/** Any accepted change: `tx_hash` leads to `GET /submissions`. */
export type Accepted = Checked<"update"> | Checked<"aliasUpdate"> | Checked<"extrinsic"> | Checked<"replaced">;

/** A request that changes something, ready to send: its body keeps its bytes, because a proof covers them. */
export type Submission = Required<Pick<Exchange, "method" | "path" | "body">> & Pick<Exchange, "headers">;

const get = (where: string): Exchange => ({ method: "GET", path: where });
const post = (where: string, body: unknown): Exchange => ({ method: "POST", path: where, body: jsonBody(body) });

export type DirectoryClient = ReturnType<typeof directoryClient>;

export function directoryClient(to: Endpoint) {
  return {
    endpoint: to,
    registrationStatus: (did: string) => ask(to, get(path`/registration-status/${did}`), checks.status),
    nonces: (did: string) => ask(to, get(path`/dids/${did}/nonces`), checks.nonces),
    /** `did_not_found` when the ledger has no such record. */
    resolve: (did: string) => ask(to, get(path`/resolve/${did}`), checks.resolved),
    alias: (alias: string) => ask(to, get(path`/aliases/${alias}`), checks.alias),
    submission: (txHash: string) => ask(to, get(path`/submissions/${txHash}`), checks.submission),
    /** `policy_not_found` when there is none. */
    recipientPolicy: (did: string) => ask(to, get(path`/delivery-policies/recipients/${did}`), checks.policy),
    personaPolicy: (did: string) => ask(to, get(path`/delivery-policies/personas/${did}`), checks.personaPolicy),
    limits: () => ask(to, get("/limits"), checks.limits),
    prepareRegistration: (body: unknown) => ask(to, post("/register-did/prepare", body), checks.prepared),
    prepare: (did: string, body: unknown) => ask(to, post(path`/dids/${did}/prepare`, body), checks.prepared),
    register: (body: unknown) => ask(to, post("/register-did", body), checks.registered),
    replaceDocument: (submission: Submission) => ask(to, submission, checks.replaced),
    /** Component, root-key and control updates. */
    update: (submission: Submission) => ask(to, submission, checks.update),
    updateAlias: (submission: Submission) => ask(to, submission, checks.aliasUpdate),
    /** Primary alias, policy links and policies. */
    submitExtrinsic: (submission: Submission) => ask(to, submission, checks.extrinsic),
  };
}
