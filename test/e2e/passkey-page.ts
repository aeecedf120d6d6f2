/** The page of the passkey test: the SDK's locks, for the test to call. */
import { indexedDbKeys } from "../../src/client/keys/key-stores.ts";
import { lockedKeys, passkeyLock, passphraseLock } from "../../src/client/keys/locks.ts";

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => "ok",
    (error: { code?: string }) => error.code ?? String(error),
  );

Object.assign(globalThis, {
  async setUp() {
    const keys = lockedKeys(indexedDbKeys());
    await keys.setUp(passphraseLock("correct horse"));
    await keys.replace("me", null, "secret text");
    return codeOf(keys.addLock(passkeyLock({ name: "Test" })));
  },
  async read(how: "passkey" | "passphrase") {
    const keys = lockedKeys(indexedDbKeys());
    const unlocked = await codeOf(
      keys.unlock(how === "passkey" ? passkeyLock() : passphraseLock("correct horse")),
    );
    return unlocked === "ok" ? keys.load("me") : unlocked;
  },
});
