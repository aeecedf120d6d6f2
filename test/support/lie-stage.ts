/**
 * Where lies are told: an honest Directory with a log and a witness, a proxy before it, and what a
 * liar can have.
 */
import { change, replaceDocument } from "../../src/client/identity/change.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { decodeKeyProof, type KeyProof } from "../../src/core/ledger/key-proof.ts";
import { decodeLogEntry } from "../../src/core/trust/log.ts";
import { readMapProof } from "../../src/core/trust/map.ts";
import { parseNote, type SignedNote } from "../../src/core/trust/note.ts";
import { seedOf } from "./forged-proofs.ts";
import { keyOf } from "./identity.ts";
import { type LogPair, startLogPair } from "./log-nodes.ts";
import { keyFiles, type TestKey, vkeyOf } from "./logs.ts";
import { type LyingDirectory, lyingDirectory } from "./lying-directory.ts";
import { startTestNodes, type TestNodes } from "./nodes.ts";

/** Who is lied to. Each answer is a level of trust, or the code of what was noticed. */
export type Victim = {
  readonly did: string;
  readonly send: (to: string, trust?: "logged" | "proven") => Promise<string>;
  /** Looks the recipient up without sending. */
  readonly look: (did: string) => Promise<string>;
  /**
   * The next message that waits: what shows its sender's keys, or why the Directory is not believed
   * about them.
   */
  readonly receive: () => Promise<string>;
};

export type LieStage = {
  /** A Directory with a log and a witness; all honest. */
  readonly made: LogPair;
  /** Another provider, with a ledger of its own. */
  readonly elsewhere: TestNodes;
  /** A witness of this policy must have seen the log. */
  readonly policy: string;
  readonly proxied: () => LyingDirectory;
  readonly stop: () => Promise<void>;
};

export async function startLieStage(name: string): Promise<LieStage> {
  const files = keyFiles();
  const [made, elsewhere] = await Promise.all([startLogPair(name, files.fileOf), startTestNodes()]);
  const proxies: LyingDirectory[] = [];
  return {
    made,
    elsewhere,
    policy: policyOf(made.cosigner),
    proxied: () => {
      const proxy = lyingDirectory(made.nodes.url);
      proxies.push(proxy);
      return proxy;
    },
    stop: async () => {
      await Promise.all([...proxies, made.nodes, made.witness, elsewhere].map((one) => one.stop()));
      files.remove();
    },
  };
}

export const policyOf = (witness: TestKey, logs: readonly TestKey[] = []): string =>
  `${logs.map((log) => `log ${vkeyOf(log)}\n`).join("")}witness w ${vkeyOf(witness)}\nquorum w\n`;

export const waiting = { timeoutMs: 60_000, intervalMs: 20 };

export const openHonest = (url: string, options: Partial<WaypostOptions> = {}): Promise<Waypost> =>
  Waypost.open({ url, keys: memoryKeys(), waiting, rotateMs: false, ...options });

export async function proofBytes(url: string, did: string): Promise<Uint8Array> {
  return (await fetch(`${url}/dids/${encodeURIComponent(did)}/proof`)).bytes();
}

export async function parsedProof(url: string, did: string): Promise<KeyProof> {
  const proof = decodeKeyProof(await proofBytes(url, did));
  if (proof === null) throw new Error("no proof");
  return proof;
}

/**
 * Rotates the root key of an identity, and signs its document anew unless the test says otherwise.
 */
export async function rotateRoot(
  me: Waypost,
  label: string,
  { document = true } = {},
): Promise<void> {
  const signer = { keyId: "root", seed: me.identity.rootSeed };
  const intent = {
    action: "UpdateRootPubkey",
    did: me.did,
    newRootPubkey: keyOf(label).publicKey,
  } as const;
  await change(me.client, intent, { signer, waiting });
  const rootSeed = seedOf(label);
  if (document)
    await replaceDocument(me.client, me.did, { rootSeed, edited: (one) => one, waiting });
}

export const noteOf = (text: string): SignedNote => {
  const note = parseNote(text);
  if (note === null) throw new Error("no note");
  return note;
};

export async function untilLogged(
  url: string,
  key: Uint8Array,
  holds: (value: Uint8Array | null) => boolean,
): Promise<void> {
  for (const end = Date.now() + 60_000; Date.now() < end; await Bun.sleep(50)) {
    const entry = decodeLogEntry(await (await fetch(`${url}/log/entry/${key.toHex()}`)).bytes());
    const shown = entry === null ? null : readMapProof(entry, key);
    if (shown !== null && holds(shown.value)) return;
  }
  throw new Error("the change was not logged");
}
