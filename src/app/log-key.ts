/**
 * The key of a log belongs to its ledger: a node that signed the same log under another key
 * would look to clients and witnesses like an attacker. So the store remembers the key that
 * signs, and the genesis hash of a ledger that began with a log names its first one.
 * Another key is refused unless its name says that the log begins anew.
 * Source: docs/trust.md "Log", D471.
 */
import { decodeUtf8, equalBytes, utf8 } from "../core/codec/bytes.ts";
import { firstName, genesisOfLog, isLaterName, nextName } from "../core/trust/log.ts";
import { type NoteKey, noteKey, parseVerifierKey, renderVerifierKey } from "../core/trust/note.ts";
import { checkpointIn, type LogKey } from "../nodes/directory/log.ts";
import { keptMs } from "../nodes/results.ts";
import type { OpenStores } from "../storage/bind.ts";
import { failed } from "./failure.ts";

/** With a slash, as everything that belongs to no mailbox. */
const recordName = "/log-key";

/** Throws a failure that says what to do. */
export async function checkLog(
  stores: OpenStores,
  logKey: LogKey | null,
  now: () => number,
): Promise<void> {
  if (logKey === null) return;
  await checkLedger(stores, logKey);
  await checkLogKey(stores, logKey.key, now);
}

/**
 * An empty ledger whose log was signed is not the one that was meant: its volume may not be
 * mounted.
 */
async function checkLedger(stores: OpenStores, logKey: LogKey): Promise<void> {
  const signed = checkpointIn(await logKey.readSigned(), logKey.key);
  if (signed === null || signed === "unreadable" || signed.origin !== logKey.key.name) return;
  const { finalized } = await stores.capability("directory.ledger", "ledger").head();
  const size = (await stores.capability("directory.ledger", "logs").head(""))?.size ?? 0;
  if (finalized.number > 0n || size >= signed.size) return;
  throw failed(
    `the ledger is empty, but its log was signed with ${signed.size} entries: is the volume of the store mounted? ` +
      "Restore a backup, or begin the log anew: waypost key restart-log",
  );
}

async function checkLogKey(stores: OpenStores, key: NoteKey, now: () => number): Promise<void> {
  const receipts = stores.capability("directory.store", "receipts");
  const record = utf8(renderVerifierKey(key));
  const untilMs = now() + keptMs;
  const kept = await receipts.putIfAbsent(recordName, record, untilMs, now());
  const before = kept === null ? null : parseVerifierKey(decodeUtf8(kept) ?? "");
  const isKnown = before === null ? await isOfGenesis(stores, key) : isSameKey(before, key);
  const beginsAnew = isLaterName(key.name, before?.name ?? firstName(key.name));
  if (!isKnown && !beginsAnew) {
    if (kept === null) await receipts.remove(recordName);
    throw signedByAnother(before, key);
  }
  if (kept === null || equalBytes(kept, record)) return;
  await receipts.put(recordName, record, untilMs);
}

function isSameKey(before: NoteKey, key: NoteKey): boolean {
  if (firstName(before.name) !== firstName(key.name)) return false;
  return equalBytes(before.publicKey, key.publicKey);
}

function signedByAnother(before: NoteKey | null, key: NoteKey): Error {
  const signer = before === null ? "the key that its genesis names" : renderVerifierKey(before);
  const next = nextName(before?.name ?? key.name);
  return failed(
    `directory.log_key_file: the log of this ledger is signed by another key, ${signer}: ` +
      "restore that file and its .head from a backup. If it is lost for good, " +
      `the log begins anew under another name: waypost key new --log ${next} <file> ` +
      '(docs/run.md, "A lost or stolen key of the log")',
  );
}

/** Whether the ledger's name covers this key; a ledger that began without a log names none. */
async function isOfGenesis(stores: OpenStores, key: NoteKey): Promise<boolean> {
  const seed = await stores.capability("directory.ledger", "logs").genesisSeed();
  const proofs = await stores.capability("directory.ledger", "ledger").proofs();
  const first = noteKey(firstName(key.name), "log", key.publicKey);
  if (seed === null || proofs === null || first === null) return true;
  return equalBytes(genesisOfLog(first, seed), proofs.genesisHash);
}
