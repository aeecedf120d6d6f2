/**
 * `GET /dids/{did}/proof`: what proves the keys of a self-certifying DID, as the ledger keeps it.
 * The reader needs to trust no one's word, so the bytes are served as they are.
 * Source: docs/trust.md "Key proofs".
 */
import { fault, isFault } from "../../core/fault.ts";
import type { Route } from "../http/route.ts";
import { foreignDid, readsHome } from "../parties/foreign.ts";
import { isKnownProof, parseKnown, readKeyProof } from "../parties/proof.ts";
import { type DirectoryParts, directoryRoute, ofDid, pathCodes } from "./parts.ts";

export function keyProofRoute(parts: DirectoryParts): Route {
  const { ledger } = parts;
  return readsHome(
    directoryRoute({
      method: "GET",
      path: "/dids/:did/proof",
      id: "keyProof",
      summary: "The signed calls that prove the keys of a self-certifying DID",
      query: ["known"],
      answer: [
        200,
        "The proof (docs/trust.md); nothing when it is the one that `known` names by its SHA-256 in hex.",
        "application/octet-stream",
      ],
      codes: [...pathCodes, "invalid_request", "did_not_found", "did_deactivated", "not_found"],
      handle: ofDid(async (did, call) => {
        const known = parseKnown(call, "known");
        if (isFault(known)) return known;
        const { record } = await ledger.account(did);
        const foreign = record === null ? await foreignDid(parts, did, call) : null;
        if (isFault(foreign)) return foreign;
        if (record?.deactivated || foreign?.deactivated)
          return fault("did_deactivated", "the DID is deactivated");
        const bytes = foreign?.bytes ?? (await readKeyProof(ledger, did));
        if (bytes === null) return fault("not_found", "nothing proves the keys of this DID here");
        const content = isKnownProof(bytes, known ?? "") ? new Uint8Array(0) : bytes;
        return { status: 200, body: { contentType: "application/octet-stream", content } };
      }),
    }),
  );
}
