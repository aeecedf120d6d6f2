/**
 * Proves that the kept runtime runs as its specification starts it: a registration of version 3 by
 * an account, the record under the storage key of the specification, a component update, a policy
 * of the owner, and what is refused, with its reason: proofs of others, of other chains and of
 * older versions, and what the keys of a DID decide. Each goes over the same connection that a
 * Directory uses. Exits with 1 at the first surprise.
 */
import { strict as assert } from "node:assert";
import { createPrivateKey, type KeyObject, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { Keyring, WsProvider } from "@polkadot/api";
import { blake2AsHex } from "@polkadot/util-crypto";
import { merkleizeMetadata } from "@polkadot-api/merkleize-metadata";
import { apiOver } from "./api.ts";
import { checkInterface } from "./interface.ts";
import { compareAll, startChain } from "./start.ts";
import { inTime } from "./wait.ts";

const did = "did:svc:1111111111111111111111";
const otherDid = "did:svc:2222222222222222222222";
const rootKey = "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";
const hourMs = 3_600_000;

/** Document 9 and storage key 12 of the worked vectors. */
const documentBlob =
  "786469643a7376633a3131313131313131313131313131313131313131313104846469643a7376633a31313131313131313131313131" +
  "313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a" +
  "364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0104846469643a" +
  "7376633a31313131313131313131313131313131313131313131236b31000104906469643a7376633a31313131313131313131313131" +
  "3131313131313131312363616368653c537663436163686553657276696365045468747470733a2f2f63616368652e6578616d706c65" +
  "0104846469643a7376633a31313131313131313131313131313131313131313131236b3100";
const recordKey =
  "0x72b29c5d16546b7d2c5310d5fbada68b13f72fd4db0687b2a6a53903e54be0cfc989a551168363f0d59df6cf60c9c49a" +
  "786469643a7376633a31313131313131313131313131313131313131313131";
/** Policy 11 of the worked vectors. */
const policy =
  "40380000000010000101020100010000010a000000000000000000000000000000010000000000000000000000000000000100";

/** The PKCS #8 frame of an Ed25519 seed (RFC 8410). */
const privateKey: KeyObject = createPrivateKey({
  key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, 7)]),
  format: "der",
  type: "pkcs8",
});

const hex = (bytes: Uint8Array): string => `0x${Buffer.from(bytes).toString("hex")}`;
const signed = (message: Uint8Array): string => hex(sign(null, message, privateKey));

compareAll();
const chain = await startChain({ port: 0, mode: "batch" });
const provider = new WsProvider(chain.endpoint);
const api = await apiOver(provider);

type Call = { readonly method: { toU8a(): Uint8Array } };

function callOfAccount(pallet: string, name: string, ...values: unknown[]) {
  const make = api.tx[pallet]?.[name];
  assert.ok(make, `the runtime has ${pallet}.${name}`);
  return make(...values);
}

const callOf = (pallet: string, name: string, ...values: unknown[]): Call =>
  callOfAccount(pallet, name, ...values);

async function read(pallet: string, name: string, key: string): Promise<string> {
  const query = api.query[pallet]?.[name];
  assert.ok(query, `the runtime stores ${pallet}.${name}`);
  return (await query(key)).toHex();
}

/**
 * A general extrinsic: version 5 without a signature, version 0 of the extensions, then era
 * (immortal), nonce, tip and the mode of the metadata hash, all zero, then the call.
 */
function general(call: Call): string {
  const body = Buffer.concat([
    Uint8Array.of(0x45, 0x00, 0x00, 0x00, 0x00, 0x00),
    call.method.toU8a(),
  ]);
  return hex(Buffer.concat([api.createType("Compact<u32>", body.length).toU8a(), body]));
}

/**
 * Submits a proof and waits for the block. Past the library's own types, which frame these bytes
 * twice.
 */
async function submit(call: Call): Promise<void> {
  const end = new Promise<void>((done, fail) => {
    const reported = (error: Error | null, status: unknown) => {
      if (error !== null) fail(error);
      else if (typeof status === "object" && status !== null && "finalized" in status) done();
      else if (status === "invalid" || status === "dropped") fail(new Error(String(status)));
    };
    const parameters = [general(call)];
    provider
      .subscribe("author_extrinsicUpdate", "author_submitAndWatchExtrinsic", parameters, reported)
      .catch((error: unknown) => fail(error instanceof Error ? error : new Error(String(error))));
  });
  await inTime("a block with the proof", end);
}

/** The pool's reason for turning a proof away. */
async function refusal(call: Call): Promise<string> {
  const reason = await provider.send("author_submitExtrinsic", [general(call)]).then(
    () => null,
    (error: unknown) => String(error),
  );
  assert.ok(reason !== null, "the pool refuses the call");
  return reason;
}

/** Signs in order: errors are those of the pallet, by index. */
const badProof = /badProof/;
const failed = (error: number) =>
  new RegExp(`"index":8,"error":"0x${error.toString(16).padStart(2, "0")}000000"`);

