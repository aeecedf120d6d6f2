/**
 * One store in the protocols of the servers that are compared: a message of 1.3 KiB with an id of
 * its own, for one of a thousand mailboxes.
 */
import type { Protocol } from "./load.ts";

const mailboxes = 1_000;
const payloadBytes = 1_024;
const payload = Buffer.from(crypto.getRandomValues(new Uint8Array(payloadBytes)).toBase64());

function someMailbox(): number {
  return Math.floor(Math.random() * mailboxes);
}

/** `POST` of an envelope to one of the recipients. */
export function http(path: string, recipients: readonly string[]): Protocol {
  const timestamp = new Date().toISOString();
  const ciphertext = payload.toString();
  return {
    hello: () => [],
    request: () => {
      const to = recipients[Math.floor(Math.random() * recipients.length)];
      const message = {
        message_id: crypto.randomUUID(),
        to,
        timestamp,
        ttl: "1h",
        payload: { ciphertext_b64: ciphertext },
      };
      const body = JSON.stringify(message);
      const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n`;
      return Buffer.from(`${head}content-length: ${body.length}\r\n\r\n${body}`);
    },
    isComplete: (bytes) => {
      const end = bytes.indexOf("\r\n\r\n");
      if (end < 0) return false;
      const head = bytes.toString("latin1", 0, end).toLowerCase();
      const length = Number(/content-length: (\d+)/.exec(head)?.[1] ?? Number.NaN);
      if (!head.startsWith("http/1.1 2") || Number.isNaN(length)) return bytes.toString();
      return bytes.length >= end + 4 + length;
    },
  };
}

/** A Redis stream for each mailbox. */
export function redis(): Protocol {
  return {
    hello: () => [],
    request: () => {
      const parts = ["XADD", `box:${someMailbox()}`, "*", "id", crypto.randomUUID(), "body"];
      const head = parts.map((part) => `$${part.length}\r\n${part}\r\n`).join("");
      return Buffer.concat([
        Buffer.from(`*7\r\n${head}$${payload.length}\r\n`),
        payload,
        Buffer.from("\r\n"),
      ]);
    },
    isComplete: (bytes) => {
      if (bytes[0] !== 0x24) return bytes.toString();
      const end = bytes.indexOf("\r\n");
      return end > 0 && bytes.length >= end + 4 + Number(bytes.toString("latin1", 1, end));
    },
  };
}

/**
 * A subject of one JetStream stream for each mailbox; the answer is the stream's own
 * acknowledgement.
 */
export function jetStream(): Protocol {
  const inboxes = Array.from({ length: 4_096 }, () => `_INBOX.${crypto.randomUUID()}`);
  return {
    hello: (connection) => [
      Buffer.from(`CONNECT {"verbose":false}\r\nSUB ${inboxes[connection]} 1\r\nPING\r\n`),
    ],
    request: (connection) => {
      const head = `PUB mail.${someMailbox()} ${inboxes[connection]} ${payload.length}\r\n`;
      return Buffer.concat([Buffer.from(head), payload, Buffer.from("\r\n")]);
    },
    isComplete: (bytes) => {
      const text = bytes.toString("latin1");
      if (text.includes("-ERR") || text.includes('"error"')) return text;
      const at = text.indexOf("MSG ");
      if (at < 0) return text.includes("PONG\r\n");
      const end = text.indexOf("\r\n", at);
      const length = Number(text.slice(at, end).split(" ").at(-1));
      return end > 0 && text.length >= end + 2 + length + 2;
    },
  };
}

/** One prepared insert into a table with a key over mailbox and id. */
export function postgres(user: string, database: string): Protocol {
  const text = (value: string) => Buffer.from(`${value}\0`);
  const message = (type: string, ...parts: Uint8Array[]) => {
    const body = Buffer.concat(parts);
    const head = Buffer.alloc(5);
    head.write(type, "latin1");
    head.writeUInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const short = (value: number) => {
    const bytes = Buffer.alloc(2);
    bytes.writeUInt16BE(value);
    return bytes;
  };
  const parameter = (bytes: Buffer) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  };
  const settings = Buffer.concat([
    text("user"),
    text(user),
    text("database"),
    text(database),
    Buffer.of(0),
  ]);
  const startup = Buffer.alloc(8);
  startup.writeUInt32BE(settings.length + 8, 0);
  startup.writeUInt32BE(196_608, 4);
  const insert = "insert into mail (box, id, body) values ($1, $2, $3)";
  const sync = message("S");
  const prepare = Buffer.concat([message("P", text("store"), text(insert), short(0)), sync]);
  const ready = Buffer.from([0x5a, 0, 0, 0, 5]);
  return {
    hello: () => [Buffer.concat([startup, settings]), prepare],
    request: () => {
      const values = [
        Buffer.from(String(someMailbox())),
        Buffer.from(crypto.randomUUID()),
        payload,
      ];
      const bound = Buffer.concat([
        short(0),
        short(values.length),
        ...values.map(parameter),
        short(0),
      ]);
      return Buffer.concat([
        message("B", text(""), text("store"), bound),
        message("E", text(""), Buffer.alloc(4)),
        sync,
      ]);
    },
    isComplete: (bytes) => {
      if (bytes[0] === 0x45) return bytes.toString("latin1");
      return bytes.length >= 6 && bytes.subarray(-6, -1).equals(ready);
    },
  };
}
