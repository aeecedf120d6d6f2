/**
 * Values on their way between threads. Structured cloning copies them, with three exceptions that stand here:
 * a view of a larger buffer would bring the whole buffer along, so it is copied out before; large bytes that
 * the sender owns are moved; and a `Fault` or an error loses its class, so both cross as plain records.
 */
import { Fault, type FaultCode, type FaultExtra, isFault } from "../../core/fault.ts";
import { errorStack } from "../../core/std/error-text.ts";
import { StoreError, type StoreErrorCode } from "../../storage/contract.ts";

/** Smaller bytes are cheaper to clone than to move. */
const movedBytesMin = 16 * 1024;

/**
 * The value with bytes of its own, whose buffers are added to `moved` when they are worth moving. Bytes that
 * `isOwned` says the sender gives away are moved as they are; others are copied once.
 */
export function detach(value: unknown, moved: ArrayBuffer[], isOwned: boolean): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Uint8Array) return detachBytes(value, moved, isOwned);
  if (Array.isArray(value)) return value.map((entry) => detach(entry, moved, isOwned));
  // Maps of figures and shared memory are cloned and shared as they are.
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  const own: Record<string, unknown> = {};
  for (const name in value) own[name] = detach(Reflect.get(value, name), moved, isOwned);
  return own;
}

function detachBytes(bytes: Uint8Array, moved: ArrayBuffer[], isOwned: boolean): Uint8Array {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer;
  const isMoved = bytes.byteLength >= movedBytesMin;
  if (isWhole && !isMoved) return bytes;
  // A `Buffer` copies nothing by its own `slice`.
  const own = isWhole && isOwned ? bytes : Uint8Array.prototype.slice.call(bytes);
  if (isMoved && own.buffer instanceof ArrayBuffer && !moved.includes(own.buffer)) moved.push(own.buffer);
  return own;
}

// ------------------------------------------------------------------------------------------------ outcomes

export type PlainFault = { readonly code: FaultCode; readonly detail: string; readonly extra: FaultExtra };

/** How a call ended: with a value, a refusal, an operating failure, or a bug. */
export type Outcome =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "fault"; readonly fault: PlainFault }
  | { readonly kind: "store"; readonly code: StoreErrorCode; readonly message: string }
  /** `mistake`: the caller broke the contract, which a driver says with a `RangeError`. */
  | { readonly kind: "mistake" | "bug"; readonly text: string };

export function packFault({ code, detail, extra }: Fault): PlainFault {
  return { code, detail, extra };
}

export function unpackFault({ code, detail, extra }: PlainFault): Fault {
  return new Fault(code, detail, extra);
}

export function packValue(value: unknown): Outcome {
  return isFault(value) ? { kind: "fault", fault: packFault(value) } : { kind: "value", value };
}

export function packError(error: unknown): Outcome {
  if (error instanceof StoreError) return { kind: "store", code: error.code, message: error.message };
  if (error instanceof RangeError) return { kind: "mistake", text: error.message };
  return { kind: "bug", text: errorStack(error) };
}

/** The value or the refusal; throws what the other thread threw. */
export function unpack(outcome: Outcome): unknown {
  switch (outcome.kind) {
    case "value":
      return outcome.value;
    case "fault":
      return unpackFault(outcome.fault);
    case "store":
      throw new StoreError(outcome.code, outcome.message);
    case "mistake":
      throw new RangeError(outcome.text);
    case "bug":
      throw new Error(`the other thread failed: ${outcome.text}`);
  }
}
