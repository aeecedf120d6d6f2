/**
 * The Directory's routes as typed functions: reads, and the submission of bodies that `change.ts`
 * signs. Also what the routes imply: the proofs that a Directory accepts, and the wait for
 * settlement, because a `202` is not final. Answers are checked (`answers.ts`).
 * Source: interface "Directory" and "States and transitions", rules section 4,
 * docs/ledger.md 1.8.
 */
import { decodeHex, encodeHex } from "../../core/codec/bytes.ts";
import { minuteMs } from "../../core/codec/time.ts";
import type { ProofBinding } from "../../core/ledger/document-codec.ts";
import { keyProofBytesMax } from "../../core/ledger/key-proof.ts";
import { attempt, ClientError, isTemporary, localError, orNull } from "../base/failure.ts";
import {
  acceptedShape,
  aliasShape,
  deviceInvitationShape,
  limitsShape,
  noncesShape,
  type RegistrationStatus,
  recipientPolicyShape,
  registeredShape,
  registrationStatusShape,
  resolutionShape,
  resolvedShape,
  submissionShape,
} from "./answers.ts";
import {
  askBytes,
  type Endpoint,
  fetchChecked,
  jsonBody,
  type NodeRequest,
  path,
  queryOf,
} from "./http.ts";

/**
 * A request that changes something, ready to send: its body keeps its bytes,
 * because a proof covers them.
 */
export type SubmissionRequest = Required<Pick<NodeRequest, "method" | "path" | "body">> &
  Pick<NodeRequest, "headers">;

const get = (where: string): NodeRequest => ({ method: "GET", path: where });

export type DirectoryClient = ReturnType<typeof directoryClient>;

export function directoryClient(to: Endpoint) {
  return {
    endpoint: to,
    registrationStatus: (did: string) =>
      fetchChecked(to, get(path`/registration-status/${did}`), registrationStatusShape),
    nonces: (did: string) => fetchChecked(to, get(path`/dids/${did}/nonces`), noncesShape),
    /** `did_not_found` when the ledger has no such record. */
    resolve: (did: string) => fetchChecked(to, get(path`/resolve/${did}`), resolvedShape),
    /** `home`: the Directory elsewhere where the alias is. */
    alias: (alias: string, home: string | null = null) =>
      fetchChecked(to, get(`${path`/aliases/${alias}`}${queryOf({ home })}`), aliasShape),
    submission: (txHash: string) =>
      fetchChecked(to, get(path`/submissions/${txHash}`), submissionShape),
    /**
     * The key to seal to and the accepted sizes, in one answer; a node without the route answers
     * `not_found`. With `proof`, the hash of a known key proof or "", the answer has the key proof
     * unless it is that one; with `keys` likewise the key bundle.
     */
    deliveryResolution: (
      target: string,
      asked: Readonly<Record<"tag" | "proof" | "keys" | "home", string | null>>,
    ) =>
      fetchChecked(
        to,
        get(`${path`/delivery-resolution/${target}`}${queryOf(asked)}`),
        resolutionShape,
      ),
    /**
     * What proves the keys of a self-certifying DID; empty when it is the `known` one,
     * `not_found` for other DIDs.
     */
    keyProof: (did: string, known: string, home: string | null = null) =>
      askBytes(to, get(`${path`/dids/${did}/proof`}${queryOf({ known, home })}`), keyProofBytesMax),
    /** `policy_not_found` when there is none. */
    recipientPolicy: (did: string) =>
      fetchChecked(to, get(path`/delivery-policies/recipients/${did}`), recipientPolicyShape),
    limits: () => fetchChecked(to, get("/limits"), limitsShape),
    /** A code for a device of the DID that the request names and proves. */
    inviteDevice: (request: SubmissionRequest) => fetchChecked(to, request, deviceInvitationShape),
    /** `invitation`: a code or its link. */
    register: (body: unknown, invitation: string | null = null) => {
      const headers: Record<string, string> =
        invitation === null ? {} : { "Svc-Invitation": codeOfLink(invitation) };
      return fetchChecked(
        to,
        { method: "POST", path: "/register-did", headers, body: jsonBody(body) },
        registeredShape,
      );
    },
    /** Any signed change, on the route that the submission names. */
    submit: (submission: SubmissionRequest) => fetchChecked(to, submission, acceptedShape),
  };
}

