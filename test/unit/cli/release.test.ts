/** `waypost verify-release` over sums that minisign 0.11 signed, and what it refuses. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { createProgram } from "../../../src/cli/program.ts";
import { registerReleaseCommand } from "../../../src/cli/release.ts";
import { utf8 } from "../../../src/core/codec/bytes.ts";
import {
  isSignedBy,
  parseReleaseKey,
  parseReleaseKeys,
  parseReleaseSignature,
  parseSums,
} from "../../../src/core/trust/release.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-release-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** SHA-256 of "a" and of "b". */
const sums = `ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  waypost-linux-x64
3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d  waypost_0.1.0_amd64.deb
`;
const key = "RWQjU+UyVwevMfoFJkYi/RzF3XUrc16ftk6fn7WQo2pmwv42zRpNNUTF";
const otherKey = "RWRjU+UyVwevMfoFJkYi/RzF3XUrc16ftk6fn7WQo2pmwv42zRpNNUTF";
const ofFile =
  "RUQjU+UyVwevMdtFTLw7ydA/fEJK30dyhY5X6vqQTekDxNMREiTMqIBZMTq/y3pOmgtgEfABFa/8rgynyz/7ZbCraCRJwRJTjwQ=";
const ofComment =
  "8X5sPkUh14Kap2S6Z2SzvsBJx8eJtq9Se8dr3frqWKULU4AlwCTTVuNlvH8x+M2jvIh43Xc1RLx7fS3bMfT8Ag==";
const signature = `untrusted comment: signature from minisign secret key
${ofFile}
trusted comment: waypost 0.1.0, commit 1234
${ofComment}
`;
/** The same file in the older form, which covers it unhashed. */
const legacy = `untrusted comment: signature from minisign secret key
RWQjU+UyVwevMdHbYwNI51Xqy7Rp79AkL//jOMWiBVhK3ZnPai1dXCyXTkh95x0lx0sYeOZEMLPxhjqwd15an5N7X3qqT5td+gM=
trusted comment: old
PGR+qO6r+jAcHSeNWSjGfeqvpAWvu8tnhUHQgOafQTPjqIXNjRKaNuokgZbINviML86vtiD3AdmNvBXxA7S3AA==
`;

const at = (name: string): string => join(folder, name);

beforeEach(() => {
  rmSync(at("waypost-linux-x64"), { force: true });
  writeFileSync(at("SHA256SUMS"), sums);
  writeFileSync(at("SHA256SUMS.minisig"), signature);
  writeFileSync(at("waypost_0.1.0_amd64.deb"), "b");
});

async function verify(...words: string[]): Promise<void> {
  const program = await createProgram(true);
  const given = ["--sums", at("SHA256SUMS"), "--json", ...words];
  await program.parseAsync(["bun", "waypost", "verify-release", ...given]);
}

describe("the command", () => {
  test("accepts what was released, with the key as text and in a file", async () => {
    await verify("--key", key);
    writeFileSync(at("waypost.pub"), `untrusted comment: minisign public key\n${key}\n`);
    writeFileSync(at("waypost-linux-x64"), "a");
    await verify("--key", at("waypost.pub"), at("waypost-linux-x64"));
  });

  test.each([
    ["a changed file", { "waypost_0.1.0_amd64.deb": "c" }, [], "is not the file that was released"],
    ["an empty file", { "waypost_0.1.0_amd64.deb": "" }, [], "is not the file that was released"],
    ["a changed sum", { SHA256SUMS: sums.replace("ca9", "ca8") }, [], "does not hold"],
    ["a sum too many", { SHA256SUMS: `${sums}${sums.slice(0, 65)} more\n` }, [], "does not hold"],
    [
      "a changed comment",
      { "SHA256SUMS.minisig": signature.replace("1234", "1235") },
      [],
      "does not hold",
    ],
    ["the older form", { "SHA256SUMS.minisig": legacy }, [], "is not a signature"],
    ["an empty signature", { "SHA256SUMS.minisig": "" }, [], "is not a signature"],
    ["a file of another release", { other: "a" }, ["other"], "is not part of this release"],
    ["a file that is not there", {}, ["waypost-linux-x64"], "does not exist"],
  ])("refuses %s", async (_, files, named, reason) => {
    for (const [name, text] of Object.entries(files)) writeFileSync(at(name), text);
    await expect(verify("--key", key, ...named.map(at))).rejects.toThrow(reason);
  });

  test("takes the keys of the project that the program was built with, the old one and the new", async () => {
    const by = async (keys: string): Promise<void> => {
      const program = new Command().exitOverride();
      registerReleaseCommand(program, keys);
      await program.parseAsync(["bun", "waypost", "verify-release", "--sums", at("SHA256SUMS")]);
    };
    await by(`# 2026\n${otherKey}\n# 2027\n${key}\n`);
    await expect(by(`${otherKey}\n`)).rejects.toThrow("is signed with another key");
    for (const none of ["# none\n", `${key}\nx\n`])
      await expect(by(none)).rejects.toThrow("name one by --key");
  });

  test("has a list of the project's keys that can be read", async () => {
    const list = await Bun.file(`${import.meta.dir}/../../../src/cli/release-keys.txt`).text();
    const lines = list.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    expect(parseReleaseKeys(list)?.length).toBe(lines.length);
    expect(list.includes("No key has been made yet")).toBe(lines.length === 0);
  });

  test("refuses another key, and what is no key", async () => {
    await expect(verify("--key", otherKey)).rejects.toThrow("is signed with another key");
    for (const text of [at("SHA256SUMS"), key.slice(1), ""])
      await expect(verify("--key", text)).rejects.toThrow("is neither a public key of minisign");
  });

  test("refuses a folder without the files, and one without the signature", async () => {
    rmSync(at("waypost_0.1.0_amd64.deb"));
    await expect(verify("--key", key)).rejects.toThrow("no file that");
    rmSync(at("SHA256SUMS.minisig"));
    await expect(verify("--key", key)).rejects.toThrow("SHA256SUMS.minisig does not exist");
  });
});

describe("the formats", () => {
  test("every changed bit of a signature is refused", () => {
    const parsedKey = parseReleaseKey(key);
    const parsed = parseReleaseSignature(signature);
    if (parsedKey === null || parsed === null) throw new Error("the examples are readable");
    expect(isSignedBy(parsedKey, parsed, utf8(sums))).toBe(true);
    for (const member of ["ofFile", "ofComment"] as const) {
      for (let bit = 0; bit < 64 * 8; bit++) {
        const bytes = parsed[member].slice();
        bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        expect(isSignedBy(parsedKey, { ...parsed, [member]: bytes }, utf8(sums))).toBe(false);
      }
    }
  });

  test.each([
    "",
    "x",
    sums.replace("  ", " "),
    sums.replace("waypost-linux", "../waypost"),
    `${sums}${sums}`,
    sums.toUpperCase(),
  ])("%j is not a list of sums", (text) => {
    expect(parseSums(text)).toBeNull();
  });
});
