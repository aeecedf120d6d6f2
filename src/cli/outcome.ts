/**
 * How a command ends: by returning (0), or by throwing one of these (1 failed, 2 timed out). Anything
 * else that is thrown is a bug and is shown with its stack.
 */

export class CommandFailure extends Error {
  constructor(
    message: string,
    readonly exitCode: 1 | 2 = 1,
  ) {
    super(message);
    this.name = "CommandFailure";
  }
}

/**
 * What the machine refused (a folder that may not be written, a full disk), in a line; `null` for anything
 * else. Such an error is no bug, and its stack would say nothing to the person who runs the command.
 */
export function machineRefusal(error: unknown): string | null {
  return error instanceof Error && "syscall" in error && "code" in error ? error.message : null;
}

/** Exit code 1. */
export function failed(message: string): CommandFailure {
  return new CommandFailure(message, 1);
}

/** Exit code 2. */
export function timedOut(message: string): CommandFailure {
  return new CommandFailure(message, 2);
}
