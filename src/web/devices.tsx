/** Several devices of one person: a new one shows a code, another reads it; and any may be removed. */
import { useEffect, useState } from "preact/hooks";
import type { Device } from "../client/package.ts";
import { Button, CopyButton, Form, Input, Problem, QrCode, useStored } from "./parts.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { deviceLabel, linkDevice, me, textOf, toast } from "./session.ts";

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
    }).catch((error: unknown) => isOver || setProblem(textOf(error)));
    return () => {
      isOver = true;
      void cancel();
    };
  }, []);
  if (problem !== null) return <Problem text={problem} />;
  if (code === null) return <p role="status">Making a code…</p>;
  return (
    <>
      <p>
        On your other device, open Settings, then “Add a device”, and scan this code or paste its
        text.
      </p>
      <QrCode text={code} label="The code of this device" />
      <CopyButton text={code} label="Copy the code" />
    </>
  );
}

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const removing = "Remove this device? Your keys are replaced, and it reads nothing new.";
const replacing =
  "Make new keys now? Who has a copy of the old ones reads and signs nothing new. Your devices in this list get the new keys: remove those that aren't yours first. People who compared numbers with you see that they changed.";

/** The other device's side, in the settings. */
export function Devices() {
  const devices = useStored(() => me.devices.list(), []);
  return (
    <>
      <h3>Devices</h3>
      <p>On each of them you are the same person, with the same conversations.</p>
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
      <p>
        <Button danger ask={replacing} onClick={replaceKeys}>
          Somebody may have my keys
        </Button>
      </p>
    </>
  );
}

async function replaceKeys(): Promise<void> {
  await me.devices.replaceKeys();
  toast("You have new keys. Old ones open and sign nothing new.");
}

type DeviceProps = { readonly device: Device; readonly all: readonly Device[] };

function DeviceLine({ device, all }: DeviceProps) {
  const { did, name, isThis, addedAt, addedBy } = device;
  const by = all.find((one) => one.did === addedBy);
  const accepting =
    by === undefined ? "" : by.isThis ? ", by this device" : `, by ${deviceLabel(by.name)}`;
  return (
    <>
      <span class="lines">
        <bdi>{deviceLabel(name)}</bdi>
        <span class="size">
          {isThis ? "This device" : `Added ${dateTime.format(addedAt ?? undefined)}`}
          {isThis ? "" : accepting}
        </span>
      </span>
      {!isThis && (
        <Button danger ask={removing} onClick={() => me.devices.remove(did)}>
          Remove
        </Button>
      )}
    </>
  );
}

function NewDevice() {
  const [code, setCode] = useState<string | null>(null);
  const [name, setName] = useState("");
  const accept = async (text: string) => {
    await me.devices.acceptLink(text, name.trim() || "Device");
    setCode(null);
    toast("The device is linked, and gets your messages.");
  };
  if (code === null)
    return (
      <p>
        <Button onClick={() => setCode("")}>Add a device</Button>
      </p>
    );
  return (
    <>
      {canScan() && <Scanner onFound={setCode} />}
      <Form submit="Link" busy="Linking…" onSubmit={() => accept(code)}>
        <Input
          value={code}
          onText={setCode}
          required
          label="The code that the new device shows"
          placeholder="Paste it here"
        />
        <Input
          value={name}
          onText={setName}
          maxLength={40}
          label="What do you call it?"
          placeholder="Phone, for example"
        />
      </Form>
    </>
  );
}
