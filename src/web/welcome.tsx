/** The first page: a name, one button, and the way back from a backup. Or, where there is a lock, what opens it. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type ClientError, passkeyLock, passphraseLock } from "../client/package.ts";
import { LinkThis } from "./devices.tsx";
import { Button, Form, givenPassphrase, Input } from "./parts.tsx";
import { arrivedBy } from "./place.ts";
import { create, restore, unlock } from "./session.ts";
import { oneLine } from "./text.ts";

export function Welcome() {
  const { invited, invitation } = arrivedBy();
  const [name, setName] = useState("");
  const [code, setCode] = useState(invitation ?? "");
  const [asksInvitation, setAsksInvitation] = useState(code !== "");
  const [other, setOther] = useState<"backup" | "device" | null>(null);
  const begin = async () => {
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
          "Messages that only you and those to whom you write can read."
        ) : (
          <>
            <bdi>{oneLine(invited.name) || "Somebody"}</bdi> invites you to a conversation that only
            you two can read.
          </>
        )}{" "}
        No phone number, no e-mail address: your keys are made here and stay here.
      </p>
      {other === null && (
        <Form submit="Start" busy="Making your keys…" onSubmit={begin}>
          <Input
            label="Your name, as others see it"
            value={name}
            onText={setName}
            maxLength={60}
            autocomplete="nickname"
            placeholder="Optional"
          />
          {asksInvitation && (
            <Input label="Invitation to this server" value={code} onText={setCode} />
          )}
        </Form>
      )}
      {other === "backup" && <Restore />}
      {other === "device" && <LinkThis />}
      <p class="buttons">
        {other === null ? (
          <>
            <Button onClick={() => setOther("device")}>I use it on another device</Button>
            <Button onClick={() => setOther("backup")}>I have a backup</Button>
          </>
        ) : (
          <Button onClick={() => setOther(null)}>Back</Button>
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
    if (sealed !== null) await restore(sealed, passphrase);
  };
  return (
    <Form submit="Restore" onSubmit={bring}>
      <p>
        Only when your other devices are lost: with one left, use it to link this one. A device that
        is left gets nothing more.
      </p>
      <label>
        Backup file
        <input
          type="file"
          required
          onChange={({ currentTarget }) => setSealed(currentTarget.files?.[0] ?? null)}
        />
      </label>
      <Input
        {...givenPassphrase}
        label="Its passphrase"
        value={passphrase}
        onText={setPassphrase}
      />
    </Form>
  );
}

export function Unlock({ hasPasskey }: { readonly hasPasskey: boolean }) {
  const [passphrase, setPassphrase] = useState("");
  return (
    <FirstPage title="Locked">
      <p>Your keys and messages are sealed on this device.</p>
      <Form submit="Unlock" busy="Unlocking…" onSubmit={() => unlock(passphraseLock(passphrase))}>
        <Input
          {...givenPassphrase}
          label="Passphrase, or the code that you printed"
          autoFocus
          value={passphrase}
          onText={setPassphrase}
        />
      </Form>
      {hasPasskey && <Button onClick={() => unlock(passkeyLock())}>Use the passkey</Button>}
    </FirstPage>
  );
}
