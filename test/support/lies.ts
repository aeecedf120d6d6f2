/**
 * The lies of docs/trust.md as one table, told to the SDK, to the packed SDK and to the commands: a
 * Directory that holds its log's key, some keys that were stolen from the recipient, and a ledger
 * of its own. Each row has the code with which the look-up of the recipient ends.
 */
import { expect } from "bun:test";
import { change, replaceDocument } from "../../src/client/identity/change.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { renderIdentity } from "../../src/client/keys/keys.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { decodeKeyProof, encodeKeyProof, type KeyProof } from "../../src/core/ledger/key-proof.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import {
  decodeLogEntry,
  encodeLogEntry,
  encodeOldHead,
  keyOfAlias,
  keyOfDid,
  type LogEntry,
  valueOfAlias,
  valueOfProof,
} from "../../src/core/trust/log.ts";
import { type Checkpoint, cosign, parseCheckpoint, renderNote } from "../../src/core/trust/note.ts";
import { forgeDocument, seedOf } from "./forged-proofs.ts";
import { keyOf, keyPair } from "./identity.ts";
import {
  type LieStage,
  noteOf,
  openHonest,
  parsedProof,
  proofBytes,
  rotateRoot,
  untilLogged,
  type Victim,
  waiting,
} from "./lie-stage.ts";
import { type TestKey, TestLog, testKey } from "./logs.ts";
import type { Lie, LyingDirectory } from "./lying-directory.ts";

type Scene = {
  readonly stage: LieStage;
  readonly bob: Waypost;
  readonly eve: Waypost;
  readonly alias: string;
  /** The victim looks Bob up while the Directory is honest, by his alias or by his DID. */
  readonly seen: (to?: string) => Promise<void>;
};

/**
 * `to`: whom the victim writes to, if not Bob's DID. `after`: the code with which the truth is
 * refused then.
 */
type Told = Lie & { readonly to?: string; readonly after?: string };

export type LieRow = {
  readonly name: string;
  readonly code: string;
  /** The victim has a policy, and may demand logged keys. */
  readonly policy?: "given" | "demanded";
  /** Where logged keys are not demanded, the lie lowers the level. */
  readonly lowers?: true;
  /** What the lie says of Bob as a sender and to a look-up is judged as well. */
  readonly ofBob?: true;
  readonly prepare: (scene: Scene) => Promise<Told>;
};

// --------------------------------------------------------------------------------- what a liar has

const byRoot = (me: Waypost, intent: Intent) =>
  change(me.client, intent, { signer: { keyId: "root", seed: me.identity.rootSeed }, waiting });

/** A thief of a first key registers it on a ledger of his own. */
async function registeredElsewhere({ stage: { elsewhere }, bob }: Scene): Promise<Uint8Array> {
  const { keys, did } = await keysUnder(bob, elsewhere.url);
  const thief = await openHonest(elsewhere.url, { keys });
  if (thief.did !== did) throw new Error("the thief has another DID");
  return proofBytes(elsewhere.url, did);
}

async function keysUnder(me: Waypost, url: string) {
  const { genesisHash } = await parsedProof(url, (await openHonest(url)).did);
  const did = deriveDid(genesisHash, keyPair(me.identity.rootSeed).publicKey);
  const keys = memoryKeys();
  await keys.replace(
    "default",
    null,
    renderIdentity({ ...me.identity, ledger: null }).replaceAll(me.did, did),
  );
  return { keys, did };
}

const only =
  (did: string, bytes: Uint8Array | "none"): NonNullable<Lie["proof"]> =>
  (asked) =>
    asked === did ? bytes : null;

/** A row about Bob's proof as another one. */
const proofRow = (
  name: string,
  code: string,
  forge: (scene: Scene) => Promise<Uint8Array | "none">,
): LieRow => ({
  name,
  code,
  ofBob: true,
  prepare: async (scene) => ({ proof: only(scene.bob.did, await forge(scene)) }),
});