const alice = new Keyring({ type: "sr25519" }).addFromUri("//Alice");
const bob = new Keyring({ type: "sr25519" }).addFromUri("//Bob");
const genesis = api.genesisHash.toHex();

type Registration = { readonly of: string; readonly blob: string; readonly alias?: string };

/**
 * The arguments of a registration that names a chain and an account, and which any account may
 * submit.
 */
function registration(
  { of, blob, alias }: Registration,
  chainHash: string,
  account: Uint8Array | null,
): unknown[] {
  const expiry = Date.now() + hourMs / 2;
  const layout = "(Bytes, Option<Bytes>, Bytes, [u8; 32], u64, u64, [u8; 32], Option<[u8; 32]>)";
  const hash = blake2AsHex(`0x${blob}`, 256);
  const tail = api.createType(layout, [
    of,
    alias?.trim().toLowerCase() ?? null,
    `0x${rootKey}`,
    hash,
    0,
    expiry,
    chainHash,
    account === null ? null : hex(account),
  ]);
  const signature = signed(Buffer.concat([Buffer.from("svc:register:v3|"), tail.toU8a()]));
  return [of, alias ?? null, `v3:0:${expiry}`, `0x${rootKey}`, signature, `0x${blob}`];
}

async function asAccount(
  who: typeof alice,
  pallet: string,
  name: string,
  values: readonly unknown[],
): Promise<void> {
  const make = api.tx[pallet]?.[name];
  assert.ok(make, `the runtime has ${pallet}.${name}`);
  await submitSigned(await make(...values).signAsync(who));
}

async function registerForOperator(): Promise<void> {
  const mine = { of: did, blob: documentBlob };
  const register = (who: typeof alice, values: readonly unknown[]) =>
    asAccount(who, "didRegistry", "registerWithDocumentProofSigned", values);
  const proof = registration(mine, genesis, alice.publicKey);
  await assert.rejects(
    register(bob, proof),
    failed(0),
    "a watcher of the pool can't have the registration",
  );
  await assert.rejects(
    register(alice, registration(mine, `0x${"00".repeat(32)}`, alice.publicKey)),
    failed(0),
  );
  await assert.rejects(register(alice, registration(mine, genesis, null)), failed(0));
  const old = "2026-07-16T12:00:00Z";
  const plain = [
    did,
    null,
    old,
    `0x${rootKey}`,
    signed(Buffer.from(`${did}|${old}`)),
    `0x${documentBlob}`,
  ];
  await assert.rejects(register(alice, plain), failed(50), "version 1 is refused");
  assert.equal(
    api.tx["didRegistry"]?.["registerWithDocumentProof"],
    undefined,
    "nobody registers without an account",
  );
  await register(alice, proof);
  const stored = String(await provider.send("state_getStorage", [recordKey]));
  const owner = Buffer.from(alice.publicKey).toString("hex");
  assert.ok(
    stored.startsWith(`0x01${owner}000001${documentBlob}`),
    "the owner, no aliases or devices; the document",
  );
  assert.ok(stored.includes(`0180${rootKey}`), "the root key");
  console.log("a proof of version 3 registers for its account on its chain, and for nobody else");

  const other = {
    of: otherDid,
    blob: `78${Buffer.from(otherDid).toString("hex")}00000000`,
    alias: " Team ",
  };
  // One after the other: this pool does not put an account's extrinsics in the order of their
  // nonces.
  await register(alice, registration(other, genesis, alice.publicKey));
  await asAccount(alice, "deliveryPolicy", "setDeliveryPolicy", [otherDid, `0x${policy}`]);
  const holder = hex(Buffer.concat([Uint8Array.of(0x78), Buffer.from(otherDid)]));
  assert.equal(await read("didRegistry", "aliasIndex", "team"), holder);
  assert.equal(await read("deliveryPolicy", "recipientPolicies", otherDid), `0x${policy}`);
  console.log("the operator's account registers with an alias and sets a policy");
}

async function ownerDecidesNothing(): Promise<void> {
  const before = await provider.send("state_getStorage", [recordKey]);
  const empty = `0x78${Buffer.from(did).toString("hex")}00000000`;
  for (const [name, values] of [
    ["setDocument", [did, empty]],
    ["deactivateDid", [did]],
    ["addDevice", [did, "phone"]],
    ["removeDevice", [did, "phone"]],
  ] as const) {
    await assert.rejects(asAccount(alice, "didRegistry", name, values), failed(49), name);
  }
  assert.equal(await provider.send("state_getStorage", [recordKey]), before);
  console.log("the owner's account can replace, deactivate and delete nothing");
}

