/**
 * PostgreSQL over TLS with a password: right certificates and passwords are used, and a server with
 * wrong ones gets no data.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { postgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { migratePostgres, openPostgres } from "../../src/plugins/postgres/store.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { writeCertificate } from "../support/certificates.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence();

function declare(): void {
  const folder = mkdtempSync(join(tmpdir(), "waypost-pg-tls-"));
  let server: PostgresServer;
  let own: { readonly cert: string; readonly key: string };
  let other: { readonly cert: string; readonly key: string };
  const optionsWith = (more: Record<string, unknown>) =>
    postgresOptions.parse({
      urls: [`postgres://secured@127.0.0.1:${server.port}/postgres`],
      connections: 2,
      password: "right",
      ...more,
    });
  const refusal = (more: Record<string, unknown>) =>
    openPostgres(optionsWith(more), testEnvironment()).then(
      () => "opened",
      (error: unknown) =>
        error instanceof StoreError ? `${error.code}: ${error.message}` : String(error),
    );

  beforeAll(async () => {
    own = writeCertificate(folder, "first");
    other = writeCertificate(folder, "second");
    // Another user's server reads them, whatever this process's mask is.
    chmodSync(folder, 0o755);
    chmodSync(own.cert, 0o644);
    // The server takes a key only from a file of its own that no one else can read.
    chmodSync(own.key, 0o600);
    if (process.getuid?.() === 0) {
      chownSync(own.key, Number(Bun.spawnSync(["id", "-u", "postgres"]).stdout.toString()), 0);
    }
    const hba = join(folder, "hba.conf");
    await Bun.write(
      hba,
      [
        "host all waypost 127.0.0.1/32 trust",
        "hostssl all secured 127.0.0.1/32 scram-sha-256",
        "hostnossl all secured 127.0.0.1/32 reject",
      ].join("\n"),
    );
    chmodSync(hba, 0o644);
    server = await startPostgres([
      "ssl=on",
      `ssl_cert_file=${own.cert}`,
      `ssl_key_file=${own.key}`,
      `hba_file=${hba}`,
    ]);
    await server.sql("create role secured login superuser password 'right'");
    await migratePostgres(optionsWith({ tls_ca_file: own.cert }));
  }, 60_000);
  afterAll(async () => {
    await server.end();
    rmSync(folder, { recursive: true, force: true });
  });

  test("is used when a file names the certificates, and the connection is encrypted", async () => {
    const store = await openPostgres(optionsWith({ tls_ca_file: own.cert }), testEnvironment());
    const asked =
      "select bool_and(ssl)::text from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'secured'";
    expect((await server.sql(asked)).trim()).toBe("true");
    await store.close();
  });

  test("refuses a server whose certificate comes from elsewhere, and sends it nothing", async () => {
    expect(await refusal({ tls_ca_file: other.cert })).toMatch(
      /^unavailable: the database is unreachable: .*certificate/i,
    );
  });

  test("says that a connection without encryption, a wrong password and a missing file are refused", async () => {
    expect(await refusal({})).toMatch(/^unavailable: .*pg_hba/);
    expect(await refusal({ tls_ca_file: own.cert, password: "wrong" })).toMatch(
      /^unavailable: .*password/i,
    );
    expect(await refusal({ tls_ca_file: join(folder, "none.pem") })).toMatch(
      /^unavailable: .*none\.pem can't be read/,
    );
  });
}

describe("a database over TLS", () => {
  if (absence === null) declare();
  else test(`skipped: ${absence}`, () => {});
});
