/** The line to write: text by Enter, files by the button, by dropping or by pasting them. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { SendProgress, StoredMessage } from "../client/package.ts";
import type { Did } from "../core/codec/did.ts";
import { isShownPicture, pictureHeadBytes } from "./files.ts";
import { sendTo } from "./groups.tsx";
import { Sound } from "./media.tsx";
import { Callable, calledIn, type Member, meantBy, soughtIn, withCall } from "./mentions.tsx";
import { Icon, IconButton, isOfInputMethod, useUrl } from "./parts.tsx";
import { summaryOf } from "./people.tsx";
import { attempt, current, isSealed, me, toast, update } from "./session.ts";
import { fileName } from "./text.ts";
import { Recorder } from "./voice.tsx";
import { t } from "./words/language.ts";

type ComposerProps = {
  readonly to: string;
  readonly name: string;
  /** Of a group, without this user. */
  readonly members: readonly Member[];
  readonly answered: StoredMessage | null;
  readonly onAnswered: () => void;
  readonly onSend: () => void;
};

/** So many members one message calls at most. */
const callsMax = 32;
/** Larger ones are refused before they are read. */
const fileBytesMax = 1_000_000_000;
/**
 * What the store has not answered for: a page may be left in the same moment. Not where a
 * lock seals what is kept.
 */
const unwritten = {
  key: (to: string) => `draft ${to}`,
  read: (to: string) => (isSealed() ? null : sessionStorage.getItem(unwritten.key(to))),
  put: (to: string, text: string) => {
    if (!isSealed()) sessionStorage.setItem(unwritten.key(to), text);
  },
  remove: (to: string) => sessionStorage.removeItem(unwritten.key(to)),
};

/** Writes drafts one after the other; of those that come meanwhile only the last one. */
function draftWriter(to: string): (text: string) => void {
  let next: string | null = null;
  let isWriting = false;
  const saveNext = async () => {
    isWriting = true;
    while (next !== null) {
      const text = next;
      next = null;
      await me.store.saveDraft(to, text).catch(() => undefined);
    }
    isWriting = false;
    unwritten.remove(to);
  };
  return (text) => {
    next = text;
    unwritten.put(to, text);
    if (!isWriting) void saveNext();
  };
}

/** What was typed last and not sent. */
async function draftOf(to: string): Promise<string> {
  return unwritten.read(to) ?? (await me.store.draft(to));
}

/** So long after a letter no other device's words take its place. */
const pauseMs = 5_000;

/**
 * The words in the field, which the store keeps until they are sent: over a reload,
 * a lock and a closed page.
 */
function useDraft(to: string) {
  const [text, setText] = useState("");
  const typed = useRef<string | null>(null);
  const typedMs = useRef(Number.NEGATIVE_INFINITY);
  const keep = useMemo(() => draftWriter(to), [to]);
  useEffect(() => {
    let isOver = false;
    // What was typed before the store answered stays.
    const showKept = (kept: string) => !isOver && typed.current === null && setText(kept);
    void draftOf(to).then(showKept, () => undefined);
    // What another device has typed or sent shows as soon as nothing was typed here for a while.
    let timer: ReturnType<typeof setTimeout> | undefined;
    const showWhenIdle = () => {
      clearTimeout(timer);
      const leftMs = typedMs.current + pauseMs - performance.now();
      if (leftMs > 0) timer = setTimeout(showWhenIdle, leftMs);
      else
        void me.store.draft(to).then(
          (kept) => isOver || setText(kept),
          () => undefined,
        );
    };
    const stop = me.on((event) => {
      if (event.type === "changed" && event.what === "chosen" && event.conversation === to)
        showWhenIdle();
    });
    return () => {
      isOver = true;
      clearTimeout(timer);
      stop();
    };
  }, [to]);
  const write = (next: string) => {
    typed.current = next;
    typedMs.current = performance.now();
    setText(next);
    keep(next);
  };
  /** Empties the field. What is being sent stays a draft until the store has it as a message. */
  const take = () => {
    typed.current = "";
    typedMs.current = performance.now();
    setText("");
  };
  /** Unless something was typed meanwhile. */
  const settle = (kept: string) => {
    if (typed.current === "") write(kept);
  };
  return { text, write, take, settle };
}

/** The words and files to send, and what sends them. */
function useWriting({ to, members, answered, onAnswered, onSend }: ComposerProps) {
  const { text, write, take, settle } = useDraft(to);
  const [files, setFiles] = useState<readonly File[]>([]);
  const type = (next: string) => {
    write(next);
    void me.typing(to, next !== "").catch(() => undefined);
  };
  const sendText = async () => {
    if (text.trim() === "") return;
    const mentions = calledIn(text, members).map(({ did }) => did as Did);
    const calls = mentions.length === 0 ? {} : { mentions: mentions.slice(0, callsMax) };
    const { id: replyTo = null, from: replyFrom = null } = answered ?? {};
    const relation = { ...calls, replyTo, replyFrom };
    take();
    onAnswered();
    try {
      await sendTo(to, text, relation);
      settle("");
    } catch (error) {
      // It was not kept: the words come back.
      settle(text);
      throw error;
    }
  };
  const sendFile = async (file: File) => {
    let id = "";
    const onProgress = ({ sentBytes, totalBytes }: SendProgress) =>
      update({ sending: { ...current().sending, [id]: sentBytes / totalBytes } });
    id = (await sendTo(to, file, { onProgress }))?.id ?? "";
  };
  /** One that can't be read holds up no other. */
  const sendEach = async (chosen: readonly File[]) => {
    const unread: string[] = [];
    for (const file of chosen) {
      try {
        // Its bytes may be gone since it was chosen.
        await file.slice(0, 1).arrayBuffer();
      } catch {
        unread.push(fileName(file.name));
        continue;
      }
      await attempt(() => sendFile(file));
    }
    if (unread.length > 0) toast(t.unreadFiles(unread.join(", ")));
  };
  const send = () => {
    const chosen = files;
    setFiles([]);
    onSend();
    void attempt(async () => {
      // The words are the caption: they come right behind.
      await sendEach(chosen);
      await sendText();
    });
  };
  const add = (more: Iterable<File> | null | undefined) => {
    const chosen = [...(more ?? [])];
    const large = chosen.filter(({ size }) => size > fileBytesMax);
    if (large.length > 0)
      toast(t.tooLargeFiles(large.map(({ name }) => fileName(name)).join(", ")));
    setFiles((now) => [...now, ...chosen.filter((file) => !large.includes(file))]);
  };
  const drop = (file: File) => setFiles((now) => now.filter((one) => one !== file));
  const canSend = text.trim() !== "" || files.length > 0;
  return { text, type, files, add, drop, send, canSend };
}

