/** Voice messages: recorded where the browser can, and heard before they are sent. */
import { useEffect, useRef, useState } from "preact/hooks";
import { IconButton } from "./parts.tsx";
import { attempt } from "./session.ts";
import { t } from "./words/language.ts";

/** In this order: Safari writes MP4 only, others WebM. */
const forms = [
  ["audio/webm;codecs=opus", "webm"],
  ["audio/mp4", "m4a"],
  ["audio/ogg;codecs=opus", "ogg"],
] as const;
const secondsMax = 3_600;

type RecorderProps = { readonly onFile: (file: File) => void };

/** What is recorded now; `null` while nothing is. */
export function Recorder({ onFile }: RecorderProps) {
  const [seconds, setSeconds] = useState<number | null>(null);
  const running = useRef<{ readonly end: (isKept: boolean) => void } | null>(null);
  const endRecording = (isKept: boolean) => running.current?.end(isKept);
  useEffect(() => () => endRecording(false), []);
  const startRecording = async () => {
    running.current = await record((file) => {
      running.current = null;
      setSeconds(null);
      if (file !== null) onFile(file);
    }, setSeconds);
  };
  if (seconds === null)
    return <IconButton shape="voice" label={t.record} onClick={() => attempt(startRecording)} />;
  return (
    <span class="recording" role="status">
      <IconButton shape="close" label={t.dropRecording} onClick={() => endRecording(false)} />
      <span>{t.recording(lengthOf(seconds))}</span>
      <IconButton shape="stop" label={t.stopRecording} onClick={() => endRecording(true)} />
    </span>
  );
}

const lengthOf = (seconds: number): string =>
  `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;

/** Throws a text for the user where a recorder or a microphone is missing. */
async function record(onEnd: (file: File | null) => void, onSecond: (seconds: number) => void) {
  if (globalThis.MediaRecorder === undefined || navigator.mediaDevices === undefined)
    throw new Error(t.noRecording);
  const form = forms.find(([type]) => MediaRecorder.isTypeSupported(type));
  if (form === undefined) throw new Error(t.noRecording);
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => {
    throw new Error(t.noMicrophone);
  });
  const [type, ending] = form;
  const recorder = new MediaRecorder(stream, { mimeType: type });
  const parts: Blob[] = [];
  let [seconds, isKept] = [0, true];
  const timer = setInterval(() => {
    onSecond(++seconds);
    if (seconds >= secondsMax) recorder.stop();
  }, 1_000);
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.onstop = () => {
    clearInterval(timer);
    for (const track of stream.getTracks()) track.stop();
    const plain = type.split(";")[0] ?? type;
    onEnd(isKept ? new File(parts, `${t.voiceName}.${ending}`, { type: plain }) : null);
  };
  recorder.start(1_000);
  onSecond(0);
  return {
    end: (kept: boolean) => {
      isKept = kept;
      if (recorder.state !== "inactive") recorder.stop();
    },
  };
}
