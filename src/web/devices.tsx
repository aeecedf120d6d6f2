/** Several devices of one person: a new one shows a code, another reads it; and any may be removed. */
import { useEffect, useState } from "preact/hooks";
import { Button, CopyButton, Form, Input, Problem, QrCode, useStored } from "./parts.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { linkDevice, me, textOf, toast } from "./session.ts";

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

/** The other device's side, in the settings. */
export function Devices() {
  const devices = useStored(() => me.devices.list(), []);
  const [code, setCode] = useState<string | null>(null);
  const accept = async (text: string) => {
    await me.devices.acceptLink(text);
    setCode(null);
    toast("The device is linked, and gets your messages.");
  };
  return (
    <>
      <h3>Devices</h3>
      <p>On each of them you are the same person, with the same conversations.</p>
      {devices !== null && devices.length > 1 && (
        <ul class="plainlist">
          {devices.map(({ did, addedAt, isThis }) => (
            <li key={did}>
              {isThis ? "This device" : `Linked ${dateTime.format(addedAt ?? undefined)}`}
              {!isThis && (
                <Button danger ask={removing} onClick={() => me.devices.remove(did)}>
                  Remove
                </Button>
              )}
            </li>
          ))}
        </ul>
      )}
      {code === null ? (
        <p>
          <Button onClick={() => setCode("")}>Add a device</Button>
        </p>
      ) : (
        <>
          {canScan() && <Scanner onFound={setCode} />}
          <Form isLine submit="Link" busy="Linking…" onSubmit={() => accept(code)}>
            <Input
              value={code}
              onText={setCode}
              required
              label="The code that the new device shows"
              placeholder="Paste it here"
            />
          </Form>
        </>
      )}
    </>
  );
}
