/**
 * Several devices of one person: a new one shows a code, another reads it; and any may be removed.
 */
import { useEffect, useState } from "preact/hooks";
import type { ClientError, Device } from "../client/package.ts";
import { Button, CopyButton, Form, Input, Problem, useStored } from "./parts.tsx";
import { arrivedBy, deviceLink } from "./place.ts";
import { QrCode } from "./qr.tsx";
import { addingOf, ReplaceKeys } from "./replacing.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { deviceLabel, failureText, linkDevice, me, toast } from "./session.ts";
import { t } from "./words/language.ts";

/** The new device's side, on its first page. */
export function LinkThis() {
  const [invitation, setInvitation] = useState(() => arrivedBy().ofDevice);
  const [code, setCode] = useState<string | null>(null);
  const [problem, setProblem] = useState<Partial<ClientError> | null>(null);
  useEffect(() => {
    let cancel = async () => undefined as unknown;
    let isOver = false;
    linkDevice(invitation, (linking) => {
      cancel = linking.cancel;
      if (isOver) void cancel();
      else setCode(linking.code);
    }).catch((error: Partial<ClientError>) => isOver || setProblem(error));
    return () => {
      isOver = true;
      void cancel();
    };
  }, [invitation]);
  const retryWith = (text: string) => {
    setProblem(null);
    setInvitation(text);
  };
  const isUninvited = /^invitation_/.test(problem?.code ?? "");
  if (isUninvited) return <AskInvitation isRefused={invitation !== null} onGiven={retryWith} />;
  if (problem !== null) return <Problem text={failureText(problem)} />;
  if (code === null) return <p role="status">{t.makingCode}</p>;
  return (
    <>
      <p>{t.scanHere}</p>
      <QrCode text={code} label={t.deviceCode} />
      <CopyButton text={code} label={t.copyCode} />
    </>
  );
}

type AskInvitationProps = {
  /** One was given, and is not good any more. */
  readonly isRefused: boolean;
  readonly onGiven: (text: string) => void;
};

/** Where the server takes only who is invited: the other device makes it. */
function AskInvitation({ isRefused, onGiven }: AskInvitationProps) {
  const [text, setText] = useState("");
  return (
    <>
      {isRefused && <Problem text={t.failures.invitation_invalid} />}
      <p>{t.deviceInvitationNeeded}</p>
      <Form submit={t.link} onSubmit={() => onGiven(text.trim())}>
        <Input
          label={t.deviceInvitation}
          value={text}
          onText={setText}
          required
          placeholder={t.pasteHere}
        />
      </Form>
    </>
  );
}

/** The other device's side, in the settings. */
export function Devices() {
  const devices = useStored(() => me.devices.list(), []);
  return (
    <>
      <h3>{t.devices}</h3>
      <p>{t.devicesText}</p>
      {devices !== null && devices.length > 1 && (
        <ul class="plainlist devices">
          {devices.map((device) => (
            <li key={device.did}>
              <DeviceLine device={device} all={devices} />
            </li>
          ))}
        </ul>
      )}
      <NewDevice />
      <ReplaceKeys />
    </>
  );
}

type DeviceProps = { readonly device: Device; readonly all: readonly Device[] };

function DeviceLine({ device, all }: DeviceProps) {
  const { did, name, isThis, addedAt, addedBy } = device;
  const by = all.find((one) => one.did === addedBy);
  return (
    <>
      <span class="lines">
        <bdi>{deviceLabel(name)}</bdi>
        <span class="size">{isThis ? t.thisDevice : addingOf(addedAt, by)}</span>
      </span>
      {!isThis && (
        <Button danger ask={t.removeDeviceAsk} onClick={() => me.devices.remove(did)}>
          {t.remove}
        </Button>
      )}
    </>
  );
}

function NewDevice() {
  const [code, setCode] = useState<string | null>(null);
  const [link, setLink] = useState<string | null>(null);
  const [name, setName] = useState("");
  const beginLinking = async () => {
    // Before there is an answer: a device that was invited already shows its code.
    setCode("");
    const made = await me.devices.invitation();
    setLink(made === null ? null : deviceLink(made.code));
  };
  const acceptDevice = async (text: string) => {
    await me.devices.acceptLink(text, name.trim() || t.device);
    setCode(null);
    toast(t.deviceLinked);
  };
  if (code === null)
    return (
      <p>
        <Button onClick={beginLinking}>{t.addDevice}</Button>
      </p>
    );
  return (
    <>
      {link !== null && (
        <>
          <p>{t.openOnNewDevice}</p>
          <QrCode text={link} label={t.deviceInvitation} />
          <CopyButton text={link} label={t.copyLink} />
          <p>{t.thenItsCode}</p>
        </>
      )}
      {canScan() && <Scanner onFound={setCode} />}
      <Form submit={t.link} busy={t.linking} onSubmit={() => acceptDevice(code)}>
        <Input
          value={code}
          onText={setCode}
          required
          label={t.codeShown}
          placeholder={t.pasteHere}
        />
        <Input
          value={name}
          onText={setName}
          maxLength={40}
          label={t.deviceName}
          placeholder={t.deviceExample}
        />
      </Form>
    </>
  );
}
