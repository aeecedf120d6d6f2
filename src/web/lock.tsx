/**
 * The lock of this device, in the settings: a passphrase or a code to print, and a passkey besides.
 */
import { useEffect, useState } from "preact/hooks";
import { type Lock, passkeyLock, passphraseLock, recoveryCode } from "../client/package.ts";
import { Button, Form, Input, newPassphrase } from "./parts.tsx";
import { attempt, locked, lockNow, setUpLock, toast } from "./session.ts";
import { t } from "./words/language.ts";

export function LockSettings() {
  const [locks, setLocks] = useState<readonly Lock["kind"][] | null>(null);
  const loadLocks = async () => setLocks(await locked.kinds());
  useEffect(() => void attempt(loadLocks), []);
  if (locks === null) return null;
  const [isSetUp, hasPasskey] = [locks.length > 0, locks.includes("passkey")];
  const changePasskey = async () => {
    await (hasPasskey ? locked.removePasskeys() : locked.addLock(passkeyLock()));
    await loadLocks();
  };
  return (
    <>
      <h3>{t.lock}</h3>
      {isSetUp ? (
        <p class="buttons">
          <Button main onClick={() => lockNow()}>
            {t.lockNow}
          </Button>
          {(hasPasskey || "PublicKeyCredential" in globalThis) && (
            <Button onClick={changePasskey}>{hasPasskey ? t.removePasskey : t.addPasskey}</Button>
          )}
        </p>
      ) : (
        <p>{t.lockText}</p>
      )}
      <details>
        <summary>{isSetUp ? t.otherPassphrase : t.setUpLock}</summary>
        <Passphrase
          submit={isSetUp ? t.replace : t.lock}
          onChosen={isSetUp ? replace : (chosen) => setUpLock(chosen)}
        />
      </details>
    </>
  );
}

async function replace(passphrase: string): Promise<void> {
  await locked.addLock(passphraseLock(passphrase));
  toast(t.onlyNewOpens);
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
  const confirmPassphrase = async () => {
    if (code === null && first !== second) throw new Error(t.notTheSame);
    await onChosen(code ?? first);
  };
  return (
    <Form submit={submit} busy={t.sealing} onSubmit={confirmPassphrase}>
      {code === null ? (
        <>
          <Input {...newPassphrase} label={t.lockPassphrase} value={first} onText={setFirst} />
          <Input {...newPassphrase} label={t.sameAgain} value={second} onText={setSecond} />
          <Button onClick={() => setCode(recoveryCode())}>{t.ratherCode}</Button>
        </>
      ) : (
        <>
          <p>{t.writeDown}</p>
          <output class="fingerprint">{code}</output>
        </>
      )}
      <p>{t.lockLost}</p>
    </Form>
  );
}
