/** A file to send: measured, hashed, read by ranges, and noticed when it changes. */
import { describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileSource } from "../../../../src/cli/files/source.ts";
import { ClientError } from "../../../../src/client/base/failure.ts";
import { scratchPaths } from "../../../support/scratch.ts";
import { content, plan } from "../../../support/send-plan.ts";

const freshPath = scratchPaths("send");

describe("a file to send", () => {
  test("is measured and hashed, and read by ranges", async () => {
    const folder = freshPath();
    mkdirSync(folder);
    const path = join(folder, "photo.jpg");
    writeFileSync(path, content);
    const { file, read } = await fileSource(path, "image/jpeg");
    expect(file).toEqual(plan.file);
    expect(await read(1_000, 2_000)).toEqual(content.slice(1_000, 2_000));
    writeFileSync(path, content.subarray(1));
    const error = await read(0, 10).catch((cause: unknown) => cause);
    expect(error instanceof ClientError && error.code).toBe("file_changed");
  });

  test("must be a file", async () => {
    const folder = freshPath();
    mkdirSync(folder);
    for (const path of [join(folder, "absent"), folder]) {
      const error = await fileSource(path, "").catch((cause: unknown) => cause);
      expect(error instanceof ClientError && error.code).toBe("no_file");
    }
  });
});
