/**
 * Small parts that several views use: icons, avatars, names, dialogs, QR codes,
 * and hooks over the session.
 */
import type { ComponentChildren, FunctionComponent, JSX } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import type { GroupFacts, Person } from "../client/package.ts";
import { smallPicture } from "./files.ts";
import { isTwin } from "./names.ts";
import { attempt, current, failureText, me, type State, subscribe, toast } from "./session.ts";
import { oneLine, shortDid } from "./text.ts";
import { t } from "./words/language.ts";

export function useSession(): State {
  const [, again] = useReducer((count: number) => count + 1, 0);
  // At once: what changes before the first paint counts too.
  useLayoutEffect(() => subscribe(() => again(undefined)), []);
  return current();
}

/** What the store says, read again after each change that concerns it. */
export function useStored<T>(read: () => Promise<T>, concerns: readonly unknown[]): T | null {
  const [value, setValue] = useState<T | null>(null);
  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = () =>
      read().then(
        (next) => isOver || setValue(next),
        () => undefined,
      );
    void refresh();
    // Many changes at once, as after a night offline, are one reading.
    const stop = me.on((event) => {
      if (event.type !== "changed" || timer !== undefined) return;
      timer = setTimeout(() => {
        timer = undefined;
        void refresh();
      }, 30);
    });
    return () => {
      isOver = true;
      clearTimeout(timer);
      stop();
    };
  }, concerns);
  return value;
}

type Loaded<T> = { readonly value: T | null; readonly problem: string | null };

/** What takes a moment: neither until it is there, or why it is not. */
export function useLoaded<T>(load: () => Promise<T>, concerns: readonly unknown[]): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ value: null, problem: null });
  useEffect(() => {
    const fail = (error: unknown) => setLoaded({ value: null, problem: failureText(error) });
    load().then((value) => setLoaded({ value, problem: null }), fail);
  }, concerns);
  return loaded;
}

/** A view that is loaded when it is first shown: what the first page needs stays small. */
export function onDemand<P extends object>(
  load: () => Promise<FunctionComponent<P>>,
): FunctionComponent<P> {
  let View: FunctionComponent<P> | null = null;
  return function OnDemand(props: P) {
    const [, again] = useReducer((count: number) => count + 1, 0);
    useEffect(() => {
      if (View !== null) return;
      const fail = (error: unknown) => toast(failureText(error));
      load().then((loaded) => {
        View = loaded;
        again(undefined);
      }, fail);
    }, []);
    return View === null ? null : <View {...props} />;
  };
}

// ------------------------------------------------------------------------------------------- forms

type InputProps = JSX.IntrinsicElements["input"] & {
  readonly label: string;
  readonly onText: (text: string) => void;
};

export function Input({ label, onText, ...rest }: InputProps) {
  return (
    <label>
      {label}
      <input
        autocomplete="off"
        dir="auto"
        {...rest}
        onInput={({ currentTarget }) => onText(currentTarget.value)}
      />
    </label>
  );
}

/** Of a passphrase that is made here. */
export const newPassphrase = {
  type: "password",
  autocomplete: "new-password",
  required: true,
  minLength: 10,
} as const;

/** Of one that was made before. */
export const givenPassphrase = {
  type: "password",
  autocomplete: "current-password",
  required: true,
} as const;

/** Safari ends the composition before it says which key did: 229 stands for all of them. */
export const isOfInputMethod = ({ isComposing, keyCode }: KeyboardEvent): boolean =>
  isComposing || keyCode === 229;

type CheckProps = {
  readonly isOn: boolean;
  readonly disabled?: boolean;
  readonly onChange: () => unknown;
  readonly children: ComponentChildren;
};

export function Check({ isOn, disabled = false, onChange, children }: CheckProps) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={isOn}
        disabled={disabled}
        onChange={() => attempt(onChange)}
      />
      {children}
    </label>
  );
}

type FormProps = {
  readonly submit: string;
  /** Its button while the work goes on. */
  readonly busy?: string;
  /** The button stands next to the field. */
  readonly isLine?: boolean;
  readonly onSubmit: () => unknown;
  readonly children: ComponentChildren;
};

