/** About a group: making one, and who is in it. */
import { useState } from "preact/hooks";
import type { Group, Person } from "../client/package.ts";
import { Button, Check, Form, Input, nameOf, Phrase, useStored } from "./parts.tsx";
import { showConversation } from "./place.ts";
import { me } from "./session.ts";
import { t } from "./words/language.ts";

type PanelProps = { readonly id: string | null; readonly onClose: () => void };

/** A new group, or one as it is: its admin changes it, the others see it. */
export function GroupView({ id, onClose }: PanelProps) {
  const group = useStored(async () => (id === null ? null : me.groups.get(id)), [id]);
  const people = useStored(() => me.store.people(), []);
  if (people === null || (id !== null && group === null)) return null;
  const leave = async () => {
    onClose();
    await group?.leave();
  };
  return (
    <>
      <GroupForm
        key={`${group?.admin} ${group?.next} ${group?.members.join()}`}
        {...{ group, people, onClose }}
      />
      {group !== null && <Handing group={group} people={people} />}
      {group !== null && group.standing !== "out" && !mustStay(group) && (
        <div class="buttons">
          <Button danger ask={t.leaveAsk} onClick={leave}>
            {t.leaveGroup}
          </Button>
        </div>
      )}
    </>
  );
}

const mustStay = ({ admin, next, members }: Group): boolean =>
  admin === me.did && next === null && members.length > 1;

/** Who is to be the admin, or must be before this person can leave. */
function Handing({ group, people }: { readonly group: Group; readonly people: readonly Person[] }) {
  const nameFor = (did: string) => nameOf(people.find((one) => one.did === did) ?? null, did);
  const { next, second } = group;
  return (
    <>
      {mustStay(group) && <p>{t.mustHandOver}</p>}
      {next !== null && (
        <p>
          <Phrase text={t.becomesAdmin}>
            <bdi>{nameFor(next)}</bdi>
          </Phrase>
        </p>
      )}
      {second !== null && (
        <p>
          <Phrase text={t.secondAdmin}>
            <bdi>{nameFor(second)}</bdi>
          </Phrase>
        </p>
      )}
    </>
  );
}

type FormProps = Pick<PanelProps, "onClose"> & {
  readonly group: Group | null;
  readonly people: readonly Person[];
};

function GroupForm({ group, people, onClose }: FormProps) {
  const nameFor = (did: string) => nameOf(people.find((one) => one.did === did) ?? null, did);
  const known = people
    .filter(({ isKnown, isBlocked }) => isKnown && !isBlocked)
    .map(({ did }) => did as string);
  const [name, setName] = useState(group?.name ?? "");
  const members = (group?.members ?? []).filter((did) => did !== me.did) as string[];
  const [chosen, setChosen] = useState(new Set(members));
  const isMine = group === null || (group.admin === me.did && group.standing === "joined");
  const listed = isMine ? [...new Set([...members, ...known])] : members;
  const saveGroup = async () => {
    const add = [...chosen].filter((did) => !members.includes(did));
    const remove = members.filter((did) => !chosen.has(did));
    if (group !== null) await group.change({ name: name.trim(), add, remove });
    else showConversation((await me.groups.create(name.trim(), add)).id);
    onClose();
  };
  const toggleMember = (did: string) =>
    setChosen((now) =>
      now.has(did) ? new Set([...now].filter((one) => one !== did)) : new Set([...now, did]),
    );
  const list = (
    <fieldset class="plainlist">
      <legend>{isMine ? t.whoIsIn : t.withYou(t.peopleCount(members.length + 1))}</legend>
      <ul>
        {listed.map((did) => (
          <li key={did}>
            <Check isOn={chosen.has(did)} disabled={!isMine} onChange={() => toggleMember(did)}>
              <bdi>{nameFor(did)}</bdi>
              {did === group?.admin && <span class="good">{t.admin}</span>}
            </Check>
            {isMine && group?.next === null && members.includes(did) && (
              <Button
                ask={t.makeAdminAsk}
                label={t.makeAdminOf(nameFor(did))}
                onClick={() => group.change({ admin: did })}
              >
                {t.makeAdmin}
              </Button>
            )}
          </li>
        ))}
      </ul>
      {listed.length === 0 && <p>{t.noneKnown}</p>}
    </fieldset>
  );
  if (!isMine) return list;
  return (
    <Form submit={group === null ? t.makeTheGroup : t.save} onSubmit={saveGroup}>
      <Input label={t.nameOfGroup} value={name} onText={setName} maxLength={60} required />
      {list}
    </Form>
  );
}
