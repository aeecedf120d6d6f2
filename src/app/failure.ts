/**
 * Failures of a command that the person who runs it can act on: the message is shown without a stack.
 * Anything else that is thrown is a bug.
 */

/** Exit code 1: failed. Exit code 2: timed out. */
export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
  constructor(
    message: string,
    readonly exitCode: 1 | 2 = 1,
    /** With `--json` the printed result already says that the command failed. */
    readonly isInResult = false,
  ) {
    super(message);
  }
}

/** Exit code 1. */
export function failed(message: string): CommandFailure {
  return new CommandFailure(message, 1);
}

/** Exit code 2. */
export function timedOut(message: string): CommandFailure {
  return new CommandFailure(message, 2);
}

/** Exit code 1, after a result that lists the failures when `--json` is set. */
export function failedInResult(message: string): CommandFailure {
  return new CommandFailure(message, 1, true);
}

/** Whether the operating system refused something: a folder without permission, a full disk. Not a bug. */
export function isSystemRefusal(error: unknown): error is Error {
  return error instanceof Error && "syscall" in error && "code" in error;
}