const codeOfLink = (text: string): string => text.trim().replace(/^.*#(?:invite|link)=/, "");

/** How long a signed change may be submitted: the short window that the interface asks for. */
export const authorizationLifeMs = 5 * minuteMs;

type DirectoryQuery = {
  readonly directory: DirectoryClient;
  readonly known: { ledger: string | null };
};

/**
 * What a proof of version 3 binds at a Directory; `null` for what the Directory does
 * not accept in version 3.
 */
type Proving = {
  readonly registration: ProofBinding | null;
  readonly genesisHash: Uint8Array | null;
  /** Whether the ledger holds self-certifying DIDs to their rules (docs/trust.md). */
  readonly selfCertifying: boolean;
};

/**
 * Reads which proofs the Directory accepts. One whose limits do not mention version 3 gets the
 * versions that every Directory accepts. The first ledger that a Directory names is pinned: throws
 * `other_ledger` when a later answer names another one or none, because a signature could
 * otherwise be used on that ledger.
 */
export async function provingAt({ directory, known }: DirectoryQuery): Promise<Proving> {
  const limits = await orNull(directory.limits(), "not_found");
  const genesisHash = decodeHash(limits?.genesis_hash);
  const submitter = decodeHash(limits?.operator_account);
  const registers = limits?.registration_proofs?.includes("v3") === true;
  const authorizes = limits?.authorization_proofs?.includes("v3") === true;
  const ledger = authorizes && genesisHash !== null ? encodeHex(genesisHash) : null;
  if (known.ledger !== null && ledger !== known.ledger) throw otherLedger(known.ledger, ledger);
  known.ledger = ledger;
  return {
    registration:
      registers && genesisHash !== null && submitter !== null ? { genesisHash, submitter } : null,
    genesisHash: authorizes ? genesisHash : null,
    selfCertifying: authorizes && registers && limits?.self_certifying_dids === true,
  };
}

/**
 * For people who meet it: a node that begins with an empty folder of data has a ledger of its own.
 * Hashes in hex; `null` for a Directory that names none.
 */
export function otherLedger(own: string, theirs: string | null): ClientError {
  const here = theirs === null ? "none is named here" : `here it is ${theirs.slice(0, 12)}…`;
  return localError(
    "other_ledger",
    `this identity was made on another ledger: at another node, or at this one before it began with an empty folder of data; open it where it was made, or make another one under another name (its ledger is ${own.slice(0, 12)}…, ${here})`,
  );
}

function decodeHash(text = ""): Uint8Array | null {
  return /^0x[0-9a-f]{64}$/.test(text) ? decodeHex(text.slice(2)) : null;
}

export type Waiting = {
  readonly timeoutMs: number;
  /** Between two reads. */
  readonly intervalMs: number;
  /** Called after each read that did not end the wait. */
  readonly onProgress?: (elapsedMs: number, state: string) => void;
};

export const waitingDefault: Waiting = { timeoutMs: 120_000, intervalMs: 250 };

/**
 * Waits for `confirmed`, or after a deletion for `missing`. What the ledger refused ends
 * the wait with its reason.
 */
export function settleRegistration(
  { directory }: Pick<DirectoryQuery, "directory">,
  { did, tx_id: txHash }: { readonly did: string; readonly tx_id: string },
  waiting: Waiting = waitingDefault,
  wanted: RegistrationStatus["registration_status"] = "confirmed",
): Promise<void> {
  const isWanted = async () =>
    (await directory.registrationStatus(did)).registration_status === wanted;
  return settle({ directory }, { txHash, isInForce: isWanted }, waiting);
}

type Expected = {
  readonly txHash: string;
  /**
   * Whether what the change leads to is there; `null` when the node knows no
   * state of the submission.
   */
  readonly isInForce: (state: string | null) => Promise<boolean>;
};

/** Waits until a change is in force. Throws the ledger's refusal of it. */
export async function settle(
  { directory }: Pick<DirectoryQuery, "directory">,
  { txHash, isInForce }: Expected,
  waiting: Waiting,
): Promise<void> {
  const readUnsettled = async (): Promise<string | null> => {
    const state = await stateOf(directory, txHash);
    return state !== "pending" && (await isInForce(state)) ? null : (state ?? "pending");
  };
  const begunMs = performance.now();
  for (;;) {
    const seen = await attempt(readUnsettled);
    if (seen instanceof ClientError && !isTemporary(seen)) throw seen;
    if (seen === null) return;
    const state = seen instanceof ClientError ? seen.code : seen;
    const elapsedMs = performance.now() - begunMs;
    if (elapsedMs + waiting.intervalMs > waiting.timeoutMs) {
      const waitedS = waiting.timeoutMs / 1_000;
      throw new ClientError(
        "timed_out",
        "timed_out",
        `not settled after ${waitedS} s, last seen: ${state}`,
      );
    }
    waiting.onProgress?.(elapsedMs, state);
    await new Promise((resolve) => setTimeout(resolve, waiting.intervalMs));
  }
}

/**
 * The state of a submission, `null` when the node no longer knows it. Throws the ledger's refusal.
 */
async function stateOf(directory: DirectoryClient, txHash: string): Promise<string | null> {
  const submission = await orNull(directory.submission(txHash), "not_found");
  if (submission === null) return null;
  if (submission.state !== "failed" && submission.state !== "dropped") return submission.state;
  const { code, message } = submission.reason ?? {
    code: "dropped",
    message: "the ledger dropped the submission",
  };
  throw new ClientError("refused", code, message, { answer: submission });
}