type ChooserProps = { readonly add: (files: FileList | null) => void };

function FileChooser({ add }: ChooserProps) {
  const chooser = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={chooser}
        type="file"
        multiple
        hidden
        onChange={({ currentTarget }) => {
          add(currentTarget.files);
          currentTarget.value = "";
        }}
      />
      <IconButton shape="attach" label={t.sendFile} onClick={() => chooser.current?.click()} />
    </>
  );
}

/** Files that are dropped anywhere on the page. */
function useDropping(add: (files: Iterable<File>) => void): void {
  useEffect(() => {
    // Anywhere: a file that is dropped next to the field would open in place of the app.
    const dragged = (event: DragEvent) => {
      if (event.dataTransfer?.types.includes("Files") !== true) return;
      event.preventDefault();
      if (event.type === "drop") add(event.dataTransfer.files);
    };
    addEventListener("dragover", dragged);
    addEventListener("drop", dragged);
    return () => {
      removeEventListener("dragover", dragged);
      removeEventListener("drop", dragged);
    };
  }, []);
}

export function Composer(props: ComposerProps) {
  const { name, members, answered, onAnswered } = props;
  const [sought, setSought] = useState<string | null>(null);
  const { text, type, files, add, drop, send, canSend } = useWriting(props);
  const field = useRef<HTMLTextAreaElement>(null);
  const meant = meantBy(sought, members);
  const updateSought = () =>
    setSought(soughtIn(field.current?.value ?? "", field.current?.selectionStart ?? 0));
  const call = (member: Member) => {
    type(withCall(text, field.current?.selectionStart ?? text.length, member));
    setSought(null);
    field.current?.focus();
  };
  useEffect(() => {
    // A phone would open its keyboard.
    if (matchMedia("(hover: hover)").matches || answered !== null) field.current?.focus();
  }, [answered]);
  useDropping(add);
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        if (canSend) send();
      }}
    >
      {answered !== null && <Answered message={answered} onClose={onAnswered} />}
      <Callable meant={meant} onChoose={call} />
      {files.length > 0 && <Chosen files={files} onDrop={drop} />}
      <FileChooser add={add} />
      <textarea
        ref={field}
        rows={1}
        dir="auto"
        value={text}
        aria-label={t.messageTo(name)}
        placeholder={t.message}
        onInput={({ currentTarget }) => {
          type(currentTarget.value);
          updateSought();
        }}
        onPaste={(event) => {
          const { files: pasted = null } = event.clipboardData ?? {};
          const hasText = (event.clipboardData?.getData("text/plain") ?? "") !== "";
          // Cells and words of an office program bring a picture of themselves.
          if (pasted === null || pasted.length === 0 || hasText) return;
          event.preventDefault();
          add(pasted);
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") setSought(null);
          if (event.key !== "Enter" || event.shiftKey || isOfInputMethod(event)) return;
          event.preventDefault();
          const [first] = sought === "" ? [] : meant;
          if (first !== undefined) call(first);
          else if (canSend) send();
        }}
      />
      {!canSend && <Recorder onFile={(file) => add([file])} />}
      <button
        type="submit"
        class="round filled"
        aria-label={t.send}
        title={t.send}
        disabled={!canSend}
      >
        <Icon shape="send" />
      </button>
    </form>
  );
}

type ChosenProps = { readonly files: readonly File[]; readonly onDrop: (file: File) => void };

/** What is to be sent, before it is. */
function Chosen({ files, onDrop }: ChosenProps) {
  return (
    <ul class="chosen" aria-label={t.filesToSend}>
      {files.map((file, i) => (
        <li key={`${i} ${file.name}`}>
          <Preview file={file} />
          <bdi>{fileName(file.name)}</bdi>
          <IconButton
            shape="close"
            label={t.dontSend(fileName(file.name))}
            onClick={() => onDrop(file)}
          />
        </li>
      ))}
    </ul>
  );
}

function Preview({ file }: { readonly file: File }) {
  const loadPreview = async () => {
    const start = new Uint8Array(await file.slice(0, pictureHeadBytes).arrayBuffer());
    return isShownPicture(start, file.size) ? file : null;
  };
  const url = useUrl(loadPreview, [file]);
  const heard = useUrl(async () => (/^audio\//.test(file.type) ? file : null), [file]);
  if (heard) return <Sound url={heard} name={fileName(file.name)} />;
  return url ? <img src={url} alt="" /> : <Icon shape="file" />;
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
      <IconButton shape="close" label={t.dontAnswer} onClick={onClose} />
    </div>
  );
}