/** While its work goes on it waits, and why that failed stands in it. */
export function Form({ submit, busy = submit, isLine = false, onSubmit, children }: FormProps) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const work = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await onSubmit();
    } catch (error) {
      setProblem(failureText(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void work();
      }}
    >
      <div class={isLine ? "joinedfield" : "fields"}>
        {children}
        <button type="submit" class={isLine ? "plain" : "main"} disabled={isBusy}>
          {isBusy ? busy : submit}
        </button>
      </div>
      <Problem text={problem} />
    </form>
  );
}

export function Problem({ text }: { readonly text: string | null }) {
  if (text === null) return null;
  return (
    <p role="alert" class="doubt">
      {text}
    </p>
  );
}

type ButtonProps = {
  readonly onClick: () => unknown;
  readonly main?: boolean;
  readonly danger?: boolean;
  readonly ask?: string;
  /** For who does not see, where the words of the button need what stands around them. */
  readonly label?: string;
  readonly children: ComponentChildren;
};

/** Why its work failed is shown. One that asks works after a yes. */
export function Button({
  onClick,
  main = false,
  danger = false,
  ask,
  label,
  children,
}: ButtonProps) {
  const click = () => (ask === undefined || confirm(ask) ? onClick() : undefined);
  const plain = danger ? "plain danger" : "plain";
  const look = main ? "main" : plain;
  return (
    <button type="button" class={look} aria-label={label} onClick={() => attempt(click)}>
      {children}
    </button>
  );
}

/** A text of the catalogue with `{}`, and what stands there. */
export function Phrase({
  text,
  children,
}: {
  readonly text: string;
  readonly children: ComponentChildren;
}) {
  const [before, after] = text.split("{}");
  return (
    <>
      {before}
      {children}
      {after}
    </>
  );
}

// ------------------------------------------------------------------------------------------ people

type BlockingProps = { readonly did: string; readonly isBlocked: boolean };

export function BlockButton({ did, isBlocked }: BlockingProps) {
  return (
    <Button danger={!isBlocked} onClick={() => me.store.savePerson(did, { isBlocked: !isBlocked })}>
      {isBlocked ? t.unblock : t.block}
    </Button>
  );
}

/** As this person calls them. What they call themselves has a mark, since anybody can claim it. */
export function nameOf(
  person: Person | null,
  conversation: string,
  group: GroupFacts | null = null,
): string {
  if (conversation === "unverified") return t.unsigned;
  if (!conversation.startsWith("did:")) return oneLine(group?.name ?? "") || t.group;
  const claimed = oneLine(person?.claimed?.name ?? "");
  const name = oneLine(person?.name ?? "") || oneLine(person?.alias ?? "");
  const shown = name || (claimed === "" ? "" : `~${claimed}`);
  if (shown === "") return shortDid(conversation);
  return isTwin(conversation) ? `${shown} (${shortDid(conversation)})` : shown;
}

/**
 * An address of a picture while it is shown: `null` until there is one, and "" when there is none.
 */
export function useUrl(
  load: () => Promise<Blob | null>,
  concerns: readonly unknown[],
): string | null {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    let made = "";
    let isOver = false;
    const showPicture = (picture: Blob | null) => {
      if (isOver) return;
      if (picture !== null) made = URL.createObjectURL(picture);
      setUrl(made);
    };
    load().then(showPicture, () => showPicture(null));
    return () => {
      isOver = true;
      setUrl(null);
      URL.revokeObjectURL(made);
    };
  }, concerns);
  return url;
}

type AvatarProps = {
  readonly id: string;
  readonly name: string;
  readonly person?: Person | null;
  readonly picture?: Blob | null;
  readonly size?: "large";
};

/** Of people who are known: a stranger's picture could be made to fill the memory. */
function usePicture({ id, person = null, picture = null }: AvatarProps): string | null {
  const atMs = person?.isKnown === true ? person.claimed?.atMs : undefined;
  const loadFace = async () =>
    smallPicture(atMs === undefined ? picture : (await me.store.profile(id)).picture);
  return useUrl(loadFace, [picture, id, atMs]);
}