const urlOf = ({ stage }: Scene) => stage.made.nodes.url;
const presentOf = (scene: Scene) => parsedProof(urlOf(scene), scene.bob.did);

// -------------------------------------------------------------------------------- at first contact

const services = (did: Did, names: readonly string[]) =>
  names.map((name) => ({
    id: `${did}#${name}`,
    type: "SvcInboxService",
    serviceEndpoint: ["https://inbox.example"],
    authorization: null,
    priority: null,
  }));

const firstContact: readonly LieRow[] = [
  proofRow("no proof", "proof_missing", async () => "none"),
  proofRow("garbage", "proof_invalid", async () => Uint8Array.of(1, 2, 3)),
  proofRow("another DID's proof", "proof_invalid", (scene) =>
    proofBytes(urlOf(scene), scene.eve.did),
  ),
  proofRow("the same first key on the thief's ledger", "proof_invalid", registeredElsewhere),
  proofRow("the proof under another ledger's name", "proof_invalid", async (scene) => {
    const { genesisHash } = decodeKeyProof(await registeredElsewhere(scene)) as KeyProof;
    return encodeKeyProof({ ...(await presentOf(scene)), genesisHash });
  }),
  proofRow("a hidden rotation in the middle", "proof_invalid", async (scene) => {
    await rotateRoot(scene.bob, `${scene.bob.did} second`);
    return encodeKeyProof({ ...(await presentOf(scene)), rotations: [] });
  }),
  proofRow("a gap in the component calls", "proof_invalid", async (scene) => {
    for (const service of services(scene.bob.did, ["one", "two"]))
      await byRoot(scene.bob, { action: "AddService", did: scene.bob.did, service });
    const proof = await presentOf(scene);
    expect(proof.calls.length).toBe(2);
    return encodeKeyProof({ ...proof, calls: proof.calls.slice(1) });
  }),
  proofRow("a changed byte in a signature", "proof_invalid", async (scene) => {
    const proof = await presentOf(scene);
    const { signature } = proof.registration;
    const changed = signature.with(40, (signature[40] as number) ^ 1);
    return encodeKeyProof({
      ...proof,
      registration: { ...proof.registration, signature: changed },
    });
  }),
  proofRow("a changed byte in the document", "proof_invalid", async (scene) => {
    const bytes = await proofBytes(urlOf(scene), scene.bob.did);
    return bytes.with(bytes.length - 80, (bytes.at(-80) as number) ^ 1);
  }),
  ...(["v1", "v2"] as const).map((version) =>
    proofRow(`a document that the root key signed in ${version}`, "proof_invalid", async (scene) =>
      encodeKeyProof(
        forgeDocument(await presentOf(scene), {
          seed: scene.bob.identity.rootSeed,
          nonce: 3n,
          version,
        }),
      ),
    ),
  ),
  proofRow("a document by a key that is not the root", "proof_invalid", async (scene) =>
    encodeKeyProof(forgeDocument(await presentOf(scene), { seed: seedOf("a thief"), nonce: 3n })),
  ),
  {
    name: "a key and a document that the Directory made up, beside the true proof",
    code: "proven",
    ofBob: true,
    prepare: async (scene) => {
      const { bob, eve } = scene;
      const read = async (path: string) => (await fetch(`${urlOf(scene)}${path}`)).text();
      const theirs = JSON.parse(await read(`/delivery-resolution/${eve.did}`));
      const record = JSON.parse((await read(`/resolve/${eve.did}`)).replaceAll(eve.did, bob.did));
      const { recipient_public_key_multibase } = theirs;
      return {
        json: ({ path, json }) =>
          path === `/delivery-resolution/${bob.did}`
            ? { ...json, recipient_public_key_multibase }
            : path === `/resolve/${bob.did}`
              ? record
              : null,
      };
    },
  },
];

// ------------------------------------------------------------------------------------- with memory

