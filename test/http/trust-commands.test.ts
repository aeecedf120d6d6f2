/**
 * The commands before a Directory that lies: they end with the code of the lie. And what people do
 * about changed keys: compare fingerprints, forget.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import { executable } from "../support/executable.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-trust-"));
let nodes: TestNodes;
let proxy: LyingDirectory;
beforeAll(async () => {
  nodes = await startTestNodes();
  proxy = lyingDirectory(nodes.url);
  writeFileSync(join(scratch, "hello.txt"), "hello");
});
afterAll(async () => {
  await Promise.all([nodes.stop(), proxy.stop()]);
  rmSync(scratch, { recursive: true, force: true });
});

async function waypost(...args: string[]) {
  const env = { ...process.env, WAYPOST_URL: nodes.url, WAYPOST_KEYS: join(scratch, "keys") };
  const command = [await executable(), ...args, "--directory", proxy.url, "--json"];
  const child = Bun.spawn(command, { cwd: scratch, env, stdout: "pipe", stderr: "pipe" });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  await child.exited;
  return { json: stdout === "" ? {} : JSON.parse(stdout), said: stdout + stderr };
}

const send = (to: string, ...flags: string[]) =>
  waypost("send", "--as", "gil", "--to", to, "--file", "hello.txt", ...flags);

test("a person sees the same fingerprint on both sides, and a Directory that goes back or lies is named", async () => {
  const created = await waypost("did", "create", "--name", "fay", "--alias", "fay.example");
  const { did } = created.json;
  expect(did).toStartWith("did:svc:wp");
  const { did: gil } = (await waypost("did", "create", "--name", "gil")).json;
  expect((await send("fay.example")).json.recipient).toEqual({ trust: "proven", name: "told" });

  const shown = async (as: string, to: string) =>
    (await waypost("did", "fingerprint", to, "--as", as)).json.fingerprint;
  const before = await shown("fay", "gil");
  expect(await shown("gil", "fay")).toBe(before);
  const compared = (text: string) =>
    waypost("did", "fingerprint", "fay", "--as", "gil", "--compared", text);
  expect((await compared(`${before}0`)).said).toContain("identity_changed");
  expect((await compared(before)).json).toMatchObject({
    fingerprint: before,
    compared: true,
    was: null,
  });

  const old = await (await fetch(`${nodes.url}/dids/${did}/proof`)).bytes();
  expect((await waypost("did", "rotate", "--as", "fay")).json.ok).toBe(true);
  expect((await send("fay.example", "--trust", "proven")).json.recipient).toEqual({
    trust: "proven",
    name: "remembered",
  });
  const after = await shown("gil", "fay");
  expect([after === before, after]).toEqual([false, await shown("fay", "gil")]);
  const since = await waypost("did", "fingerprint", "fay", "--as", "gil");
  expect(since.json).toMatchObject({ was: before, compared: false, distrusted: null });

  proxy.lie = { proof: (asked) => (asked === did ? old : null) };
  expect((await send("fay")).said).toContain("record_went_back");
  proxy.lie = { proof: (asked) => (asked === did ? "none" : null) };
  expect((await send("fay")).said).toContain("proof_missing");
  proxy.lie = { proof: (asked) => (asked === did ? old.slice(1) : null) };
  expect((await send("fay")).said).toContain("proof_invalid");
  const other = "did:svc:1111111111111111";
  proxy.lie = {
    json: ({ path, json }) => (path === "/aliases/fay.example" ? { ...json, did: other } : null),
  };
  expect((await send("fay.example")).said).toContain("identity_changed");

  // A key that he adds himself is no stranger's, though its secret is elsewhere.
  proxy.lie = {};
  const method = (fragment: string) => {
    const key = renderPublicKey(ed25519.getPublicKey(ed25519.utils.randomSecretKey()));
    const one = { id: `#${fragment}`, controller: gil, type: "Multikey", publicKeyMultibase: key };
    return ["change", "AddVerificationMethod", JSON.stringify({ verification_method: one })];
  };
  expect((await waypost("did", ...method("phone"), "--as", "gil")).json.ok).toBe(true);
  const quiet = await send("fay");
  expect([quiet.json.ok, quiet.said]).toEqual([
    true,
    expect.not.stringContaining("stranger_change"),
  ]);

  // A thief of gil's keys has changed his record: any command that reads it says so.
  cpSync(join(scratch, "keys"), join(scratch, "stolen"), { recursive: true });
  const thief = (...words: string[]) =>
    waypost("did", ...words, "--as", "gil", "--keys", join(scratch, "stolen"));
  expect((await thief(...method("thief"))).json.ok).toBe(true);
  const warned = await send("fay");
  expect([warned.json.ok, warned.said]).toEqual([true, expect.stringContaining("stranger_change")]);

  // An old proof is believed by anyone who forgets what was seen; but the bundle of now is signed
  // by the keys of now.
  proxy.lie = { proof: (asked) => (asked === did ? old : null) };
  expect((await waypost("did", "forget", "fay", "--as", "gil")).json.ok).toBe(true);
  expect((await send("fay")).said).toContain("key_bundle_missing");

  // Whom a thief has left no key in force learns why.
  expect((await thief("rotate")).json.ok).toBe(true);
  const refused = await send("fay");
  expect([refused.said.includes("unknown_key"), refused.said]).toEqual([
    true,
    expect.stringContaining("root key"),
  ]);
}, 300_000);
