/**
 * The server's side of a WebSocket (RFC 6455) for a test's node where the runtime has none: text
 * and bytes, unfragmented as clients of live sessions send them, pings and closing.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** What live sessions take of a socket. */
type ServerSocket = {
  readonly data: unknown;
  readonly send: (content: string | Uint8Array) => number;
  readonly sendText: (text: string) => number;
  readonly close: (code?: number, reason?: string) => void;
  readonly terminate: () => void;
  readonly getBufferedAmount: () => number;
};

export type FrameHandlers = {
  readonly open?: (socket: ServerSocket) => unknown;
  readonly message: (socket: ServerSocket, frame: string | Uint8Array) => unknown;
  readonly close?: (socket: ServerSocket, code: number, reason: string) => unknown;
};

const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const opcodes = { text: 1, bytes: 2, close: 8, ping: 9, pong: 10 } as const;
const closedWithoutCode = 1005;

type Accepting = { readonly data: unknown; readonly events: FrameHandlers };

/** Makes the connection a WebSocket; `false` when the request asks for none. */
export function acceptSocket(
  { headers }: IncomingMessage,
  stream: Duplex,
  { data, events }: Accepting,
): boolean {
  const key = headers["sec-websocket-key"];
  if (typeof key !== "string" || headers.upgrade?.toLowerCase() !== "websocket") return false;
  const accept = createHash("sha1").update(`${key}${guid}`).digest("base64");
  const lines = [
    "HTTP/1.1 101 Switching Protocols",
    "upgrade: websocket",
    "connection: upgrade",
    `sec-websocket-accept: ${accept}`,
  ];
  stream.write(`${lines.join("\r\n")}\r\n\r\n`);
  const socket = socketOver(stream, data);
  let pending: Buffer = Buffer.alloc(0);
  let isOver = false;
  const over = (code: number, reason: string) => {
    if (!isOver) events.close?.(socket, code, reason);
    isOver = true;
  };
  stream.on("data", (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    for (let frame = frameIn(pending); frame !== null; frame = frameIn(pending)) {
      pending = pending.subarray(frame.length);
      const { opcode, payload } = frame;
      if (opcode === opcodes.text) events.message(socket, payload.toString());
      else if (opcode === opcodes.bytes) events.message(socket, new Uint8Array(payload));
      else if (opcode === opcodes.ping) stream.write(frameOf(opcodes.pong, payload));
      else if (opcode === opcodes.close) {
        const code = payload.length < 2 ? closedWithoutCode : payload.readUInt16BE();
        stream.end(frameOf(opcodes.close, payload.subarray(0, 2)));
        over(code, payload.subarray(2).toString());
      }
    }
  });
  stream.on("error", () => stream.destroy());
  stream.on("close", () => over(closedWithoutCode, ""));
  queueMicrotask(() => events.open?.(socket));
  return true;
}

function socketOver(stream: Duplex, data: unknown): ServerSocket {
  const send = (content: string | Uint8Array): number => {
    if (stream.destroyed || stream.writableEnded) return 0;
    const payload = Buffer.from(content as Uint8Array);
    stream.write(frameOf(typeof content === "string" ? opcodes.text : opcodes.bytes, payload));
    return payload.length;
  };
  return {
    data,
    send,
    sendText: send,
    close: (code = 1000, reason = "") => {
      const head = Buffer.alloc(2);
      head.writeUInt16BE(code);
      stream.end(frameOf(opcodes.close, Buffer.concat([head, Buffer.from(reason)])));
    },
    terminate: () => stream.destroy(),
    getBufferedAmount: () => stream.writableLength,
  };
}

const maskBytes = 4;

type SocketFrame = { readonly opcode: number; readonly payload: Buffer; readonly length: number };

/** The first whole frame; `null` while more must come. */
function frameIn(bytes: Buffer): SocketFrame | null {
  if (bytes.length < 2) return null;
  const short = (bytes[1] as number) & 0x7f;
  const isMiddle = short === 126;
  const isLong = short === 127;
  let head = 2 + maskBytes;
  if (isMiddle) head += 2;
  if (isLong) head += 8;
  if (bytes.length < head) return null;
  let size = short;
  if (isMiddle) size = bytes.readUInt16BE(2);
  if (isLong) size = Number(bytes.readBigUInt64BE(2));
  if (bytes.length < head + size) return null;
  const mask = bytes.subarray(head - maskBytes, head);
  const payload = Buffer.from(bytes.subarray(head, head + size));
  for (let i = 0; i < payload.length; i++)
    payload[i] = (payload[i] as number) ^ (mask[i % 4] as number);
  return { opcode: (bytes[0] as number) & 0x0f, payload, length: head + size };
}

/** Of a server: not masked. */
function frameOf(opcode: number, payload: Uint8Array): Buffer {
  const first = 0x80 | opcode;
  const { length } = payload;
  if (length < 126) return Buffer.concat([Uint8Array.of(first, length), payload]);
  const isMiddle = length < 65_536;
  const head = Buffer.alloc(isMiddle ? 4 : 10);
  head[0] = first;
  head[1] = isMiddle ? 126 : 127;
  if (isMiddle) head.writeUInt16BE(length, 2);
  else head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, payload]);
}
