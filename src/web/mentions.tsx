/**
 * Calling members of a group by `@` and their name: who may be meant while one
 * types, and whom a text calls.
 */
import { folded } from "./text.ts";
import { t } from "./words/language.ts";

export type Member = { readonly did: string; readonly name: string };

const shownMax = 5;

/** What is typed behind the last `@` before the caret; `null` when it begins no name. */
export function soughtIn(text: string, caret: number): string | null {
  const before = text.slice(0, caret);
  const at = before.lastIndexOf("@");
  const isFree = at === 0 || /[\s(]/.test(before[at - 1] ?? "");
  const sought = before.slice(at + 1);
  return at === -1 || !isFree || sought.length > 30 || sought.includes("\n") ? null : sought;
}

/** The members whose name begins so. */
export function meantBy(sought: string | null, members: readonly Member[]): readonly Member[] {
  if (sought === null) return [];
  const begin = folded(sought);
  return members.filter(({ name }) => folded(name).startsWith(begin)).slice(0, shownMax);
}

/** With the name in place of what was typed behind the last `@`. */
export function withCall(text: string, caret: number, { name }: Member): string {
  const at = text.slice(0, caret).lastIndexOf("@");
  return `${text.slice(0, at)}@${name} ${text.slice(caret)}`;
}

/** The members whose name stands behind an `@` in the text. */
export const calledIn = (text: string, members: readonly Member[]): readonly Member[] =>
  members.filter(({ name }) => text.includes(`@${name}`));

type CallableProps = {
  readonly meant: readonly Member[];
  readonly onChoose: (member: Member) => void;
};

export function Callable({ meant, onChoose }: CallableProps) {
  if (meant.length === 0) return null;
  return (
    <ul class="callable" aria-label={t.membersToCall}>
      {meant.map((member) => (
        <li key={member.did}>
          <button type="button" class="plain" onClick={() => onChoose(member)}>
            @<bdi>{member.name}</bdi>
          </button>
        </li>
      ))}
    </ul>
  );
}
