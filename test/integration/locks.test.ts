/** Locked keys: what lies in the store below, what opens it, and that a lock can be replaced. */
import { expect, test } from "bun:test";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity, parseIdentity, renderIdentity, wipe } from "../../src/client/keys/keys.ts";
import { lockedKeys, passphraseLock, recoveryCode } from "../../src/client/keys/locks.ts";

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => "ok",
    (error: { code?: string }) => error.code,
  );

/** Everything that a thief of the store below finds. */
async function found(inner: KeyStore): Promise<string> {
  const memory = [await inner.load("me/people"), await inner.load("waypost/locks")];
  return [await inner.load("me"), ...memory].join("\n");
}

test("texts lie sealed, and are read only while the keys are unlocked", async () => {
  const inner = memoryKeys();
  const keys = lockedKeys(inner);
  expect(await keys.kinds()).toEqual([]);
  expect(await codeOf(keys.replace("me", null, "secret text"))).toBe("locked");
  await keys.setUp(passphraseLock("correct horse"));
  expect([
    await keys.replace("me", null, "secret text"),
    await keys.replace("me", null, "another"),
  ]).toEqual([true, false]);
  await keys.save("me/people", "secret people");
  expect([await keys.load("me"), await keys.load("me/people")]).toEqual([
    "secret text",
    "secret people",
  ]);
  expect(await found(inner)).not.toContain("secret");
  keys.lock();
  expect([await codeOf(keys.load("me")), await codeOf(keys.load("me/people"))]).toEqual([
    "locked",
    "locked",
  ]);
  expect(await codeOf(keys.save("me", "x"))).toBe("locked");
  const again = lockedKeys(inner);
  expect(await again.kinds()).toEqual(["passphrase"]);
  expect(await codeOf(again.unlock(passphraseLock("wrong")))).toBe("wrong_passphrase");
  expect(await codeOf(again.setUp(passphraseLock("mine")))).toBe("name_taken");
  await again.unlock(passphraseLock("correct horse"));
  expect(await again.load("me")).toBe("secret text");
});

test("a printed code opens however it is typed, and another passphrase takes the place of the first", async () => {
  const inner = memoryKeys();
  const keys = lockedKeys(inner);
  const code = recoveryCode();
  expect(code).toMatch(/^([0-9A-HJKMNP-TV-Z]{5}-){5}[0-9A-HJKMNP-TV-Z]$/);
  await keys.setUp(passphraseLock(code));
  await keys.replace("me", null, "text");
  for (const typed of [
    code.toLowerCase().replaceAll("-", " "),
    code.replaceAll("0", "O").replaceAll("1", "l"),
  ]) {
    const again = lockedKeys(inner);
    await again.unlock(passphraseLock(typed));
    expect(await again.load("me")).toBe("text");
  }
  await keys.addLock(passphraseLock("new"));
  const again = lockedKeys(inner);
  expect(await codeOf(again.unlock(passphraseLock(code)))).toBe("wrong_passphrase");
  await again.unlock(passphraseLock("new"));
  expect(await again.load("me")).toBe("text");
});

test("what was there before the locks is sealed with them, also after an interruption", async () => {
  for (const isInterrupted of [false, true]) {
    const inner = memoryKeys();
    await inner.replace("me", null, "secret text");
    await inner.save("me/people", "secret people");
    let left = isInterrupted ? 1 : Number.POSITIVE_INFINITY;
    const replace: KeyStore["replace"] = (...given) =>
      left-- > 0 ? inner.replace(...given) : Promise.reject(new Error("the power is gone"));
    const setUp = lockedKeys({ ...inner, replace }).setUp(passphraseLock("p"));
    expect(await codeOf(setUp)).toBe(isInterrupted ? undefined : "ok");
    const keys = lockedKeys(inner);
    await keys.unlock(passphraseLock("p"));
    expect(await found(inner)).not.toContain("secret");
    expect([await keys.load("me"), await keys.load("me/people")]).toEqual([
      "secret text",
      "secret people",
    ]);
  }
});

test("of a store that lists nothing, what is named is sealed at once and the rest when it is read", async () => {
  const { list: _, ...inner } = memoryKeys();
  await inner.replace("me", null, "secret text");
  await inner.save("me/people", "secret people");
  const keys = lockedKeys(inner);
  await keys.setUp(passphraseLock("p"), ["me"]);
  expect(await inner.load("me")).not.toContain("secret");
  expect(await keys.load("me/people")).toBe("secret people");
  expect(await found(inner)).not.toContain("secret");
  await inner.save("me", "another's text");
  expect(await codeOf(keys.load("me"))).toBe("keys_unreadable");
});

test("once there are locks, plain text that somebody put there is refused", async () => {
  const inner = memoryKeys();
  const keys = lockedKeys(inner);
  await keys.setUp(passphraseLock("p"));
  await keys.replace("me", null, "own text");
  keys.lock();
  // Who can write the store, and has no passphrase; he finds no mark that he could make either.
  await inner.save("me", "another's text");
  await inner.save("me/alias", "another's alias");
  await inner.save("waypost/sealing", "another's mark");
  const again = lockedKeys(inner);
  await again.unlock(passphraseLock("p"));
  for (const name of ["me", "me/alias"])
    expect([name, await codeOf(again.load(name))]).toEqual([name, "keys_unreadable"]);
  expect(await codeOf(again.replace("me", "another's text", "next"))).toBe("keys_unreadable");
});

test("a text that was changed, or moved to another name, is not believed", async () => {
  const inner = memoryKeys();
  const keys = lockedKeys(inner);
  await keys.setUp(passphraseLock("p"));
  await keys.replace("me", null, "text");
  const sealed = (await inner.load("me")) ?? "";
  await inner.replace("other", null, sealed);
  expect(await codeOf(keys.load("other"))).toBe("keys_unreadable");
  expect(sealed).toEndWith('"\n}\n');
  await inner.save("me", sealed.replace(/.{6}"\n}\n$/, '000000"\n}\n'));
  expect(await codeOf(keys.load("me"))).toBe("keys_unreadable");
});

test("the first lock is no passkey, and no passphrase is empty", async () => {
  const keys = lockedKeys(memoryKeys());
  const passkey = { ...passphraseLock("p"), kind: "passkey" as const };
  expect(await codeOf(keys.setUp(passkey))).toBe("invalid_argument");
  expect(await codeOf(keys.setUp(passphraseLock("")))).toBe("invalid_argument");
});

test("a lock that could not be kept seals nothing", async () => {
  const inner = memoryKeys();
  await inner.save("me", "secret text");
  const keys = lockedKeys({ ...inner, save: () => Promise.reject(new Error("disk full")) });
  expect(await codeOf(keys.setUp(passphraseLock("p")))).not.toBe("ok");
  expect([await codeOf(keys.load("me")), await inner.load("me")]).toEqual([
    "locked",
    "secret text",
  ]);
});

test("an identity that is wiped holds no secret byte", () => {
  const identity = createIdentity("me");
  wipe(identity);
  const text = renderIdentity(identity);
  expect(parseIdentity(text, "me")?.did).toBe(identity.did);
  expect(text.match(/[0-9a-f]{64}/g)?.every((secret) => secret === "0".repeat(64))).toBe(true);
});
