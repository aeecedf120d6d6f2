/** What opens over the conversations: inviting, writing to an address, about a person, settings. */
import { useMemo, useState } from "preact/hooks";
import type { Person } from "../client/package.ts";
import { lookUp } from "../client/trust/client.ts";
import { Choices } from "./choices.tsx";
import { Comparing } from "./comparing.tsx";
import { Devices } from "./devices.tsx";
import { saveAs } from "./files.ts";
import { Forward } from "./forward.tsx";
import { GroupView } from "./group-view.tsx";
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
  Phrase,
  useStored,
} from "./parts.tsx";
import {
  type Invited,
  invitationLink,
  type Panel,
  parseInvited,
  showConversation,
} from "./place.ts";
import { ProfileSettings } from "./profile.tsx";
import { QrCode } from "./qr.tsx";
import { AboutOperator, Report } from "./report.tsx";
import { canScan, Scanner } from "./scanner.tsx";
import { attempt, isTrial, me, node, operatorInvitation, warnOfState } from "./session.ts";
import { oneLine, sizeText } from "./text.ts";
import { chooseLanguage, chosenLanguage, t } from "./words/language.ts";
import { languages } from "./words/locale.ts";

type PanelsProps = { readonly panel: Panel; readonly open: (panel: Panel | null) => void };
type DialogProps = { readonly onClose: () => void };

export function PanelView({ panel, open, ...rest }: PanelsProps) {
  const props = { ...rest, onClose: () => open(null) };
  switch (panel.is) {
    case "invite":
      return <Invite {...props} open={open} />;
    case "write":
      return <Write {...props} to={panel.to} />;
    case "forward":
      return <Forward {...props} message={panel.message} />;
    case "report":
      return <Report {...props} message={panel.message} />;
    case "person":
      return <AboutPerson {...props} did={panel.did} />;
    case "group":
      return <GroupPanel {...props} id={panel.id} />;
    case "settings":
      return <Settings {...props} />;
  }
}

type Accepting = "first" | "all" | "none";

function Invite({ onClose, open }: DialogProps & Pick<PanelsProps, "open">) {
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
  const writeTo = (text: string) => open({ is: "write", to: parseInvited(text) });
  return (
    <Dialog title={t.addSomebody} onClose={onClose}>
      <p>{t.inviteText}</p>
      <QrCode text={link} label={t.inviteCode} />
      <div class="joinedfield">
        <input
          readOnly
          dir="ltr"
          value={link}
          aria-label={t.inviteLink}
          onFocus={({ currentTarget }) => currentTarget.select()}
        />
        <CopyButton text={link} label={t.copyLink} />
      </div>
      <label>
        {t.whoComes}
        <select
          value={accepts}
          onChange={({ currentTarget }) => setAccepts(currentTarget.value as Accepting)}
        >
          <option value="first">{t.acceptsFirst}</option>
          <option value="all">{t.acceptsAll}</option>
          <option value="none">{t.acceptsNone}</option>
        </select>
      </label>
      <hr />
      <Form isLine submit={t.write} onSubmit={() => writeTo(address)}>
        <Input
          label={t.writeTo}
          value={address}
          onText={setAddress}
          required
          placeholder={t.pasteHere}
        />
      </Form>
      {canScan() && !scans && <Button onClick={() => setScans(true)}>{t.scanCode}</Button>}
      {scans && <Scanner onFound={writeTo} />}
      <hr />
      <Button onClick={() => open({ is: "group", id: null })}>{t.makeGroup}</Button>
    </Dialog>
  );
}

/** Whom a link or an address leads to. The name of a link is a proposal of its sender. */
function Write({ to, onClose }: DialogProps & { readonly to: Invited }) {
  const [name, setName] = useState(oneLine(to.name));
  const beginConversation = async () => {
    const did = to.to.startsWith("did:") ? to.to : await lookUp(me.client, to.to);
    if (did === me.did) throw new Error(t.ownInvitation);
    const known = await me.store.person(did);
    await me.store.savePerson(did, {
      isKnown: true,
      isBlocked: false,
      ...(name === "" && known ? {} : { name }),
      ...(to.secret === null ? {} : { invitation: to.secret }),
    });
    showConversation(did);
    onClose();
  };
  return (
    <Dialog title={t.writeToSomebody} onClose={onClose}>
      <Form submit={t.openConversation} onSubmit={beginConversation}>
        <Input label={t.nameForPerson} value={name} onText={setName} maxLength={60} autoFocus />
        <p class="address">
          <bdi>{oneLine(to.to, 80)}</bdi>
        </p>
      </Form>
    </Dialog>
  );
}

