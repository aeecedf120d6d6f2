/**
 * The Directory's routes as typed functions: reads, preparation, and the submission of bodies that were signed elsewhere
 * (`change.ts`). Also the proof of work that a Directory requires, and the proofs that it accepts. Answers are checked
 * (`answers.ts`).
 * Source: interface "Directory", rules sections 4 and 10, docs/ledger.md 1.8.
 */
import { decodeHex, encodeHex } from "../core/codec/bytes.ts";
import { minuteMs } from "../core/codec/time.ts";
import type { ProofBinding } from "../core/ledger/document-codec.ts";
import { searchWork, workBitsMax } from "../core/message/proof.ts";
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
import {
  ask,
  type Endpoint,
  type Exchange,
  exchange,
  jsonBody,
  localError,
  orNull,
  path,
  type Received,
  readAnswer,
} from "./http.ts";

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
    /** The key to seal to and the accepted sizes, in one answer; a node without the route answers `not_found`. */
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
    /** Does the proof of work that a node asks for when one network registers many DIDs. */
    register: async (body: unknown) =>
      readAnswer(to, await exchangeWithWork(to, post("/register-did", body)), registeredShape),
    /** Any signed change, on the route that the submission names. */
    submit: (submission: Submission) => ask(to, submission, acceptedShape),
  };
}

// ------------------------------------------------------------------------------------------------------ proof of work

/** Tries between two turns of the event loop: about 10 ms. */
const sliceTries = 4_096;

/**
 * Sends a request, and sends it again with the proof of work that a 429 asks for (D152). The search runs in slices, so
 * that a page stays responsive.
 */
async function exchangeWithWork(to: Endpoint, request: Exchange): Promise<Received> {
  const received = await exchange(to, request);
  const { workBits } = received;
  if (received.status !== 429 || workBits === null || workBits > workBitsMax) return received;
  const nonce = await solveWork(request.body ?? new Uint8Array(0), workBits);
  return exchange(to, { ...request, headers: { ...request.headers, "Svc-Work": nonce } });
}

async function solveWork(body: Uint8Array, bits: number): Promise<string> {
  for (let first = 0; ; first += sliceTries) {
    const nonce = searchWork(body, bits, { first, count: sliceTries });
    if (nonce !== null) return nonce;
    await new Promise((resolve) => setTimeout(resolve));
  }
}

// --------------------------------------------------------------------------------------------- accepted proofs

/** How long a signed change may be submitted: the short window that the interface asks for. */
export const authorizationLifeMs = 5 * minuteMs;

/** What a proof of version 3 binds at a Directory; `null` for what the Directory does not accept in version 3. */
type Proving = { readonly registration: ProofBinding | null; readonly genesisHash: Uint8Array | null };

/**
 * Reads which proofs the Directory accepts. One whose limits do not mention version 3 gets the versions that every
 * Directory accepts. The first ledger that a Directory names is pinned: throws `other_ledger` when a later answer names
 * another one or none, because a signature could otherwise be used on that ledger.
 */
export async function provingAt({
  directory,
  learnt,
}: {
  readonly directory: DirectoryClient;
  readonly learnt: { ledger: string | null };
}): Promise<Proving> {
  const limits = await orNull(directory.limits(), "not_found");
  const genesisHash = decodeHash(limits?.genesis_hash);
  const submitter = decodeHash(limits?.operator_account);
  const registers = limits?.registration_proofs?.includes("v3") === true;
  const authorizes = limits?.authorization_proofs?.includes("v3") === true;
  const ledger = authorizes && genesisHash !== null ? encodeHex(genesisHash) : null;
  if (learnt.ledger !== null && ledger !== learnt.ledger)
    throw localError(
      "other_ledger",
      `the identity belongs to the ledger ${learnt.ledger}, and this Directory signs for ${ledger ?? "none that it names"}`,
    );
  learnt.ledger = ledger;
  return {
    registration: registers && genesisHash !== null && submitter !== null ? { genesisHash, submitter } : null,
    genesisHash: authorizes ? genesisHash : null,
  };
}

function decodeHash(text = ""): Uint8Array | null {
  return /^0x[0-9a-f]{64}$/.test(text) ? decodeHex(text.slice(2)) : null;
}
