/** The line to write: text by Enter, files by the button, by dropping or by pasting them. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { SendProgress, StoredMessage } from "../client/package.ts";
import { sendTo } from "./groups.tsx";
import { Icon, IconButton } from "./parts.tsx";
import { summaryOf } from "./people.tsx";
import { attempt, current, me, toast, update } from "./session.ts";
import { fileName } from "./text.ts";

type Props = {
  readonly to: string;
  readonly name: string;
  readonly answered: StoredMessage | null;
  readonly onAnswered: () => void;
  readonly onSend: () => void;
};

/** What was not sent yet, for as long as the page is open. */
const drafts = new Map<string, string>();
/** Larger ones are refused before they are read. */
const fileBytesMax = 1_000_000_000;

/** The words in the field, and what sends them and files. */
function useWriting({ to, answered, onAnswered, onSend }: Props) {
  const [text, setText] = useState(drafts.get(to) ?? "");
  const write = (next: string) => {
    setText(next);
    if (next === "") drafts.delete(to);
    else drafts.set(to, next);
  };
  const type = (next: string) => {
    write(next);
    void me.typing(to, next !== "").catch(() => undefined);
  };
  const sendText = () => {
    if (text.trim() === "") return;
    write("");
    onAnswered();
    onSend();
    const relation = answered === null ? {} : { replyTo: answered.id };
    void attempt(() =>
      sendTo(to, text, relation).catch((error: unknown) => {
        // It was not kept: the words come back.
        if (!drafts.has(to)) write(text);
        throw error;
      }),
    );
  };
  const sendFile = async (file: File) => {
    let id = "";
    const onProgress = ({ sentBytes, totalBytes }: SendProgress) =>
      update({ sending: { ...current().sending, [id]: sentBytes / totalBytes } });
    id = (await sendTo(to, file, { onProgress }))?.id ?? "";
  };
  const sendEach = async (files: readonly File[]) => {
    onSend();
    for (const file of files) {
      if (file.size > fileBytesMax) toast(`${fileName(file.name)} is larger than 1 GB.`);
      else await sendFile(file);
    }
  };
  const sendFiles = (files: Iterable<File> | null | undefined) =>
    void attempt(() => sendEach([...(files ?? [])]));
  return { text, type, sendText, sendFiles };
}

export function Composer(props: Props) {
  const { name, answered, onAnswered } = props;
  const { text, type, sendText, sendFiles } = useWriting(props);
  const field = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  useEffect(() => {
    // A phone would open its keyboard.
    if (matchMedia("(hover: hover)").matches || answered !== null) field.current?.focus();
  }, [answered]);
  useEffect(() => {
    // Anywhere: a file that is dropped beside the field would open in place of the app.
    const drop = (event: DragEvent) => {
      if (event.dataTransfer?.types.includes("Files") !== true) return;
      event.preventDefault();
      if (event.type === "drop") sendFiles(event.dataTransfer.files);
    };
    addEventListener("dragover", drop);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drop);
      removeEventListener("drop", drop);
    };
  }, []);
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        sendText();
      }}
    >
      {answered !== null && <Answered message={answered} onClose={onAnswered} />}
      <input
        ref={chooser}
        type="file"
        multiple
        hidden
        onChange={({ currentTarget }) => {
          sendFiles(currentTarget.files);
          currentTarget.value = "";
        }}
      />
      <IconButton shape="attach" label="Send a file" onClick={() => chooser.current?.click()} />
      <textarea
        ref={field}
        rows={1}
        dir="auto"
        value={text}
        aria-label={`Message to ${name}`}
        placeholder="Message"
        onInput={({ currentTarget }) => type(currentTarget.value)}
        onPaste={(event) => {
          const { files = null } = event.clipboardData ?? {};
          if (files === null || files.length === 0) return;
          event.preventDefault();
          sendFiles(files);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          sendText();
        }}
      />
      <button
        type="submit"
        class="round filled"
        aria-label="Send"
        title="Send"
        disabled={text.trim() === ""}
      >
        <Icon shape="send" />
      </button>
    </form>
  );
}

function Answered({
  message,
  onClose,
}: {
  readonly message: StoredMessage;
  readonly onClose: () => void;
}) {
  return (
    <div class="answered">
      <Icon shape="reply" />
      <bdi>{summaryOf(message)}</bdi>
      <IconButton shape="close" label="Don't answer this message" onClick={onClose} />
    </div>
  );
}
