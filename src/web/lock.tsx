/** The lock of this device, in the settings: a passphrase or a code to print, and a passkey besides. */
import { useEffect, useState } from "preact/hooks";
import { type Lock, passkeyLock, passphraseLock, recoveryCode } from "../client/package.ts";
import { Button, Form, Input, newPassphrase } from "./parts.tsx";
import { attempt, locked, lockNow, setUpLock, toast } from "./session.ts";

export function LockSettings() {
  const [locks, setLocks] = useState<readonly Lock["kind"][] | null>(null);
  const look = async () => setLocks(await locked.kinds());
  useEffect(() => void attempt(look), []);
  if (locks === null) return null;
  const [isSetUp, hasPasskey] = [locks.length > 0, locks.includes("passkey")];
  const changePasskey = async () => {
    await (hasPasskey ? locked.removePasskeys() : locked.addLock(passkeyLock()));
    await look();
  };
  return (
    <>
      <h3>Lock</h3>
      {isSetUp ? (
        <p class="buttons">
          <Button main onClick={() => lockNow()}>
            Lock now
          </Button>
          {(hasPasskey || "PublicKeyCredential" in globalThis) && (
            <Button onClick={changePasskey}>
              {hasPasskey ? "Remove the passkey" : "Open with a passkey too"}
            </Button>
          )}
        </p>
      ) : (
        <p>
          Anyone who opens this browser can read your messages. With a lock they are sealed until
          you open it.
        </p>
      )}
      <details>
        <summary>{isSetUp ? "Another passphrase or code" : "Set up a lock"}</summary>
        <Passphrase
          submit={isSetUp ? "Replace" : "Lock"}
          onChosen={isSetUp ? replace : (chosen) => setUpLock(chosen)}
        />
      </details>
    </>
  );
}

async function replace(passphrase: string): Promise<void> {
  await locked.addLock(passphraseLock(passphrase));
  toast("From now on only the new one opens.");
}

type PassphraseProps = {
  readonly submit: string;
  readonly onChosen: (passphrase: string) => Promise<void>;
};

/** Typed twice, since a slip would lock its owner out; or drawn and shown once. */
function Passphrase({ submit, onChosen }: PassphraseProps) {
  const [first, setFirst] = useState("");
  const [second, setSecond] = useState("");
  const [code, setCode] = useState<string | null>(null);
  const choose = async () => {
    if (code === null && first !== second) throw new Error("The two are not the same.");
    await onChosen(code ?? first);
  };
  return (
    <Form submit={submit} busy="Sealing…" onSubmit={choose}>
      {code === null ? (
        <>
          <Input
            {...newPassphrase}
            label="Passphrase of the lock, 10 or more characters"
            value={first}
            onText={setFirst}
          />
          <Input {...newPassphrase} label="The same again" value={second} onText={setSecond} />
          <Button onClick={() => setCode(recoveryCode())}>Rather a code to print</Button>
        </>
      ) : (
        <>
          <p>Write this down or print it, and keep it elsewhere. It is shown only now.</p>
          <output class="fingerprint">{code}</output>
        </>
      )}
      <p>
        No one can open it for you if you lose this. A backup with a passphrase of its own helps
        then.
      </p>
    </Form>
  );
}
