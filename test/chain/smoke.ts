/**
 * Proves that the committed runtime runs: a registration by a v1 proof, the record under the storage key
 * of the specification, one component update, and one that is refused. Exits with 1 at the first surprise.
 */
import { strict as assert } from "node:assert";
import { createHash, createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { ApiPromise, WsProvider } from "@polkadot/api";
import { startChain } from "./start.ts";

const hex = (bytes: Uint8Array) => `0x${Buffer.from(bytes).toString("hex")}`;
const utf8 = (text: string) => new TextEncoder().encode(text);

// The worked vectors: Ed25519 seed of 32 bytes 07.
const seed = new Uint8Array(32).fill(7);
const did = "did:svc:1111111111111111111111";
const rootKey = "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";
const didsKey =
  "0x72b29c5d16546b7d2c5310d5fbada68b13f72fd4db0687b2a6a53903e54be0cfc989a551168363f0d59df6cf60c9c49a" +
  "786469643a7376633a31313131313131313131313131313131313131313131";
const documentBlob =
  "0x786469643a7376633a3131313131313131313131313131313131313131313104846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0104846469643a7376633a31313131313131313131313131313131313131313131236b31000104906469643a7376633a313131313131313131313131313131313131313131312363616368653c537663436163686553657276696365045468747470733a2f2f63616368652e6578616d706c650104846469643a7376633a31313131313131313131313131313131313131313131236b3100";

const privateKey = createPrivateKey({
  key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]),
  format: "der",
  type: "pkcs8",
});
const signed = (message: Uint8Array) => new Uint8Array(sign(null, message, privateKey));

process.env["LOG_LEVEL"] ??= "warn";
const chain = await startChain({ port: 0, mode: "batch" });
const provider = new WsProvider(chain.endpoint);
const api = await ApiPromise.create({ provider, noInitWarn: true });

/** The bytes of a general extrinsic: version 5 without a signature, extensions version 0, immortal, nonce 0, tip 0, no metadata hash. */
function general(call: Uint8Array): string {
  const body = Buffer.concat([Uint8Array.of(0x45, 0x00), Uint8Array.of(0x00, 0x00, 0x00, 0x00), call]);
  return hex(Buffer.concat([api.createType("Compact<u32>", body.length).toU8a(), body]));
}

/** Past the library's own types, which put a general extrinsic's frame around its bytes twice. */
const submitCall = (call: { method: { toU8a(): Uint8Array } }) =>
  provider.send<string>("author_submitExtrinsic", [general(call.method.toU8a())]);

async function until<T>(what: string, read: () => Promise<T | null>): Promise<T> {
  for (let tries = 0; tries < 100; tries += 1) {
    const value = await read();
    if (value !== null) return value;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`waited too long for ${what}`);
}

async function main(): Promise<void> {
  assert.equal(api.consts["didRegistry"]?.["maxIdLen"]?.toString(), "192");
  const calls = api.tx["didRegistry"];
  const query = api.query["didRegistry"];
  assert.ok(calls && query);

  // Registration.
  const timestamp = "2026-07-16T12:00:00Z";
  const registration = calls["registerWithDocumentProof"]?.(
    did,
    null,
    timestamp,
    `0x${rootKey}`,
    hex(signed(utf8(`${did}|${timestamp}`))),
    documentBlob,
  );
  assert.ok(registration);
  await submitCall(registration);
  const stored = await until("the record", async () => {
    const value = (await api.rpc.state.getStorage(didsKey)) as unknown as { isSome: boolean; toHex(): string };
    return value?.isSome ? value.toHex() : null;
  });
  assert.ok(stored.includes(rootKey), "the record holds the root key");
  assert.ok(stored.includes(documentBlob.slice(2)), "the record holds the document");
  console.log("registered and read back under the storage key of the specification");

  // One component update: a key agreement is added by the root key.
  const id = `${did}#x25519-1`;
  const agreement = { id, type_: "X25519KeyAgreementKey2020", controller: did, public_key_multibase: "z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc" };
  const payload = (nonce: number) =>
    api.registry.createType("(Bytes, u8, Option<u8>, Option<(Bytes, Bytes, Bytes, Bytes)>, Option<u8>, Option<Bytes>, u64, u64, Bytes)", [
      did, 5, null, [id, agreement.type_, did, agreement.public_key_multibase], null, null, nonce, Date.now() + 300_000, "root",
    ]).toU8a();
  const first = payload(0);
  await submitCall(calls["addKeyAgreement"]!(did, agreement, hex(first), hex(signed(first)), "root"));
  await until("the document counter", async () =>
    (await query["documentNonces"]!(did)).toString() === "1" ? true : null,
  );
  const record = (await query["dids"]!(did)).toJSON() as { version: number; document: { keyAgreement: { id: string }[] } };
  assert.equal(record.version, 2);
  assert.equal(Buffer.from(record.document.keyAgreement[0]!.id.slice(2), "hex").toString(), id);
  console.log("one component update applied");

  // The same authorization again: the pool refuses it and says which error of the pallet it is.
  const repeat = calls["addKeyAgreement"]!(did, agreement, hex(first), hex(signed(first)), "root");
  const refusal = await submitCall(repeat).then(() => null, (error: unknown) => String(error));
  assert.ok(refusal !== null, "a stale counter is refused");
  console.log(`a stale counter is refused: ${refusal}`);
  assert.equal((await query["documentNonces"]!(did)).toString(), "1");

  // The metadata that is kept is the metadata of the runtime that is kept.
  const kept = readFileSync(new URL("../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url), "utf8").trim();
  const told = await api.rpc.state.call("Metadata_metadata_at_version", "0x0f000000");
  const bytes = api.createType("Option<Bytes>", told.toU8a(true)) as unknown as { unwrap(): { toHex(): string } };
  assert.equal(createHash("sha256").update(bytes.unwrap().toHex()).digest("hex"), createHash("sha256").update(kept).digest("hex"));
  console.log("the kept metadata is the runtime's");
}

let status = 0;
try {
  await main();
} catch (error) {
  console.error(error);
  status = 1;
}
await api.disconnect();
await chain.stop();
process.exit(status);
