/**
 * What is chosen in a conversation, as a part of what opens about it: pinned, muted, put away,
 * and how long messages last.
 */
import { Check, useStored } from "./parts.tsx";
import { attempt, me } from "./session.ts";
import { durationOf } from "./text.ts";
import { t } from "./words/language.ts";

/** In seconds. */
const lasting = [10, 300, 3_600, 86_400, 604_800, 2_419_200];

type ChoicesProps = {
  readonly id: string;
  /** Who may say how long messages last. */
  readonly isChooser: boolean;
};

export function Choices({ id, isChooser }: ChoicesProps) {
  const chosen = useStored(() => me.store.chosen(id), [id]);
  if (chosen === null) return null;
  const { isPinned, isMuted, isArchived, lastsSeconds } = chosen;
  const choose = (choice: Parameters<typeof me.store.choose>[1]) => () =>
    me.store.choose(id, choice);
  return (
    <>
      <h3>{t.thisConversation}</h3>
      <Check isOn={isPinned} onChange={choose({ isPinned: !isPinned })}>
        {t.pin}
      </Check>
      <Check isOn={isMuted} onChange={choose({ isMuted: !isMuted })}>
        {t.mute}
      </Check>
      <Check isOn={isArchived} onChange={choose({ isArchived: !isArchived })}>
        {t.archive}
      </Check>
      {isChooser ? (
        <label>
          {t.lasting}
          <select
            value={String(lastsSeconds)}
            onChange={({ currentTarget }) =>
              attempt(() => me.store.setTimer(id, Number(currentTarget.value)))
            }
          >
            <option value="0">{t.staysForGood}</option>
            {[...new Set([...lasting, lastsSeconds])]
              .filter((seconds) => seconds > 0)
              .map((seconds) => (
                <option key={seconds} value={String(seconds)}>
                  {t.lastsFor(durationOf(seconds))}
                </option>
              ))}
          </select>
        </label>
      ) : (
        <p>{t.lastingByAdmin(choiceOf(lastsSeconds))}</p>
      )}
      <p>{t.timerText}</p>
    </>
  );
}

const choiceOf = (seconds: number): string =>
  seconds === 0 ? t.staysForGood : t.lastsFor(durationOf(seconds));
