/** Passing a message on: a copy in one's own name, marked as somebody else's words. */
import type { StoredMessage } from "../client/package.ts";
import { isFile } from "./files.ts";
import { sendTo } from "./groups.tsx";
import { Avatar, Dialog, nameOf, useStored } from "./parts.tsx";
import { allOf, summaryOf } from "./people.tsx";
import { showConversation } from "./place.ts";
import { attempt, me, toast } from "./session.ts";
import { t } from "./words/language.ts";

type ForwardProps = { readonly message: StoredMessage; readonly onClose: () => void };

export function Forward({ message, onClose }: ForwardProps) {
  const all = useStored(() => allOf(), []);
  const targets = (all ?? []).filter(
    ({ id, person, group }) =>
      group?.standing === "joined" ||
      (id.startsWith("did:") && person?.isBlocked !== true && person?.isKnown !== false),
  );
  const forward = async (id: string, name: string) => {
    onClose();
    const content = isFile(message) ? await me.store.file(message) : (message.text ?? "");
    await sendTo(id, content, { isForwarded: true });
    toast(t.forwardedTo(name));
    showConversation(id);
  };
  return (
    <Dialog title={t.forwardTo} onClose={onClose}>
      <p>
        <bdi>{summaryOf(message, "")}</bdi>
      </p>
      <ul>
        {targets.map(({ id, person, group }) => {
          const name = nameOf(person, id, group);
          return (
            <li key={id}>
              <button type="button" class="row" onClick={() => attempt(() => forward(id, name))}>
                <Avatar {...{ id, name, person }} />
                <bdi class="name">{name}</bdi>
              </button>
            </li>
          );
        })}
      </ul>
    </Dialog>
  );
}