/** Colors that white and black letters stand out from; a person keeps the same everywhere. */
const hues = [160, 20, 210, 275, 345, 85, 190, 45, 240, 310];

export function Avatar(props: AvatarProps) {
  const { id, name, size } = props;
  const url = usePicture(props);
  let hash = 7;
  for (const char of id) hash = (hash * 31 + char.charCodeAt(0)) >>> 0;
  const letter =
    name === shortDid(id) ? "?" : (/[\p{L}\p{N}]/u.exec(name)?.[0]?.toUpperCase() ?? "?");
  return (
    <span
      class={`avatar ${size ?? ""}`}
      style={{ "--tint": hues[hash % hues.length] }}
      aria-hidden="true"
    >
      {!url ? (
        letter
      ) : (
        <img src={url} alt="" onError={({ currentTarget }) => currentTarget.remove()} />
      )}
    </span>
  );
}

// ------------------------------------------------------------------------------------------- icons

const shapes = {
  add: "M12 5v14M5 12h14",
  back: "M15 5l-7 7 7 7",
  send: "M4 12l16-8-6 16-3-6z",
  attach:
    "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.4a1.7 1.7 0 0 1-2.3-2.3L14 8",
  more: "M4 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0M18 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  close: "M6 6l12 12M18 6L6 18",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  waiting: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  sent: "M5 13l4 4L19 7",
  received: "M2 13l4 4L15 8M11 16l1.5 1L22 8",
  failed: "M12 7v6M12 17h.01",
  down: "M6 10l6 6 6-6",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  mute: "M4 10v4h3l5 4V6l-5 4zM16 9l5 6M21 9l-5 6",
  voice:
    "M12 4a2.5 2.5 0 0 0-2.5 2.5v5a2.5 2.5 0 0 0 5 0v-5A2.5 2.5 0 0 0 12 4zM6 11a6 6 0 0 0 12 0M12 17v3",
  stop: "M7 7h10v10H7z",
  reply: "M9 7l-5 5 5 5M4 12h10a6 6 0 0 1 6 6",
} as const;
export type IconShape = keyof typeof shapes;

/** What points along the line of writing. */
const turning: ReadonlySet<IconShape> = new Set<IconShape>(["back", "send", "reply"]);

export function Icon({ shape, label }: { readonly shape: IconShape; readonly label?: string }) {
  return (
    <>
      <svg
        class={turning.has(shape) ? "icon turns" : "icon"}
        viewBox="0 0 24 24"
        aria-hidden="true"
      >
        <path d={shapes[shape]} />
      </svg>
      {label !== undefined && <span class="hidden">{label}</span>}
    </>
  );
}

type IconButtonProps = {
  readonly shape: IconShape;
  readonly label: string;
} & JSX.IntrinsicElements["button"];

export function IconButton({ shape, label, ...rest }: IconButtonProps) {
  return (
    <button type="button" class="round" aria-label={label} title={label} {...rest}>
      <Icon shape={shape} />
    </button>
  );
}

// ----------------------------------------------------------------------------------------- dialogs

type DialogProps = {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
};

/** The browser keeps the focus inside, closes it by Escape and gives the focus back. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const { current: dialog } = element;
    // Not its first button, which would be the one that closes it.
    dialog?.showModal();
    if (dialog?.querySelector("[autofocus]") === null) dialog.querySelector("h2")?.focus();
  }, []);
  return (
    <dialog closedby="any" ref={element} aria-label={title} onClose={onClose}>
      <div class="sheet">
        <header>
          <h2 tabIndex={-1}>{title}</h2>
          <IconButton shape="close" label={t.close} onClick={() => element.current?.close()} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  const copy = async () => {
    // A page over plain http has no clipboard: the person copies what is selected.
    if (navigator.clipboard === undefined) throw new Error(t.noClipboard);
    await navigator.clipboard.writeText(text);
    toast(t.copied);
  };
  return <Button onClick={copy}>{label}</Button>;
}
