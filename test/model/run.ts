/**
 * Checks the model of log, map, witness and clients: `bun run model`. Every `check` must hold,
 * every `run` must find its example. Needs Java 17 or newer; `ALLOY_JAR` names a copy of the
 * checker, else it is fetched from Maven Central once.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const version = "6.2.0";
const digest = "6037cbeee0e8423c1c468447ed10f5fcf2f2743a2ffc39cb1c81f2905c0fdb9d";
const address = `https://repo1.maven.org/maven2/org/alloytools/org.alloytools.alloy.dist/${version}/org.alloytools.alloy.dist-${version}.jar`;

async function checker(): Promise<string> {
  const file =
    process.env["ALLOY_JAR"] ??
    join(import.meta.dir, `../../node_modules/.cache/alloy-${version}.jar`);
  if (!existsSync(file)) {
    const response = await fetch(address);
    if (!response.ok) throw new Error(`${address} answers ${response.status}`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, await response.bytes());
  }
  const found = createHash("sha256").update(readFileSync(file)).digest("hex");
  if (found !== digest)
    throw new Error(`${file} has the digest ${found}, and not that of Alloy ${version}`);
  return file;
}

const output = mkdtempSync(join(tmpdir(), "waypost-model-"));
const model = join(import.meta.dir, "log.als");
try {
  const command = ["java", "-jar", await checker(), "exec", "-f", "-o", output, "-c", "*", model];
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe" });
  const [text, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  const outcomes = [...`${text}\n${errors}`.matchAll(/^\d+\. (check|run) +(\w+).*?(UNSAT|SAT)$/gm)];
  const expected = [...readFileSync(model, "utf8").matchAll(/^(\w+): (?:check|run) /gm)].map(
    ([, name]) => name,
  );
  const wrong = outcomes.filter(
    ([, kind, , outcome]) => (outcome === "UNSAT") !== (kind === "check"),
  );
  for (const [, kind, name, outcome] of outcomes) {
    console.log(`${kind} ${name}: ${outcome === "UNSAT" ? "no example" : "an example"}`);
  }
  const isWhole = outcomes.map(([, , name]) => name).join() === expected.join();
  if (!isWhole) console.error(errors || text);
  if (wrong.length > 0)
    console.error(`not as expected: ${wrong.map(([, , name]) => name).join(", ")}`);
  process.exitCode = isWhole && wrong.length === 0 ? 0 : 1;
} finally {
  rmSync(output, { recursive: true, force: true });
}