/**
 * The branch of anyone who has stolen the first root key, to a victim who has seen Bob rotate it
 * away.
 */
const branchRow = (
  name: string,
  code: string,
  forge: (before: KeyProof, after: KeyProof, seed: Uint8Array) => KeyProof,
) =>
  proofRow(name, code, async (scene) => {
    const { bob, seen } = scene;
    const before = await presentOf(scene);
    await rotateRoot(bob, `${bob.did} true`);
    await seen();
    return encodeKeyProof(forge(before, await presentOf(scene), bob.identity.rootSeed));
  });

const remembered: readonly LieRow[] = [
  proofRow("the registration again, after a rotation", "record_went_back", async (scene) => {
    const registered = await proofBytes(urlOf(scene), scene.bob.did);
    await rotateRoot(scene.bob, `${scene.bob.did} later`);
    await scene.seen();
    return registered;
  }),
  proofRow("a rotation without the document that followed", "record_went_back", async (scene) => {
    const [{ bob }, label] = [scene, `${scene.bob.did} later`];
    await rotateRoot(bob, label, { document: false });
    const rotated = await proofBytes(urlOf(scene), bob.did);
    await replaceDocument(bob.client, bob.did, {
      rootSeed: seedOf(label),
      edited: (one) => one,
      waiting,
    });
    await scene.seen();
    return rotated;
  }),
  branchRow("a removed key's own document", "record_went_back", (before, _after, seed) =>
    forgeDocument(before, { seed, nonce: 70n }),
  ),
  branchRow(
    "a removed key's document under the true rotation",
    "record_went_back",
    (before, after, seed) => ({
      ...forgeDocument(before, { seed, nonce: 70n }),
      rotations: after.rotations,
    }),
  ),
  branchRow("a removed key's own rotation", "identity_changed", (before, _after, seed) =>
    forgeDocument(before, { seed, nonce: 70n, next: keyOf("thief") }),
  ),
  {
    name: "an alias that names somebody else",
    code: "identity_changed",
    prepare: async ({ eve, alias, seen }) => {
      await seen(alias);
      return aliasLie(alias, eve.did);
    },
  },
];

const aliasLie = (alias: string, did: string): Told => ({
  to: alias,
  json: ({ path, json }) => (path === `/aliases/${alias}` ? { ...json, did } : null),
});

// -------------------------------------------------------------------------------------- with a log

/** The same head with other cosignatures. */
const resigned = (text: string, witnesses: readonly TestKey[], nowMs = Date.now()) => {
  const note = noteOf(text);
  const others = witnesses.map(({ key, sign }) => cosign(note.text, key, { sign, nowMs }));
  return renderNote({ ...note, signatures: [...note.signatures.slice(0, 1), ...others] });
};

type EntryLie = (key: string, honest: Uint8Array, stage: LieStage) => Uint8Array | "none" | null;

const changed =
  (edit: (entry: LogEntry, stage: LieStage) => Partial<LogEntry>): EntryLie =>
  (_, honest, stage) => {
    const entry = decodeLogEntry(honest);
    return entry === null ? null : encodeLogEntry({ ...entry, ...edit(entry, stage) });
  };

const agedHead = (ageMs: number): EntryLie =>
  changed(({ note }, { made }) => ({ note: resigned(note, [made.cosigner], Date.now() - ageMs) }));

const logRow = (name: string, code: string, lie: EntryLie): LieRow => ({
  name,
  code,
  policy: "demanded",
  lowers: true,
  prepare: async ({ stage, seen }) => {
    await seen();
    return { entry: (key, honest) => lie(key, honest, stage) };
  },
});

const stranger = testKey("stranger.example", "witness");
/** A key of another seed under the name and id of the true witness. */
const impostor = ({ made }: LieStage): TestKey => ({ ...made.cosigner, sign: stranger.sign });

