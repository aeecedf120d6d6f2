/**
 * The first page: a name, one button, and the way back from a backup. Or, where there
 * is a lock, what opens it.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type ClientError, passkeyLock, passphraseLock } from "../client/package.ts";
import { useWelcome } from "./notices.ts";
import { Button, Form, givenPassphrase, Input, onDemand, Phrase } from "./parts.tsx";
import { arrivedBy } from "./place.ts";
import { create, restoreBackup, unlock } from "./session.ts";
import { oneLine } from "./text.ts";
import { t } from "./words/language.ts";

const LinkThis = onDemand(async () => (await import("./devices.tsx")).LinkThis);

export function Welcome() {
  const { invited, invitation, ofDevice } = arrivedBy();
  const [name, setName] = useState("");
  const [code, setCode] = useState(invitation ?? "");
  const [asksInvitation, setAsksInvitation] = useState(code !== "");
  const said = useWelcome();
  const [other, setOther] = useState<"backup" | "device" | null>(
    ofDevice === null ? null : "device",
  );
  const makeIdentity = async () => {
    try {
      await create(name.trim(), code.trim() || null);
    } catch (error) {
      if (/^invitation_/.test((error as Partial<ClientError>).code ?? "")) setAsksInvitation(true);
      throw error;
    }
  };
  return (
    <FirstPage title="Waypost">
      <p>
        {invited === null ? (
          t.onlyYou
        ) : (
          <Phrase text={t.invitesYou}>
            <bdi>{oneLine(invited.name) || t.somebody}</bdi>
          </Phrase>
        )}{" "}
        {t.noNumber}
      </p>
      {said !== null && <p class="said">{said}</p>}
      {other === null && (
        <Form submit={t.start} busy={t.makingKeys} onSubmit={makeIdentity}>
          <Input
            label={t.yourNameShown}
            value={name}
            onText={setName}
            maxLength={60}
            autocomplete="nickname"
            placeholder={t.optional}
          />
          {asksInvitation && <Input label={t.invitationToServer} value={code} onText={setCode} />}
        </Form>
      )}
      {other === "backup" && <Restore />}
      {other === "device" && <LinkThis />}
      <p class="buttons">
        {other === null ? (
          <>
            <Button onClick={() => setOther("device")}>{t.onOtherDevice}</Button>
            <Button onClick={() => setOther("backup")}>{t.haveBackup}</Button>
          </>
        ) : (
          <Button onClick={() => setOther(null)}>{t.back}</Button>
        )}
      </p>
    </FirstPage>
  );
}

function FirstPage({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}) {
  return (
    <main class="welcome">
      <img src="/icon.svg" alt="" width={72} height={72} />
      <h1>{title}</h1>
      {children}
    </main>
  );
}

function Restore() {
  const [sealed, setSealed] = useState<File | null>(null);
  const [passphrase, setPassphrase] = useState("");
  const bring = async () => {
    if (sealed !== null) await restoreBackup(sealed, passphrase);
  };
  return (
    <Form submit={t.restore} onSubmit={bring}>
      <p>{t.restoreOnlyIf}</p>
      <label>
        {t.backupFile}
        <input
          type="file"
          required
          onChange={({ currentTarget }) => setSealed(currentTarget.files?.[0] ?? null)}
        />
      </label>
      <Input
        {...givenPassphrase}
        label={t.itsPassphrase}
        value={passphrase}
        onText={setPassphrase}
      />
    </Form>
  );
}

export function Unlock({ hasPasskey }: { readonly hasPasskey: boolean }) {
  const [passphrase, setPassphrase] = useState("");
  return (
    <FirstPage title={t.lockedTitle}>
      <p>{t.lockedText}</p>
      <Form
        submit={t.unlock}
        busy={t.unlocking}
        onSubmit={() => unlock(passphraseLock(passphrase))}
      >
        <Input
          {...givenPassphrase}
          label={t.passphraseOrCode}
          autoFocus
          value={passphrase}
          onText={setPassphrase}
        />
      </Form>
      {hasPasskey && <Button onClick={() => unlock(passkeyLock())}>{t.usePasskey}</Button>}
    </FirstPage>
  );
}