async function updateComponent(): Promise<void> {
  const id = `${did}#x25519-1`;
  const type = "X25519KeyAgreementKey2020";
  const key = "z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc";
  const layout =
    "(Bytes, u8, Option<u8>, Option<(Bytes, Bytes, Bytes, Bytes)>, Option<u8>, Option<Bytes>, u64, u64, Bytes)";
  const validUntil = Date.now() + hourMs;
  const values = [did, 5, null, [id, type, did, key], null, null, 0, validUntil, "root"];
  const payload = api.createType(layout, values).toU8a();
  const agreement = { id, type_: type, controller: did, public_key_multibase: key };
  const call = (signature: string) =>
    callOf("didRegistry", "addKeyAgreement", did, agreement, hex(payload), signature, "root");
  const bound = (chainHash: string) =>
    signed(
      Buffer.concat([
        Buffer.from("svc:authorization:v3:document|"),
        Buffer.from(chainHash.slice(2), "hex"),
        payload,
      ]),
    );
  assert.match(await refusal(call(signed(payload))), badProof, "a plain payload is refused");
  assert.match(
    await refusal(call(bound(`0x${"00".repeat(32)}`))),
    badProof,
    "so is one for another chain",
  );
  await submit(call(bound(genesis)));
  assert.equal(await read("didRegistry", "documentNonces", did), "0x0000000000000001");
  assert.ok((await read("didRegistry", "dids", did)).includes(Buffer.from(key).toString("hex")));
  console.log("a component update for this chain applies and counts");
  // 28 is the index of InvalidDocumentNonce.
  assert.match(await refusal(call(bound(genesis))), /"custom":28/);
  console.log("the same update again is refused with the index of its error");
}

async function deposit(): Promise<void> {
  const account = await provider.send<string>("state_getStorage", [
    api.query["balances"]?.["holds"]?.key(alice.address),
  ]);
  const holds = api.createType("Vec<((u8, u8), u128)>", Buffer.from(account.slice(2), "hex"));
  const each = (10_000n + 24_025n) * 1_000_000n;
  assert.ok(
    holds.toHex().endsWith(
      api
        .createType("u128", 2n * each)
        .toHex(true)
        .slice(2),
    ),
    "two records hold their deposits",
  );
  console.log("the operator's account holds a deposit for each record");
}

type Signed = Awaited<
  ReturnType<ReturnType<NonNullable<NonNullable<typeof api.tx.didRegistry>[string]>>["signAsync"]>
>;

/** Sends a signed extrinsic, waits for finality, and throws when it failed in its block. */
async function submitSigned(extrinsic: Signed): Promise<void> {
  const end = new Promise<void>((done, fail) => {
    extrinsic
      .send((result) => {
        if (result.isFinalized && result.dispatchError)
          fail(new Error(result.dispatchError.toString()));
        else if (result.isFinalized) done();
        else if (result.isError) fail(new Error(result.status.type));
      })
      .catch(fail);
  });
  await inTime("a final block with the extrinsic", end);
}

const keptText = (file: string): string =>
  readFileSync(new URL(`../../runtime/artifacts/${file}`, import.meta.url), "utf8").trim();

async function compareMetadata(): Promise<void> {
  const kept = keptText("waypost-runtime.metadata.hex");
  const answer = await provider.send<string>("state_call", [
    "Metadata_metadata_at_version",
    "0x0f000000",
  ]);
  const reported = api
    .createType("Option<Bytes>", Buffer.from(answer.slice(2), "hex"))
    .unwrapOrDefault()
    .toHex();
  assert.ok(reported === kept, "the kept metadata is the runtime's");
  checkInterface(api);
  console.log("the kept metadata and the kept table are the runtime's");
}

/**
 * As a hardware wallet signs, which shows a call by the metadata and signs the hash of that:
 * another program than the one that built the runtime computes it here, from the metadata that the
 * chain reports.
 */
async function signWithMetadataHash(): Promise<void> {
  const version = await provider.send<{ specName: string; specVersion: number }>(
    "state_getRuntimeVersion",
    [],
  );
  const properties = await provider.send<{
    ss58Format: number;
    tokenDecimals: number;
    tokenSymbol: string;
  }>("system_properties", []);
  const digest = merkleizeMetadata(keptText("waypost-runtime.metadata.hex") as `0x${string}`, {
    specName: version.specName,
    specVersion: version.specVersion,
    base58Prefix: properties.ss58Format,
    decimals: properties.tokenDecimals,
    tokenSymbol: properties.tokenSymbol,
  }).digest();
  assert.equal(hex(digest), keptText("waypost-runtime.metadata-hash.txt"));
  const remark = callOfAccount("system", "remark", "0x01");
  await submitSigned(await remark.signAsync(alice, { mode: 1, metadataHash: hex(digest) }));
  const other = await remark.signAsync(alice, { mode: 1, metadataHash: hex(new Uint8Array(32)) });
  await assert.rejects(submitSigned(other), badProof);
  console.log(
    "a call that was shown by the metadata's hash is taken, and one by another hash is not",
  );
}

let status = 0;
try {
  await registerForOperator();
  await ownerDecidesNothing();
  await updateComponent();
  await deposit();
  await compareMetadata();
  await signWithMetadataHash();
} catch (error) {
  console.error(error);
  status = 1;
}
await api.disconnect();
await chain.stop();
process.exit(status);
