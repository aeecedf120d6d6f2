/**
 * Calls between two threads of a process. All calls and answers of one turn of the event loop go in one message, because
 * waking the other thread costs far more than a further call. The bytes of a turn are in memory that both threads share; a
 * turn without room there is sent as a text with one character per byte. Calls arrive in their order. Each thread counts
 * heartbeats in the shared memory; when those of the other thread stop, calls to it fail at once.
 */
import { errorStack, Fault, type FaultCode, type FaultExtra, isFault } from "../../core/fault.ts";
import { StoreError, type StoreErrorCode } from "../../storage/contract.ts";
import { type TurnExtras, TurnReader, TurnWriter } from "./values.ts";

/** What messages are sent over: a `MessagePort`, a `Worker`, or the parent port of a worker. */
type MessageEnd = {
  postMessage(message: unknown, moved: ArrayBuffer[]): void;
  on(event: "message", listener: (message: unknown) => void): unknown;
};

/** Serves the calls of one target. The channel owns its result: large bytes are moved, not copied. */
type ServeCall = (method: string, args: readonly unknown[]) => unknown;

type Pending = { readonly resolve: (value: unknown) => void; readonly reject: (error: unknown) => void };

/** The number of bytes in the shared memory, or the bytes as a text with one character each. */
type TurnBytes = number | string;
/** The first message is the memory for turns. Then turns follow, most of them bytes alone. */
type Message = SharedArrayBuffer | TurnBytes | (TurnExtras & { readonly bytes: TurnBytes });

const noExtras: TurnExtras = { lists: [], moved: [], cloned: [] };

const beatMs = 1_000;
/** A thread without a heartbeat for five seconds hangs; a busy one has some. */
const missedBeatsMax = 5;

/** How a record of a turn begins. */
const callKind = 0;
const answerKind = 1;
/** The id of a call without an answer. */
const noId = 0;

export class Channel {
  private readonly handlers = new Map<string, ServeCall>();
  private readonly pending = new Map<number, Pending>();
  private readonly ring = new Ring();
  /** The memory of the other end, which is its first message. */
  private otherRing: Ring | null = null;
  private readonly writer = new TurnWriter();
  private readonly reader = new TurnReader();
  /** Ids of this turn. If it can't be sent, these calls must fail. */
  private calls: number[] = [];
  private answers: number[] = [];
  private scheduled = false;
  /** Calls of the other end that have no answer yet. */
  private open = 0;
  private receiving = false;
  private lastId = 0;
  private closed = false;
  private beating: ReturnType<typeof setInterval> | null = null;
  private beatsSeen = 0;
  /** Checks in a row without a new heartbeat of the other end. */
  private missedBeats = 0;

  constructor(private readonly end: MessageEnd) {
    end.on("message", (message) => this.receive(message as Message));
    end.postMessage(this.ring.shared, []);
  }

  /** Shows the other end that this thread's event loop turns. */
  beat(): void {
    this.beating ??= setInterval(() => this.ring.beat(), beatMs);
    this.beating.unref();
  }

  /** Watches the other end's heartbeats. `onReturn` gets the length of a silence when it ends. */
  watch(onReturn: (silentMs: number) => void): void {
    this.beating ??= setInterval(() => this.countBeats(onReturn), beatMs);
    this.beating.unref();
  }

  /** Counts checks, not time: while this thread hangs itself, it makes none. */
  private countBeats(onReturn: (silentMs: number) => void): void {
    const beats = this.otherRing?.beats() ?? 0;
    const wasSilent = this.isSilent;
    const silentMs = this.missedBeats * beatMs;
    this.missedBeats = beats === this.beatsSeen ? this.missedBeats + 1 : 0;
    this.beatsSeen = beats;
    if (wasSilent && !this.isSilent) onReturn(silentMs);
    if (this.isSilent) this.failPending(silentError);
  }

  /** The other thread hangs: calls fail at once, and late answers are dropped. */
  get isSilent(): boolean {
    return this.missedBeats >= missedBeatsMax;
  }

