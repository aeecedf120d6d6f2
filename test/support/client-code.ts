/** The outcome of a call of the SDK, as a code. */
import { ClientError } from "../../src/client/base/failure.ts";

/** The code of the `ClientError` that the work ends with; another error as text. */
export async function clientCode(work: () => Promise<unknown>): Promise<string> {
  try {
    await work();
    return "nothing was refused";
  } catch (error) {
    return error instanceof ClientError ? error.code : String(error);
  }
}