const heads: readonly LieRow[] = [
  logRow("the log is withheld", "log_missing", () => "none"),
  logRow("garbage for an entry", "log_invalid", () => Uint8Array.of(1, 2, 3)),
  logRow("a stale head", "log_stale", agedHead(16 * 60_000)),
  logRow("a head of the future", "log_stale", agedHead(-10 * 60_000)),
  logRow(
    "a head without witnesses",
    "log_unwitnessed",
    changed(({ note }) => ({ note: resigned(note, []) })),
  ),
  logRow(
    "a head of another witness",
    "log_unwitnessed",
    changed(({ note }) => ({ note: resigned(note, [stranger]) })),
  ),
  logRow(
    "a head with a false witness",
    "log_invalid",
    changed(({ note }, stage) => ({ note: resigned(note, [impostor(stage)]) })),
  ),
  logRow("another log", "log_invalid", (key, _, { made }) => {
    const other = new TestLog(testKey(made.log.key.name, "log", sha256(new Uint8Array(9)))).append(
      [],
    );
    return other.entry(Uint8Array.fromHex(key), other.cosigned([made.cosigner], Date.now()));
  }),
  logRow(
    "a second map root for one head",
    "log_invalid",
    changed((_, { made }) => {
      const key = sha256(new Uint8Array(7));
      const other = new TestLog(made.log).append([{ key, value: key }]);
      return { mapRoot: other.entries.at(-1) as Uint8Array, siblings: [], leaf: null };
    }),
  ),
  logRow(
    "another map under the root",
    "log_invalid",
    changed(() => ({ siblings: [], leaf: null })),
  ),
];

/** The log of a liar who has all witnesses, with true entries of Bob. */
async function logOf({ stage: { made }, bob }: Scene, log: TestLog): Promise<TestLog> {
  return log.append([
    { key: keyOfDid(bob.did), value: valueOfProof(await proofBytes(made.nodes.url, bob.did)) },
  ]);
}

const honestEntry = async ({ stage, bob }: Scene) => {
  const path = `/log/entry/${keyOfDid(bob.did).toHex()}`;
  return decodeLogEntry(await (await fetch(`${stage.made.nodes.url}${path}`)).bytes()) as LogEntry;
};

const othersLogs: readonly LieRow[] = [
  {
    name: "a fork that all witnesses have signed",
    code: "log_forked",
    policy: "given",
    prepare: async (scene) => {
      const { made } = scene.stage;
      await scene.seen();
      const fork = await logOf(scene, new TestLog(made.log));
      // As long as the true log at least: else it would only be behind.
      const { genesisSeed, note } = await honestEntry(scene);
      const { size } = parseCheckpoint(noteOf(note).text) as Checkpoint;
      for (let i = 0; fork.size <= size + 20; i++)
        fork.append([{ key: sha256(Uint8Array.of(i)), value: sha256(Uint8Array.of(i)) }]);
      const signed = fork.cosigned([made.cosigner], Date.now());
      return { entry: (key) => fork.entry(Uint8Array.fromHex(key), signed, { genesisSeed }) };
    },
  },
  {
    name: "a new log that does not name the head before",
    code: "log_forked",
    policy: "given",
    prepare: async (scene) => {
      const { made } = scene.stage;
      await scene.seen();
      const { genesisSeed, note } = await honestEntry(scene);
      const next = new TestLog(testKey(`${made.log.key.name}/2`, "log", made.log.seed));
      next.entries.push(
        encodeOldHead({ ...(parseCheckpoint(noteOf(note).text) as Checkpoint), size: 1 }),
      );
      await logOf(scene, next);
      const signed = next.cosigned([made.cosigner], Date.now());
      const restart = { oldHead: next.entries[0] as Uint8Array, inclusion: next.inclusion(0) };
      return {
        entry: (key) => next.entry(Uint8Array.fromHex(key), signed, { genesisSeed, restart }),
      };
    },
  },
];

