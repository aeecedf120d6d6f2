/** The first page: a name, one button, and the way back from a backup. */
import { useState } from "preact/hooks";
import { LinkThis } from "./devices.tsx";
import { arrivedBy } from "./place.ts";
import { attempt, create, restore, textOf } from "./session.ts";
import { oneLine } from "./text.ts";

type Props = { readonly problem: string | null; readonly isBusy: boolean; readonly asksInvitation: boolean };

export function Welcome({ problem, isBusy, asksInvitation }: Props) {
  const { invited, invitation } = arrivedBy();
  const [name, setName] = useState("");
  const [code, setCode] = useState(invitation ?? "");
  const [other, setOther] = useState<"backup" | "device" | null>(null);
  const from = oneLine(invited?.name ?? "");
  return (
    <main class="welcome">
      <img src="/icon.svg" alt="" width={72} height={72} />
      <h1>Waypost</h1>
      <p>
        {invited === null ? "Messages that only you and the other can read." : <Inviter name={from} />} No phone number,
        no e-mail address: your keys are made here and stay here.
      </p>
      <form
        hidden={other !== null}
        onSubmit={(event) => {
          event.preventDefault();
          void create(name.trim(), code.trim() === "" ? null : code.trim());
        }}
      >
        <label>
          Your name, for those whom you invite
          <input
            value={name}
            maxLength={60}
            autocomplete="nickname"
            placeholder="Optional"
            onInput={({ currentTarget }) => setName(currentTarget.value)}
          />
        </label>
        {(asksInvitation || code !== "") && (
          <label>
            Invitation to this server
            <input value={code} autocomplete="off" onInput={({ currentTarget }) => setCode(currentTarget.value)} />
          </label>
        )}
        {problem !== null && (
          <p role="alert" class="doubt">
            {problem}
          </p>
        )}
        <button type="submit" class="main" disabled={isBusy}>
          {isBusy ? "Making your keys…" : "Start"}
        </button>
      </form>
      {other === "backup" && <Restore />}
      {other === "device" && <LinkThis />}
      {other === null && (
        <p class="buttons">
          <button type="button" class="plain" onClick={() => setOther("device")}>
            I use it on another device
          </button>
          <button type="button" class="plain" onClick={() => setOther("backup")}>
            I have a backup
          </button>
        </p>
      )}
    </main>
  );
}

function Inviter({ name }: { readonly name: string }) {
  if (name === "") return <>Somebody invites you to write.</>;
  return (
    <>
      <bdi>{name}</bdi> invites you to write. Only you two will be able to read it.
    </>
  );
}

function Restore() {
  const [sealed, setSealed] = useState<File | null>(null);
  const [passphrase, setPassphrase] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const bring = async () => {
    if (sealed === null) return;
    try {
      await restore((await sealed.slice(0, 1_000_000).text()).trim(), passphrase);
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        attempt(bring());
      }}
    >
      <label>
        Backup file
        <input type="file" required onChange={({ currentTarget }) => setSealed(currentTarget.files?.[0] ?? null)} />
      </label>
      <label>
        Its passphrase
        <input
          type="password"
          required
          value={passphrase}
          autocomplete="current-password"
          onInput={({ currentTarget }) => setPassphrase(currentTarget.value)}
        />
      </label>
      {problem !== null && (
        <p role="alert" class="doubt">
          {problem}
        </p>
      )}
      <button type="submit" class="main">
        Restore
      </button>
    </form>
  );
}
