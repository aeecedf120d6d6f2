/**
 * Refuses a pooler that gives each transaction another session of the server (pgbouncer: `pool_mode
 * = transaction`). Writes are numbered by connection, and statements are prepared in a session, so
 * both need one session for each connection.
 */
import type { SqlConnection } from "./connection.ts";
import type { Pool } from "./pool.ts";
import { SchemaProblem } from "./schema.ts";

/** A connection that breaks between the questions has another session, too, but not twice. */
const triesMax = 2;

export async function refusePooler(pool: Pool): Promise<void> {
  for (let tried = 0; tried < triesMax; tried++) if (await hasSessions(pool)) return;
  throw new SchemaProblem(
    "unavailable",
    "a pooler gives each transaction another session: connect to the server, or set its mode to session",
  );
}

/**
 * A pooler hands out the session that was free last, or each in turn: the one's last for the
 * other's transaction, or another one for the one's next.
 */
async function hasSessions(pool: Pool): Promise<boolean> {
  const other = pool.newConnection();
  try {
    return await pool.withConnection(async (one) => {
      await Promise.all([sessionOf(one), sessionOf(other)]);
      const before = await sessionOf(one);
      await other.query("begin");
      const meanwhile = await sessionOf(other);
      const after = await sessionOf(one);
      await other.query("commit");
      return before === after && before !== meanwhile;
    });
  } finally {
    await other.close();
  }
}

async function sessionOf(connection: SqlConnection): Promise<string> {
  const [row] = await connection.query("select pg_backend_pid() as pid");
  return String(row?.["pid"]);
}
