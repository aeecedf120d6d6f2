/**
 * The Directory's routes as typed functions: reads, preparation, and the submission of bodies that were
 * signed elsewhere (`change.ts`). Answers are checked (`answers.ts`).
 * Source: interface "Directory", rules sections 4 and 10.
 */
import {
  acceptedShape,
  aliasShape,
  limitsShape,
  noncesShape,
  personaPolicyShape,
  preparedShape,
  recipientPolicyShape,
  registeredShape,
  registrationStatusShape,
  resolutionShape,
  resolvedShape,
  submissionShape,
} from "./answers.ts";
import { ask, type Endpoint, type Exchange, jsonBody, path, readAnswer } from "./http.ts";
import { exchangeWithWork } from "./work.ts";

/** A request that changes something, ready to send: its body keeps its bytes, because a proof covers them. */
export type Submission = Required<Pick<Exchange, "method" | "path" | "body">> & Pick<Exchange, "headers">;

const get = (where: string): Exchange => ({ method: "GET", path: where });
const post = (where: string, body: unknown): Exchange => ({ method: "POST", path: where, body: jsonBody(body) });

export type DirectoryClient = ReturnType<typeof directoryClient>;

export function directoryClient(to: Endpoint) {
  return {
    endpoint: to,
    registrationStatus: (did: string) => ask(to, get(path`/registration-status/${did}`), registrationStatusShape),
    nonces: (did: string) => ask(to, get(path`/dids/${did}/nonces`), noncesShape),
    /** `did_not_found` when the ledger has no such record. */
    resolve: (did: string) => ask(to, get(path`/resolve/${did}`), resolvedShape),
    alias: (alias: string) => ask(to, get(path`/aliases/${alias}`), aliasShape),
    submission: (txHash: string) => ask(to, get(path`/submissions/${txHash}`), submissionShape),
    /** Who to seal to and what is taken, in one answer; a node without the route answers `not_found`. */
    deliveryResolution: (target: string, tag: string | null) =>
      ask(
        to,
        get(`${path`/delivery-resolution/${target}`}${tag === null ? "" : `?tag=${encodeURIComponent(tag)}`}`),
        resolutionShape,
      ),
    /** `policy_not_found` when there is none. */
    recipientPolicy: (did: string) => ask(to, get(path`/delivery-policies/recipients/${did}`), recipientPolicyShape),
    personaPolicy: (did: string) => ask(to, get(path`/delivery-policies/personas/${did}`), personaPolicyShape),
    limits: () => ask(to, get("/limits"), limitsShape),
    prepareRegistration: (body: unknown) => ask(to, post("/register-did/prepare", body), preparedShape),
    prepare: (did: string, body: unknown) => ask(to, post(path`/dids/${did}/prepare`, body), preparedShape),
    /** Does the work that a node asks of whoever registers many DIDs. */
    register: async (body: unknown) =>
      readAnswer(to, await exchangeWithWork(to, post("/register-did", body)), registeredShape),
    replaceDocument: (submission: Submission) => ask(to, submission, acceptedShape),
    /** Component, root-key and control updates. */
    update: (submission: Submission) => ask(to, submission, acceptedShape),
    updateAlias: (submission: Submission) => ask(to, submission, acceptedShape),
    /** Primary alias, policy links and policies. */
    submitExtrinsic: (submission: Submission) => ask(to, submission, acceptedShape),
  };
}
