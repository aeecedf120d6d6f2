/** Runs a program of the system to its end; a failure shows what it printed. */
export function run(words: readonly string[], cwd?: string): string {
  const ran = Bun.spawnSync([...words], {
    ...(cwd === undefined ? {} : { cwd }),
    stdout: "pipe",
    stderr: "pipe",
  });
  if (ran.success) return ran.stdout.toString();
  throw new Error(
    `${words.join(" ")} ended with ${ran.exitCode}: ${ran.stderr.toString() || ran.stdout.toString()}`,
  );
}