  private failPending(error: () => StoreError): void {
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const { reject } of waiting) reject(error());
  }

  serve(target: string, handler: ServeCall): void {
    this.handlers.set(target, handler);
  }

  /** Resolves or rejects as the handler of the other thread does. The arguments stay the caller's. */
  call(target: string, method: string, args: readonly unknown[]): Promise<unknown> {
    if (this.closed || this.isSilent) return Promise.reject(this.closed ? closedError() : silentError());
    return new Promise((resolve, reject) => {
      const id = ++this.lastId;
      this.writeCall(id, target, method, args);
      this.pending.set(id, { resolve, reject });
      this.calls.push(id);
      this.schedule();
    });
  }

  /** A call without an answer. */
  send(target: string, method: string, args: readonly unknown[]): void {
    if (this.closed) return;
    this.writeCall(noId, target, method, args);
    this.schedule();
  }

  /** Calls that are not answered yet fail with `closed`. Idempotent. */
  close(): void {
    this.closed = true;
    if (this.beating !== null) clearInterval(this.beating);
    this.failPending(closedError);
  }

  private writeCall(id: number, target: string, method: string, args: readonly unknown[]): void {
    const { writer } = this;
    writer.record(() => {
      writer.byte(callKind);
      writer.double(id);
      writer.value(target, false);
      writer.value(method, false);
      writer.value(args, false);
    });
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setImmediate(() => this.flush());
  }

  private flush(): void {
    if (!this.scheduled) return;
    this.scheduled = false;
    const { calls, answers } = this;
    this.calls = [];
    this.answers = [];
    const { bytes, extras } = this.writer.take();
    const isShared = this.ring.put(bytes);
    const carried: TurnBytes = isShared ? bytes.length : Buffer.from(bytes.buffer, 0, bytes.length).toString("latin1");
    const isPlain = extras.lists.length + extras.moved.length + extras.cloned.length === 0;
    try {
      this.end.postMessage(isPlain ? carried : { bytes: carried, ...extras }, extras.moved);
    } catch (error) {
      // A value can't be cloned: a bug of a caller in this turn.
      if (isShared) this.ring.takeBack(bytes.length);
      this.writer.undo(extras);
      for (const id of calls) this.settle(id, ({ reject }) => reject(error));
      for (const id of answers) this.writeAnswer(id, packError(error));
    }
  }

  private receive(message: Message): void {
    if (message instanceof SharedArrayBuffer) {
      this.otherRing = new Ring(message);
      return;
    }
    const { reader } = this;
    const [bytes, extras] = typeof message === "object" ? [message.bytes, message] : [message, noExtras];
    const length = typeof bytes === "number" ? bytes : bytes.length;
    reader.begin(length, extras, (room) => {
      if (typeof bytes === "string") room.write(bytes, "latin1");
      else this.otherRing?.take(room);
    });
    this.receiving = true;
    while (reader.record()) {
      const kind = reader.byte();
      const id = reader.double();
      if (kind === answerKind) this.settleWith(id, reader.value() as Outcome);
      else this.handle(id, reader.value() as string, reader.value() as string, reader.value() as readonly unknown[]);
    }
    this.receiving = false;
    this.flushWhenDone();
  }

  /** When no call is open, no further answer can join these. */
  private flushWhenDone(): void {
    if (this.open === 0 && !this.receiving && this.answers.length > 0) this.flush();
  }

  private settleWith(id: number, outcome: Outcome): void {
    this.settle(id, ({ resolve, reject }) => {
      try {
        resolve(unpack(outcome));
      } catch (error) {
        reject(error);
      }
    });
  }

  private settle(id: number, end: (pending: Pending) => void): void {
    const pending = this.pending.get(id);
    if (!this.pending.delete(id) || pending === undefined) return;
    end(pending);
  }

  private handle(id: number, target: string, method: string, args: readonly unknown[]): void {
    const handler = this.handlers.get(target);
    this.open++;
    let result: unknown;
    try {
      if (handler === undefined) throw new Error(`nothing serves ${target}`);
      result = handler(method, args);
    } catch (error) {
      this.answer(id, packError(error));
      return;
    }
    if (result instanceof Promise) {
      result.then(
        (value) => this.answer(id, packValue(value)),
        (error: unknown) => this.answer(id, packError(error)),
      );
    } else this.answer(id, packValue(result));
  }

  private answer(id: number, outcome: Outcome): void {
    this.open--;
    if (id === noId || this.closed) return;
    try {
      this.writeAnswer(id, outcome);
    } catch (error) {
      this.writeAnswer(id, packError(error));
    }
    this.flushWhenDone();
  }

  private writeAnswer(id: number, outcome: Outcome): void {
    const { writer } = this;
    writer.record(() => {
      writer.byte(answerKind);
      writer.double(id);
      writer.value(outcome, true);
    });
    this.answers.push(id);
    this.schedule();
  }
}

