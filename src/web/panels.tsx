/** What opens over the conversations: inviting, writing to an address, about a person, settings. */
import { useMemo, useState } from "preact/hooks";
import type { Person } from "../client/package.ts";
import { lookUp } from "../client/trust/client.ts";
import { Comparing } from "./comparing.tsx";
import { Devices } from "./devices.tsx";
import { saveAs } from "./files.ts";
import { GroupView } from "./groups.tsx";
import { LockSettings } from "./lock.tsx";
import { isNotifying, startNotifying, stopNotifying } from "./notify.ts";
import {
  Avatar,
  BlockButton,
  Button,
  Check,
  CopyButton,
  Dialog,
  Form,
  Input,
  nameOf,
  newPassphrase,
  QrCode,
  useStored,
} from "./parts.tsx";
import { type Invited, invitationLink, type Panel, parseInvited, show } from "./place.ts";
import { ProfileSettings } from "./profile.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { attempt, isTrial, me, node, operatorInvitation } from "./session.ts";
import { oneLine, sizeOf } from "./text.ts";

type PanelsProps = { readonly panel: Panel; readonly open: (panel: Panel | null) => void };
type Props = { readonly onClose: () => void };

export function PanelView({ panel, open, ...rest }: PanelsProps) {
  const props = { ...rest, onClose: () => open(null) };
  switch (panel.is) {
    case "invite":
      return <Invite {...props} open={open} />;
    case "write":
      return <Write {...props} to={panel.to} />;
    case "person":
      return <AboutPerson {...props} did={panel.did} />;
    case "group":
      return <GroupPanel {...props} id={panel.id} />;
    case "settings":
      return <Settings {...props} />;
  }
}

type Accepting = "first" | "all" | "none";

function Invite({ onClose, open }: Props & Pick<PanelsProps, "open">) {
  const profile = useStored(() => me.store.profile(), []);
  const [address, setAddress] = useState("");
  const [scans, setScans] = useState(false);
  const [accepts, setAccepts] = useState<Accepting>("first");
  const secret = useMemo(
    () => (accepts === "none" ? null : me.store.invitation({ isOnce: accepts === "first" })),
    [accepts],
  );
  if (profile === null) return null;
  const { name } = profile;
  const link = invitationLink(me.did, { name, secret, invitation: operatorInvitation() });
  const write = (text: string) => open({ is: "write", to: parseInvited(text) });
  return (
    <Dialog title="Add somebody" onClose={onClose}>
      <p>
        Let them scan this code, or send them the link in any other way. Then they can write to you.
      </p>
      <QrCode text={link} label="Your invitation as a QR code" />
      <div class="joinedfield">
        <input
          readOnly
          value={link}
          aria-label="Your invitation link"
          onFocus={({ currentTarget }) => currentTarget.select()}
        />
        <CopyButton text={link} label="Copy link" />
      </div>
      <label>
        Who comes by it
        <select
          value={accepts}
          onChange={({ currentTarget }) => setAccepts(currentTarget.value as Accepting)}
        >
          <option value="first">is accepted, the first one within a week</option>
          <option value="all">is accepted, everybody within a week</option>
          <option value="none">asks first</option>
        </select>
      </label>
      <hr />
      <Form isLine submit="Write" onSubmit={() => write(address)}>
        <Input
          label="Or write to a link, an address or a name"
          value={address}
          onText={setAddress}
          required
          placeholder="Paste it here"
        />
      </Form>
      {canScan() && !scans && (
        <Button onClick={() => setScans(true)}>Scan a code with the camera</Button>
      )}
      {scans && <Scanner onFound={write} />}
      <hr />
      <Button onClick={() => open({ is: "group", id: null })}>Make a group</Button>
    </Dialog>
  );
}

/** Whom a link or an address leads to. The name of a link is a proposal of its sender. */
function Write({ to, onClose }: Props & { readonly to: Invited }) {
  const [name, setName] = useState(oneLine(to.name));
  const begin = async () => {
    const did = to.to.startsWith("did:") ? to.to : await lookUp(me.client, to.to);
    if (did === me.did) throw new Error("This is your own invitation. Send it to somebody else.");
    const known = await me.store.person(did);
    await me.store.savePerson(did, {
      isKnown: true,
      isBlocked: false,
      ...(name === "" && known ? {} : { name }),
      ...(to.secret === null ? {} : { invitation: to.secret }),
    });
    show(did);
    onClose();
  };
  return (
    <Dialog title="Write to somebody" onClose={onClose}>
      <Form submit="Open conversation" onSubmit={begin}>
        <Input
          label="What do you call this person?"
          value={name}
          onText={setName}
          maxLength={60}
          autoFocus
        />
        <p class="address">
          <bdi>{oneLine(to.to, 80)}</bdi>
        </p>
      </Form>
    </Dialog>
  );
}

