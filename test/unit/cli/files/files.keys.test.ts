/** Identities on disk: mode 0600, never overwritten, found again. */
import { describe, expect, test } from "bun:test";
import { chmodSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { writeDurably } from "../../../../src/app/files.ts";
import { fileKeys, listIdentities, loadIdentity } from "../../../../src/cli/files/files.ts";
import { createIdentity, heldSeed, renderIdentity } from "../../../../src/client/keys/keys.ts";
import { isDid } from "../../../../src/core/codec/did.ts";
import { clientCode } from "../../../support/client-code.ts";
import { scratchPaths } from "../../../support/scratch.ts";

const freshFolder = scratchPaths("client");

describe("identities", () => {
  test("are written with mode 0600 and read back the same", async () => {
    const folder = freshFolder();
    const identity = createIdentity("alice");
    expect(isDid(identity.did)).toBe(true);
    await fileKeys(folder).save(identity.name, renderIdentity(identity));
    expect(statSync(join(folder, "alice.json")).mode & 0o777).toBe(0o600);
    expect(await loadIdentity(folder, "alice")).toEqual(identity);
    expect(await listIdentities(folder)).toEqual(["alice"]);
  });
  test("are not overwritten by a new one of the same name", async () => {
    const folder = freshFolder();
    const first = createIdentity("alice");
    await fileKeys(folder).save(first.name, renderIdentity(first));
    expect(
      await fileKeys(folder).replace("alice", null, renderIdentity(createIdentity("alice"))),
    ).toBe(false);
    expect(await loadIdentity(folder, "alice")).toEqual(first);
  });
  test("keep a root key that is not in force yet", async () => {
    const folder = freshFolder();
    const identity = { ...createIdentity("a"), nextRootSeed: new Uint8Array(32).fill(1) };
    await fileKeys(folder).save(identity.name, renderIdentity(identity));
    expect((await loadIdentity(folder, "a")).nextRootSeed).toEqual(identity.nextRootSeed);
  });
  test("that others can read are refused", async () => {
    const folder = freshFolder();
    await fileKeys(folder).save("a", renderIdentity(createIdentity("a")));
    chmodSync(join(folder, "a.json"), 0o644);
    expect(await clientCode(() => loadIdentity(folder, "a"))).toBe("keys_exposed");
  });
  test("that are missing, broken or oddly named are distinguished", async () => {
    const folder = freshFolder();
    await writeDurably(join(folder, "bad.json"), "{");
    await writeDurably(
      join(folder, "half.json"),
      JSON.stringify({ version: 1, did: "did:svc:x", rootSeed: "00" }),
    );
    expect(await clientCode(() => loadIdentity(folder, "nobody"))).toBe("no_identity");
    expect(await clientCode(() => loadIdentity(folder, "bad"))).toBe("keys_unreadable");
    expect(await clientCode(() => loadIdentity(folder, "half"))).toBe("keys_unreadable");
    expect(await clientCode(() => loadIdentity(folder, "../x"))).toBe("invalid_name");
    expect(await clientCode(() => Promise.resolve().then(() => createIdentity(".x")))).toBe(
      "invalid_name",
    );
  });
  test("of another version, or without a chain of agreement keys, are refused", async () => {
    const folder = freshFolder();
    await fileKeys(folder).save("a", renderIdentity(createIdentity("a")));
    const held = JSON.parse(readFileSync(join(folder, "a.json"), "utf8"));
    for (const changed of [{ version: 2 }, { chain: null }]) {
      await writeDurably(join(folder, "a.json"), JSON.stringify({ ...held, ...changed }));
      expect(await clientCode(() => loadIdentity(folder, "a"))).toBe("keys_unreadable");
    }
  });
  test("find the seed of a key by the key itself, and only their own", async () => {
    const [mine, other] = [createIdentity("a"), createIdentity("b")];
    expect(await heldSeed(mine, ed25519.getPublicKey(mine.rootSeed))).toEqual(mine.rootSeed);
    expect(await heldSeed(mine, ed25519.getPublicKey(other.rootSeed))).toBeNull();
  });
});