function AboutPerson({ did, onClose }: DialogProps & { readonly did: string }) {
  const person = useStored(() => me.store.person(did), [did]);
  const name = nameOf(person, did);
  const claimed = oneLine(person?.claimed?.name ?? "");
  const savePerson = (change: Partial<Person>) => attempt(() => me.store.savePerson(did, change));
  return (
    <Dialog title={t.aboutPerson} onClose={onClose}>
      <div class="person">
        <Avatar id={did} {...{ name, person }} size="large" />
        <label>
          {t.nameAsYou}
          <input
            dir="auto"
            value={person?.name ?? ""}
            maxLength={60}
            onChange={({ currentTarget }) => savePerson({ name: currentTarget.value.trim() })}
          />
        </label>
      </div>
      {claimed !== "" && (
        <p>
          <Phrase text={t.callThemselves}>
            <bdi>{claimed}</bdi>
          </Phrase>
        </p>
      )}
      <h3>{t.isItThem}</h3>
      <p>{did.includes(":wp") ? t.keysProve : t.keysUnproven}</p>
      <Comparing did={did} />
      <Choices id={did} isChooser />
      <hr />
      <div class="buttons">
        <CopyButton text={did} label={t.copyAddress} />
        <BlockButton did={did} isBlocked={person?.isBlocked === true} />
        <DeleteButton id={did} onClose={onClose} />
      </div>
    </Dialog>
  );
}

function DeleteButton({ id, onClose }: DialogProps & { readonly id: string }) {
  const remove = async () => {
    onClose();
    showConversation(null);
    await me.store.removeConversation(id);
  };
  return (
    <Button danger ask={t.deleteConversationAsk} onClick={remove}>
      {t.deleteConversation}
    </Button>
  );
}

function GroupPanel({ id, ...props }: DialogProps & { readonly id: string | null }) {
  const group = useStored(async () => (id === null ? null : me.groups.get(id)), [id]);
  return (
    <Dialog title={id === null ? t.newGroup : t.aboutGroup} onClose={props.onClose}>
      <GroupView id={id} {...props} />
      {id !== null && group !== null && (
        <Choices id={id} isChooser={group.admin === me.did && group.standing === "joined"} />
      )}
      <div class="buttons">{id !== null && <DeleteButton id={id} {...props} />}</div>
    </Dialog>
  );
}

function Settings({ onClose }: DialogProps) {
  const people = useStored(() => me.store.people(), []);
  const usage = useStored(() => me.store.usage(), []);
  const blocked = (people ?? []).filter(({ isBlocked }) => isBlocked);
  return (
    <Dialog title={t.settings} onClose={onClose}>
      <ProfileSettings />
      <LanguageSettings />
      <Backup />
      {!isTrial && <LockSettings />}
      <Devices />
      {!isTrial && <Notifications />}
      {blocked.length > 0 && (
        <>
          <h3>{t.blocked}</h3>
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
      <h3>{t.about}</h3>
      <p>{t.aboutText(node.version)}</p>
      <AboutOperator />
      <p class="address">
        <Phrase text={t.yourAddress}>
          <bdi>{me.did}</bdi>
        </Phrase>{" "}
        <CopyButton text={me.did} label={t.copy} />
      </p>
      {usage !== null && (
        <p class="address">{t.usage(sizeText(usage.bytes), sizeText(usage.bytesMax))}</p>
      )}
    </Dialog>
  );
}

function LanguageSettings() {
  return (
    <label>
      {t.language}
      <select
        value={chosenLanguage() ?? ""}
        onChange={({ currentTarget }) => chooseLanguage(currentTarget.value)}
      >
        <option value="">{t.languageOfBrowser}</option>
        {Object.entries(languages).map(([code, name]) => (
          <option key={code} value={code} lang={code}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Backup() {
  const [passphrase, setPassphrase] = useState("");
  const saveBackup = async () => {
    saveAs(await new Response(await me.backup({ passphrase })).blob(), "waypost.backup");
    setPassphrase("");
    await warnOfState();
  };
  return (
    <>
      <h3>{t.backup}</h3>
      <p>{t.backupText}</p>
      <Form isLine submit={t.saveBackup} busy={t.sealing} onSubmit={saveBackup}>
        <Input
          {...newPassphrase}
          label={t.passphraseOf10}
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
      <h3>{t.notifications}</h3>
      <Check isOn={isOn} onChange={toggle}>
        {t.notifyMe}
      </Check>
    </>
  );
}