const toStrangers: readonly LieRow[] = [
  {
    name: "a removed key's document to whoever never saw the removal",
    code: "not_logged",
    policy: "demanded",
    prepare: async (scene) => {
      const { bob } = scene;
      const before = await presentOf(scene);
      await rotateRoot(bob, `${bob.did} rotated`);
      const branch = encodeKeyProof(
        forgeDocument(before, { seed: bob.identity.rootSeed, nonce: 70n }),
      );
      // What the log refutes is not remembered: the honest proof is believed afterwards.
      return { proof: only(bob.did, branch) };
    },
  },
  {
    name: "a deactivation is hidden",
    code: "not_logged",
    policy: "demanded",
    prepare: async (scene) => {
      const { bob } = scene;
      const path = `/delivery-resolution/${bob.did}`;
      const shown = (await (await fetch(`${urlOf(scene)}${path}?proof=`)).json()) as object;
      const proof = await proofBytes(urlOf(scene), bob.did);
      await byRoot(bob, { action: "deactivate_did", did: bob.did });
      await untilLogged(urlOf(scene), keyOfDid(bob.did), (value) => value === null);
      return { shows: { [path]: shown }, proof: only(bob.did, proof), after: "did_deactivated" };
    },
  },
  {
    name: "an alias answers with another identity to whoever asks first",
    code: "not_logged",
    policy: "demanded",
    prepare: async (scene) => {
      const { alias, bob, eve } = scene;
      const holder = valueOfAlias(bob.did).toHex();
      await untilLogged(urlOf(scene), keyOfAlias(alias), (value) => value?.toHex() === holder);
      return aliasLie(alias, eve.did);
    },
  },
];

export const lies: readonly LieRow[] = [
  ...firstContact,
  ...remembered,
  ...heads,
  ...othersLogs,
  ...toStrangers,
];

// ----------------------------------------------------------------------------------------- telling

type Stand = { readonly proxy: LyingDirectory; readonly victims: Readonly<Record<string, Victim>> };

/** Tells a lie to all victims behind a proxy, and then the truth. */
export async function tell(row: LieRow, stage: LieStage, { proxy, victims }: Stand): Promise<void> {
  const { url } = stage.made.nodes;
  const alias = `bob-${crypto.randomUUID().slice(0, 8)}`;
  const [bob, eve] = await Promise.all([openHonest(url, { alias }), openHonest(url)]);
  const demanded = row.policy === "demanded" ? ("logged" as const) : undefined;
  const each = async (expected: string, ask: (victim: Victim) => Promise<string>) => {
    const answers = Object.entries(victims).map(
      async ([name, victim]) => [name, await ask(victim)] as const,
    );
    expect(await Promise.all(answers)).toEqual(
      Object.keys(victims).map((name) => [name, expected] as const),
    );
  };
  const believed = async (to: string) => {
    if (row.policy !== undefined) await untilProofLogged(url, bob.did);
    await each(row.policy === undefined ? "proven" : "logged", (victim) =>
      victim.send(to, demanded),
    );
  };
  proxy.lie = {};
  const seen = (to: string = bob.did) => believed(to);
  const {
    to = bob.did,
    after = null,
    ...lie
  } = await row.prepare({ stage, bob, eve, alias, seen });
  proxy.lie = lie;
  await each(row.code, (victim) => victim.send(to, demanded));
  if (row.lowers) await each("proven", (victim) => victim.send(to, "proven"));
  if (row.ofBob) {
    await each(row.code, (victim) => victim.look(bob.did));
    await each(row.code, async (victim) => {
      await bob.send(victim.did, "signed by Bob");
      return victim.receive();
    });
  }
  proxy.lie = {};
  if (after === null) await believed(to);
  else await each(after, (victim) => victim.send(to));
}

/** A change is in the log a moment after it is settled. */
async function untilProofLogged(url: string, did: Did): Promise<void> {
  const value = valueOfProof(await proofBytes(url, did)).toHex();
  await untilLogged(url, keyOfDid(did), (shown) => shown?.toHex() === value);
}
