/**
 * Reads a QR code with the camera where the browser can; elsewhere the text is pasted (a reader
 * in JavaScript is 46 KB).
 */
import { useEffect, useRef } from "preact/hooks";
import { failureText, toast } from "./session.ts";
import { t } from "./words/language.ts";

type Detector = {
  readonly detect: (source: HTMLVideoElement) => Promise<readonly { readonly rawValue: string }[]>;
};
type DetectorClass = new (options: { readonly formats: readonly string[] }) => Detector;
const detectorClass = (): DetectorClass | undefined =>
  (globalThis as { readonly BarcodeDetector?: DetectorClass }).BarcodeDetector;

export const canScan = (): boolean =>
  detectorClass() !== undefined && navigator.mediaDevices !== undefined;

const everyMs = 250;

export function Scanner({ onFound }: { readonly onFound: (text: string) => void }) {
  const video = useRef<HTMLVideoElement>(null);
  useEffect(() => {
    const Class = detectorClass();
    const { current: shown } = video;
    if (Class === undefined || shown === null) return;
    const detector = new Class({ formats: ["qr_code"] });
    let stream: MediaStream | null = null;
    let timer: ReturnType<typeof setInterval> | undefined;
    const startCamera = async () => {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      shown.srcObject = stream;
      await shown.play();
      timer = setInterval(async () => {
        const [found] = await detector.detect(shown).catch(() => []);
        if (found !== undefined) onFound(found.rawValue);
      }, everyMs);
    };
    startCamera().catch((error: unknown) => toast(failureText(error)));
    return () => {
      clearInterval(timer);
      for (const track of stream?.getTracks() ?? []) track.stop();
    };
  }, []);
  return <video ref={video} class="scanner" muted playsInline aria-label={t.camera} />;
}
