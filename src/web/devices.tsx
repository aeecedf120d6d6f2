/** Several devices of one person: a new one shows a code, another reads it; and any may be removed. */
import { useEffect, useState } from "preact/hooks";
import type { Device } from "../client/package.ts";
import { Button, CopyButton, Form, Input, Problem, useStored } from "./parts.tsx";
import { QrCode } from "./qr.tsx";
import { addingOf, ReplaceKeys } from "./replacing.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { deviceLabel, failureText, linkDevice, me, toast } from "./session.ts";
import { t } from "./words/language.ts";

/** The new device's side, on its first page. */
export function LinkThis() {
  const [code, setCode] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    let cancel = async () => undefined as unknown;
    let isOver = false;
    linkDevice((linking) => {
      cancel = linking.cancel;
      if (isOver) void cancel();
      else setCode(linking.code);
    }).catch((error: unknown) => isOver || setProblem(failureText(error)));
    return () => {
      isOver = true;
      void cancel();
    };
  }, []);
  if (problem !== null) return <Problem text={problem} />;
  if (code === null) return <p role="status">{t.makingCode}</p>;
  return (
    <>
      <p>{t.scanHere}</p>
      <QrCode text={code} label={t.deviceCode} />
      <CopyButton text={code} label={t.copyCode} />
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
  const [name, setName] = useState("");
  const accept = async (text: string) => {
    await me.devices.acceptLink(text, name.trim() || t.device);
    setCode(null);
    toast(t.deviceLinked);
  };
  if (code === null)
    return (
      <p>
        <Button onClick={() => setCode("")}>{t.addDevice}</Button>
      </p>
    );
  return (
    <>
      {canScan() && <Scanner onFound={setCode} />}
      <Form submit={t.link} busy={t.linking} onSubmit={() => accept(code)}>
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
