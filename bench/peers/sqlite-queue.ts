/**
 * The queue that many programs begin with: an HTTP server that inserts each body into an SQLite
 * table, in a transaction of its own, synced before the answer. Says its URL on the first line of
 * its output and ends when its input does. Usage: `bun bench/peers/sqlite-queue.ts <file>`.
 */
import { Database } from "bun:sqlite";

const [file = "queue.sqlite"] = process.argv.slice(2);
const database = new Database(file, { create: true });
database.run("pragma journal_mode = wal");
database.run("pragma synchronous = full");
database.run(
  "create table mail (arrived integer primary key, box text, id text, body text, unique (box, id))",
);
const insert = database.query("insert into mail (box, id, body) values (?, ?, ?)");

type Message = {
  readonly to: string;
  readonly message_id: string;
  readonly payload: { readonly ciphertext_b64: string };
};

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: async (request) => {
    const { to, message_id: id, payload } = (await request.json()) as Message;
    insert.run(to, id, payload.ciphertext_b64);
    return Response.json({ id }, { status: 202 });
  },
});
console.log(`http://127.0.0.1:${server.port}`);
for await (const _ of Bun.stdin.stream()) {
  // Nothing is said on the input; its end is the message.
}
await server.stop(true);
database.close();
process.exit(0);
