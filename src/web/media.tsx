/**
 * Sound and video that play in their place: read when somebody presses, and only what
 * begins as its kind does.
 */
import { useState } from "preact/hooks";
import type { StoredMessage } from "../client/package.ts";
import { Button, useUrl } from "./parts.tsx";
import { me, toast } from "./session.ts";
import { t } from "./words/language.ts";

/** Larger files are saved: the browser would hold them whole. */
const playedBytesMax = 200_000_000;

/** Whether it may be sound or video by what its sender calls it. */
export const mayPlay = ({ mediaType, sizeBytes, content }: StoredMessage): boolean =>
  content === "whole" && sizeBytes <= playedBytesMax && /^(audio|video)\//.test(mediaType);

type PlayerProps = { readonly message: StoredMessage; readonly name: string };

export function Player({ message, name }: PlayerProps) {
  const [isOpen, setOpen] = useState(false);
  return isOpen ? (
    <Playing message={message} name={name} />
  ) : (
    <Button label={t.playFile(name)} onClick={() => setOpen(true)}>
      ▶ {t.play}
    </Button>
  );
}

function Playing({ message, name }: PlayerProps) {
  const url = useUrl(() => playable(message), [message.key]);
  if (url === null) return <progress />;
  if (url === "") return <p class="gone">{t.noPlaying}</p>;
  return /^video\//.test(message.mediaType) ? (
    <video {...playerProps(url, name)} playsInline />
  ) : (
    <Sound url={url} name={name} />
  );
}

type SoundProps = { readonly url: string; readonly name: string };

/** What people send has no captions. */
const playerProps = (url: string, name: string) => ({
  src: url,
  class: "played",
  controls: true,
  "aria-label": name,
  onError: () => toast(t.noPlaying),
});

export function Sound({ url, name }: SoundProps) {
  return <audio {...playerProps(url, name)} />;
}

/** Under a type of this list, whatever its sender calls it. */
async function playable(message: StoredMessage): Promise<Blob | null> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let type: string | null = null;
  for await (const piece of me.store.pieces(message)) {
    type ??= playedType(piece);
    if (type === null) return null;
    parts.push(piece.slice());
  }
  return type === null ? null : new Blob(parts, { type });
}

/**
 * Of a file's first bytes. Source: RFC 6716 and 3533 (Ogg), Matroska, ISO 14496-12, RFC 2361
 * (WAVE), ID3 2.4, FLAC 1.2.
 */
const starts: readonly (readonly [type: string, start: RegExp])[] = [
  ["video/webm", /^\x1a\x45\xdf\xa3/],
  ["audio/ogg", /^OggS/],
  ["video/mp4", /^[\s\S]{4}ftyp/],
  ["audio/wav", /^RIFF[\s\S]{4}WAVE/],
  ["audio/mpeg", /^(?:ID3|\xff[\xe2-\xff])/],
  ["audio/flac", /^fLaC/],
];

function playedType(bytes: Uint8Array): string | null {
  const start = String.fromCharCode(...bytes.subarray(0, 12));
  return starts.find(([, form]) => form.test(start))?.[0] ?? null;
}