function AboutPerson({ did, onClose }: Props & { readonly did: string }) {
  const person = useStored(() => me.store.person(did), [did]);
  const name = nameOf(person, did);
  const claimed = oneLine(person?.claimed?.name ?? "");
  const save = (change: Partial<Person>) => attempt(() => me.store.savePerson(did, change));
  return (
    <Dialog title="About this person" onClose={onClose}>
      <div class="person">
        <Avatar id={did} {...{ name, person }} size="large" />
        <label>
          Name, as you call them
          <input
            value={person?.name ?? ""}
            maxLength={60}
            onChange={({ currentTarget }) => save({ name: currentTarget.value.trim() })}
          />
        </label>
      </div>
      {claimed !== "" && (
        <p>
          They call themselves <bdi>{claimed}</bdi>.
        </p>
      )}
      <h3>Is it really them?</h3>
      <p>
        {did.includes(":wp")
          ? "This person's keys prove themselves: the server can't exchange them. What it can't prove is that they belong to the person you mean."
          : "The server says which keys this person has, and nothing proves it."}
      </p>
      <Comparing did={did} />
      <hr />
      <div class="buttons">
        <CopyButton text={did} label="Copy address" />
        <BlockButton did={did} isBlocked={person?.isBlocked === true} />
        <DeleteButton id={did} onClose={onClose} />
      </div>
    </Dialog>
  );
}

function DeleteButton({ id, onClose }: Props & { readonly id: string }) {
  const remove = async () => {
    onClose();
    show(null);
    await me.store.removeConversation(id);
  };
  return (
    <Button danger ask="Delete the whole conversation from this device?" onClick={remove}>
      Delete conversation
    </Button>
  );
}

function GroupPanel({ id, ...props }: Props & { readonly id: string | null }) {
  return (
    <Dialog title={id === null ? "New group" : "About this group"} onClose={props.onClose}>
      <GroupView id={id} {...props} />
      <div class="buttons">{id !== null && <DeleteButton id={id} {...props} />}</div>
    </Dialog>
  );
}

function Settings({ onClose }: Props) {
  const people = useStored(() => me.store.people(), []);
  const usage = useStored(() => me.store.usage(), []);
  const blocked = (people ?? []).filter(({ isBlocked }) => isBlocked);
  return (
    <Dialog title="Settings" onClose={onClose}>
      <ProfileSettings />
      <Backup />
      {!isTrial && <LockSettings />}
      <Devices />
      {!isTrial && <Notifications />}
      {blocked.length > 0 && (
        <>
          <h3>Blocked</h3>
          <ul class="plainlist">
            {blocked.map((person) => (
              <li key={person.did}>
                <bdi>{nameOf(person, person.did)}</bdi>
                <BlockButton {...person} />
              </li>
            ))}
          </ul>
        </>
      )}
      <h3>About</h3>
      <p>
        Messages are sealed on this device and opened on the other. The server sees who writes to
        whom and when, not what. It also gives you this app: a server that lies could give you
        another one. Waypost {node.version} is young and was not audited.
      </p>
      <p class="address">
        Your address: <bdi>{me.did}</bdi> <CopyButton text={me.did} label="Copy" />
      </p>
      {usage !== null && (
        <p class="address">
          {sizeOf(usage.bytes)} of {sizeOf(usage.bytesMax)} are used on this device.
        </p>
      )}
    </Dialog>
  );
}

function Backup() {
  const [passphrase, setPassphrase] = useState("");
  const save = async () => {
    saveAs(await new Response(await me.backup({ passphrase })).blob(), "waypost.backup");
    setPassphrase("");
  };
  return (
    <>
      <h3>Backup</h3>
      <p>
        Your keys and messages are on this device only. With a backup and its passphrase you are the
        same person elsewhere, with people and messages as they are now.
      </p>
      <Form isLine submit="Save backup" busy="Sealing…" onSubmit={save}>
        <Input
          {...newPassphrase}
          label="Passphrase, 10 or more characters"
          value={passphrase}
          onText={setPassphrase}
        />
      </Form>
    </>
  );
}

function Notifications() {
  const [isOn, setOn] = useState(isNotifying());
  const toggle = async () => {
    await (isOn ? stopNotifying() : startNotifying());
    setOn(!isOn);
  };
  return (
    <>
      <h3>Notifications</h3>
      <Check isOn={isOn} onChange={toggle}>
        Tell me when somebody writes
      </Check>
    </>
  );
}
