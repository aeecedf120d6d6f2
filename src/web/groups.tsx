/** Groups: making one, who is in it, the request of a stranger's, and what its changes say. */
import { useState } from "preact/hooks";
import { groupType } from "../client/mail/content.ts";
import type { Group, MessageOptions, Person, StoredMessage, Waypost } from "../client/package.ts";
import { Button, Check, Form, Input, nameOf, useStored } from "./parts.tsx";
import { show } from "./place.ts";
import { me } from "./session.ts";
import { oneLine } from "./text.ts";

type Content = Parameters<Waypost["send"]>[1];

/** To a person, or to all of a group. */
export async function sendTo(conversation: string, content: Content, options: MessageOptions = {}) {
  const group = await me.groups.get(conversation);
  return group === null
    ? me.send(conversation, content, options)
    : (await group.send(content, options))[0];
}

export async function react(message: StoredMessage, reaction: string): Promise<void> {
  const { conversation, id, from } = message;
  const group = await me.groups.get(conversation);
  const isOne = group === null;
  await (isOne ? me.react(conversation, id, reaction, from) : group.react(id, reaction, from));
}

export type Names = (did: string | null) => string;

/** What this person calls others, as a function that changes with them. */
export function useNames(): Names {
  const people = useStored(
    async () => new Map((await me.store.people()).map((one) => [one.did as string, one])),
    [],
  );
  return (did) =>
    did === me.did ? "You" : did === null ? "Somebody" : nameOf(people?.get(did) ?? null, did);
}

export const isChange = ({ mediaType, group, verified, isOwn }: StoredMessage): boolean =>
  mediaType === groupType && group !== null && (isOwn || verified === true);

/** What who signed it did. The store has kept only what counted as a change; before statements it was another form. */
export function changeOf({ text }: StoredMessage): string {
  const change = JSON.parse(text ?? "{}") as {
    left?: number;
    version?: number;
    isNew?: boolean;
    name?: string;
    members?: object;
  };
  if (change.left !== undefined) return "left the group";
  const named = `“${oneLine(change.name ?? "") || "Group"}” with ${countOf(Object.keys(change.members ?? {}).length)}`;
  const isNew = change.isNew === true || change.version === 1;
  return isNew ? `made the group ${named}` : `changed the group to ${named}`;
}

const countOf = (count: number): string => (count === 1 ? "1 person" : `${count} people`);

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
      <GroupForm key={group?.members.join()} {...{ group, people, onClose }} />
      {group !== null && group.standing !== "out" && (
        <div class="buttons">
          <Button danger ask={leavingOf(group)} onClick={leave}>
            Leave the group
          </Button>
        </div>
      )}
    </>
  );
}

const leavingOf = ({ admin }: Group): string =>
  admin === me.did
    ? "Leave this group? You get no more messages from it, and it stays as it is: only you can change who is in it."
    : "Leave this group? You get no more messages from it.";

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
  const save = async () => {
    const add = [...chosen].filter((did) => !members.includes(did));
    const remove = members.filter((did) => !chosen.has(did));
    if (group !== null) await group.change({ name: name.trim(), add, remove });
    else show((await me.groups.create(name.trim(), add)).id);
    onClose();
  };
  const choose = (did: string) =>
    setChosen((now) =>
      now.has(did) ? new Set([...now].filter((one) => one !== did)) : new Set([...now, did]),
    );
  const list = (
    <fieldset class="plainlist">
      <legend>
        {isMine ? "Who is in it with you" : `With you, ${countOf(members.length + 1)}`}
      </legend>
      <ul>
        {listed.map((did) => (
          <li key={did}>
            <Check isOn={chosen.has(did)} disabled={!isMine} onChange={() => choose(did)}>
              <bdi>{nameFor(did)}</bdi>
              {did === group?.admin && <span class="good">admin</span>}
            </Check>
          </li>
        ))}
      </ul>
      {listed.length === 0 && <p>No one you know yet. Add someone first.</p>}
    </fieldset>
  );
  if (!isMine) return list;
  return (
    <Form submit={group === null ? "Make the group" : "Save"} onSubmit={save}>
      <Input label="Name of the group" value={name} onText={setName} maxLength={60} required />
      {list}
    </Form>
  );
}

/** Somebody unknown has put this person into a group; or they are no longer in it. */
export function GroupState({ group }: { readonly group: Group }) {
  const nameFor = useNames();
  if (group.standing === "out") return <p class="request">You are no longer in this group.</p>;
  return (
    <section class="request" aria-label="Request">
      <p>
        <bdi>{nameFor(group.admin)}</bdi>
        {` invites you to a group of ${countOf(group.members.length)}. Once you accept, you can write there.`}
      </p>
      <div class="buttons">
        <Button main onClick={() => group.join()}>
          Accept
        </Button>
        <Button danger onClick={() => group.leave()}>
          Decline
        </Button>
      </div>
    </section>
  );
}
