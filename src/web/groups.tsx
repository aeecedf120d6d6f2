/**
 * Groups in a conversation: sending to all of one, the request of a stranger's,
 * and what its changes say.
 */
import { groupType, timerType } from "../client/mail/content.ts";
import type { Group, MessageOptions, StoredMessage, Waypost } from "../client/package.ts";
import { Button, nameOf, Phrase, useStored } from "./parts.tsx";
import { me } from "./session.ts";
import { durationOf, oneLine } from "./text.ts";
import { t } from "./words/language.ts";

type SentContent = Parameters<Waypost["send"]>[1];

/** To a person, or to all of a group. */
export async function sendTo(
  conversation: string,
  content: SentContent,
  options: MessageOptions = {},
) {
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
  return (did) => {
    if (did === me.did) return t.you;
    return did === null ? t.somebody : nameOf(people?.get(did) ?? null, did);
  };
}

/** What somebody did with the conversation, in place of a message. */
export const isChange = ({ mediaType, group, verified, isOwn }: StoredMessage): boolean =>
  (isOwn || verified === true) &&
  ((mediaType === groupType && group !== null) || mediaType === timerType);

/**
 * What who signed it did. The store has kept only what counted as a change; before
 * statements it was another form.
 */
export function changeOf({ text, from }: StoredMessage): string {
  const who = from === me.did ? "you" : "they";
  const change = JSON.parse(text ?? "{}") as {
    seconds?: number;
    left?: number;
    version?: number;
    isNew?: boolean;
    hasNewAdmin?: boolean;
    name?: string;
    members?: object;
  };
  if (change.seconds === 0) return t.endedTimer(who);
  if (change.seconds !== undefined) return t.setTimer(durationOf(change.seconds), who);
  if (change.left !== undefined) return t.leftGroup(who);
  if (change.hasNewAdmin === true) return t.tookOverGroup(who);
  const name = oneLine(change.name ?? "") || t.group;
  const people = t.peopleCount(Object.keys(change.members ?? {}).length);
  const isNew = change.isNew === true || change.version === 1;
  return isNew ? t.madeGroup(name, people, who) : t.changedGroup(name, people, who);
}

/** Somebody unknown has put this person into a group; or they are no longer in it. */
export function GroupState({ group }: { readonly group: Group }) {
  const nameFor = useNames();
  if (group.standing === "out") return <p class="request">{t.noLongerIn}</p>;
  return (
    <section class="request" aria-label={t.request}>
      <p>
        <Phrase text={t.invitesToGroup(t.peopleCount(group.members.length))}>
          <bdi>{nameFor(group.admin)}</bdi>
        </Phrase>
      </p>
      <div class="buttons">
        <Button main onClick={() => group.join()}>
          {t.accept}
        </Button>
        <Button danger onClick={() => group.leave()}>
          {t.decline}
        </Button>
      </div>
    </section>
  );
}