function closedError(): StoreError {
  return new StoreError("closed", "the other thread has ended");
}

function silentError(): StoreError {
  return new StoreError("unavailable", "the thread of the stores does not answer");
}

// ------------------------------------------------------------------------------------------------- ring

/** Turns under load have 10 to 100 KiB. */
const ringBytes = 256 * 1024;
/** Two counts of four bytes precede the turns. */
const countBytes = 8;

/** Memory of one direction: one thread puts turns in, the other takes them out in the same order. */
export class Ring {
  /** How many bytes were taken out since the start, modulo 2^32. */
  private readonly taken: Int32Array;
  /** Heartbeats of the thread that puts turns in. */
  private readonly beatCount: Int32Array;
  private readonly memory: Uint8Array;
  /** Bytes that this thread has put in or taken out since the start, modulo 2^32. */
  private passed = 0;

  constructor(readonly shared = new SharedArrayBuffer(countBytes + ringBytes)) {
    this.taken = new Int32Array(shared, 0, 1);
    this.beatCount = new Int32Array(shared, 4, 1);
    this.memory = new Uint8Array(shared, countBytes);
  }

  /** `false` when there is no room for them now. */
  put(bytes: Uint8Array): boolean {
    const used = (this.passed - Atomics.load(this.taken, 0)) >>> 0;
    if (bytes.length > ringBytes - used) return false;
    const at = this.passed % ringBytes;
    const first = Math.min(bytes.length, ringBytes - at);
    this.memory.set(bytes.subarray(0, first), at);
    this.memory.set(bytes.subarray(first), 0);
    this.passed = (this.passed + bytes.length) >>> 0;
    return true;
  }

  /** Takes back the last turn, which was not announced. */
  takeBack(length: number): void {
    this.passed = (this.passed - length) >>> 0;
  }

  beat(): void {
    Atomics.add(this.beatCount, 0, 1);
  }

  beats(): number {
    return Atomics.load(this.beatCount, 0);
  }

  take(into: Uint8Array): void {
    const at = this.passed % ringBytes;
    const first = Math.min(into.length, ringBytes - at);
    into.set(this.memory.subarray(at, at + first), 0);
    into.set(this.memory.subarray(0, into.length - first), first);
    this.passed = (this.passed + into.length) >>> 0;
    Atomics.store(this.taken, 0, this.passed | 0);
  }
}

// ------------------------------------------------------------------------------------------------ outcomes

export type PlainFault = { readonly code: FaultCode; readonly detail: string; readonly extra: FaultExtra };

/** How a call ended: with a value, a refusal, an operating failure, or a bug. */
type Outcome =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "fault"; readonly fault: PlainFault }
  | { readonly kind: "store"; readonly code: StoreErrorCode; readonly message: string }
  /** `mistake`: the caller broke the contract, which a driver reports with a `RangeError`. */
  | { readonly kind: "mistake" | "bug"; readonly text: string };

export function packFault({ code, detail, extra }: Fault): PlainFault {
  return { code, detail, extra };
}

export function unpackFault({ code, detail, extra }: PlainFault): Fault {
  return new Fault(code, detail, extra);
}

function packValue(value: unknown): Outcome {
  return isFault(value) ? { kind: "fault", fault: packFault(value) } : { kind: "value", value };
}

function packError(error: unknown): Outcome {
  if (error instanceof StoreError) return { kind: "store", code: error.code, message: error.message };
  if (error instanceof RangeError) return { kind: "mistake", text: error.message };
  return { kind: "bug", text: errorStack(error) };
}

/** The value or the refusal; throws the error of the other thread. */
function unpack(outcome: Outcome): unknown {
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
