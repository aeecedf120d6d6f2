/**
 * The size of a picture as its header states it, read before the browser decodes anything.
 * Source: PNG 3rd edition 11.2.1, GIF89a 18, WebP RFC 9649 section 2, JPEG ITU T.81 B.2.2.
 */

type PictureSize = { readonly width: number; readonly height: number };

/** `null` when the first bytes state none. */
export function pictureSize(bytes: Uint8Array): PictureSize | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const begins = (text: string, at = 0) =>
    [...text].every((char, i) => bytes[at + i] === char.charCodeAt(0));
  try {
    if (begins("PNG", 1)) return { width: view.getUint32(16), height: view.getUint32(20) };
    if (begins("GIF8")) return { width: view.getUint16(6, true), height: view.getUint16(8, true) };
    if (begins("RIFF") && begins("WEBP", 8)) return webpSize(view, bytes);
    return bytes[0] === 0xff && bytes[1] === 0xd8 ? jpegSize(view) : null;
  } catch (error) {
    // The header is longer than what was given.
    if (error instanceof RangeError) return null;
    throw error;
  }
}

function webpSize(view: DataView, bytes: Uint8Array): PictureSize | null {
  const kind = String.fromCharCode(...bytes.subarray(12, 16));
  if (kind === "VP8 ")
    return {
      width: view.getUint16(26, true) & 0x3fff,
      height: view.getUint16(28, true) & 0x3fff,
    };
  if (kind === "VP8L") {
    const bits = view.getUint32(21, true);
    return { width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 };
  }
  if (kind !== "VP8X") return null;
  const side = (at: number) => view.getUint16(at, true) + view.getUint8(at + 2) * 65_536 + 1;
  return { width: side(24), height: side(27) };
}

/** Markers of frames; C4, C8 and CC are others. */
const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);

function jpegSize(view: DataView): PictureSize | null {
  for (let at = 2; view.getUint8(at) === 0xff; ) {
    const marker = view.getUint8(at + 1);
    if (isFrame(marker)) return { height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
    // Fill bytes may stand before a marker.
    at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
  }
  return null;
}
