/**
 * The step of cells on paper: many installations that share nothing, and recipients whose documents
 * name one of them. Computes how load spreads when some recipients are hot, what share of
 * recipients and messages a lost cell touches, and what moving the recipients of a cell costs and
 * loses. Rates of one cell are inputs, measured by the other benchmarks. One seed gives one result.
 * Prints JSON. `bun bench/cells.ts --cells 1000 --recipients 100000000`.
 */
import { parseArgs } from "node:util";

export type CellsOptions = {
  readonly seed: number;
  readonly cells: number;
  readonly recipients: number;
  /** Messages that an average recipient gets in a day. */
  readonly messagesPerDay: number;
  /** The recipient of rank n gets as much as 1 / n to this power. */
  readonly zipf: number;
  /** The most that a Relay takes for one recipient; more is refused. */
  readonly recipientPerSecond: number;
  /** Share of the recipients whose document names a second cell. */
  readonly secondShare: number;
  /** Messages a second that one cell carries from sender to acknowledgement. */
  readonly cellPerSecond: number;
  /** Documents a second that the Directory takes. */
  readonly documentsPerSecond: number;
  /** The longest life of a message. */
  readonly ttlMaxHours: number;
  /** How long a sender may go by a document that has changed. */
  readonly rememberedSeconds: number;
  /** Messages whose way is followed one by one through a move. */
  readonly followed: number;
};

export const cellsDefaults: CellsOptions = {
  seed: 1,
  cells: 1_000,
  recipients: 100_000_000,
  messagesPerDay: 100,
  zipf: 1,
  recipientPerSecond: 20,
  secondShare: 0.1,
  cellPerSecond: 1_200,
  documentsPerSecond: 78,
  ttlMaxHours: 48,
  rememberedSeconds: 30,
  followed: 1_000_000,
};

const daySeconds = 86_400;

// ------------------------------------------------------------------------------------------ chance

/** A number from 0 to 1 that `seed` and `n` alone decide (the mixer of splitmix32). */
function chance(seed: number, n: number): number {
  let mixed = (Math.imul(n, 0x9e3779b9) + Math.imul(seed, 0x85ebca6b)) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
  return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
}

// --------------------------------------------------------------------------------------- documents

type Recipient = {
  /** Messages a second that senders hand in, and what the Relay takes of them. */
  readonly sentPerSecond: number;
  readonly perSecond: number;
  readonly home: number;
  /** The second cell of the document, -1 for none. */
  readonly second: number;
};

/**
 * Every recipient in the order of rank. The provider writes the emptier of two cells into a new
 * document: it knows how many recipients a cell has, and not who will be hot.
 */
function* recipientsOf(options: CellsOptions): Generator<Recipient> {
  const { seed, cells, recipients, zipf, secondShare } = options;
  let weights = 0;
  for (let rank = 1; rank <= recipients; rank++) weights += rank ** -zipf;
  const perWeight = (recipients * options.messagesPerDay) / daySeconds / weights;
  const counts = new Uint32Array(cells);
  const cellOf = (n: number): number => Math.floor(chance(seed, n) * cells);
  for (let rank = 1; rank <= recipients; rank++) {
    const sentPerSecond = rank ** -zipf * perWeight;
    const [one, other] = [cellOf(4 * rank), cellOf(4 * rank + 1)];
    const home = (counts[other] ?? 0) < (counts[one] ?? 0) ? other : one;
    counts[home] = (counts[home] ?? 0) + 1;
    const hasSecond = cells > 1 && chance(seed, 4 * rank + 2) < secondShare;
    // Any cell but the home.
    const second = hasSecond
      ? (home + 1 + Math.floor(chance(seed, 4 * rank + 3) * (cells - 1))) % cells
      : -1;
    yield {
      sentPerSecond,
      perSecond: Math.min(sentPerSecond, options.recipientPerSecond),
      home,
      second,
    };
  }
}

// -------------------------------------------------------------------------------------------- load

export type Spread = {
  readonly perSecond: {
    readonly mean: number;
    readonly median: number;
    readonly p99: number;
    readonly max: number;
  };
  readonly busiestByMean: number;
  readonly busiestUse: number;
  readonly cellsAboveCapacity: number;
  readonly recipients: { readonly min: number; readonly max: number };
};

function spreadOf(
  load: Float64Array,
  counts: Uint32Array,
  { cellPerSecond }: CellsOptions,
): Spread {
  const sorted = load.toSorted();
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  const mean = sorted.reduce((sum, one) => sum + one, 0) / sorted.length;
  return {
    perSecond: {
      mean: rounded(mean),
      median: rounded(at(0.5)),
      p99: rounded(at(0.99)),
      max: rounded(at(1)),
    },
    busiestByMean: rounded(at(1) / mean),
    busiestUse: rounded(at(1) / cellPerSecond),
    cellsAboveCapacity: sorted.filter((one) => one > cellPerSecond).length,
    recipients: { min: Math.min(...counts), max: Math.max(...counts) },
  };
}

type Totals = {
  readonly load: Float64Array;
  readonly counts: Uint32Array;
  sent: number;
  taken: number;
  hottest: number;
};

function totalsOf(options: CellsOptions): Totals {
  const totals: Totals = {
    load: new Float64Array(options.cells),
    counts: new Uint32Array(options.cells),
    sent: 0,
    taken: 0,
    hottest: 0,
  };
  for (const { sentPerSecond, perSecond, home } of recipientsOf(options)) {
    totals.load[home] = (totals.load[home] ?? 0) + perSecond;
    totals.counts[home] = (totals.counts[home] ?? 0) + 1;
    totals.sent += sentPerSecond;
    totals.taken += perSecond;
    totals.hottest = Math.max(totals.hottest, sentPerSecond);
  }
  return totals;
}

// ------------------------------------------------------------------------------------- a lost cell

/**
 * While `lost` is away: senders go on to the second cell of a document, and fail where there is
 * none.
 */
function loss(options: CellsOptions, totals: Totals, lost: number) {
  const load = totals.load.slice();
  let [recipients, withSecond, perSecond, unreached] = [0, 0, 0, 0];
  for (const one of recipientsOf(options)) {
    if (one.home !== lost) continue;
    recipients++;
    perSecond += one.perSecond;
    if (one.second < 0) unreached += one.perSecond;
    else {
      withSecond++;
      load[one.second] = (load[one.second] ?? 0) + one.perSecond;
    }
  }
  load[lost] = 0;
  let most = 0;
  for (const [cell, now] of load.entries()) most = Math.max(most, now - (totals.load[cell] ?? 0));
  return {
    recipientsShare: recipients / options.recipients,
    messagesShare: perSecond / totals.taken,
    /** No cell of their document is there: these fail until it is back. */
    messagesFailingShare: unreached / totals.taken,
    recipientsWithSecond: withSecond,
    mostAddedPerSecond: rounded(most),
    othersAboveCapacity: load.filter((now) => now > options.cellPerSecond).length,
  };
}

// ------------------------------------------------------------------------------------------ a move

type Outcomes = { read: number; expired: number; lost: number };

/**
 * Follows messages one by one while the recipients of a cell move: each document names the new cell
 * first from its change on, and the old one no more `keptHours` later. A sender goes by a document
 * that may be `rememberedSeconds` old. A recipient comes now and then, reads every cell that its
 * document names, and comes too late for some.
 */
function followMove(options: CellsOptions, keptHours: number): Outcomes {
  const { seed, ttlMaxHours, rememberedSeconds, followed } = options;
  const outcomes: Outcomes = { read: 0, expired: 0, lost: 0 };
  const ttlMax = ttlMaxHours * 3_600;
  for (let n = 0; n < followed; n++) {
    const drawn = (what: number): number => chance(seed + 1 + what, n);
    // Seconds from the change of the recipient's document.
    const sentAt = (drawn(0) - 0.5) * 2 * ttlMax;
    const toOldCell = sentAt - drawn(1) * rememberedSeconds < 0;
    const expiresAt = sentAt + drawn(2) * ttlMax;
    // Most come within minutes, some after days.
    const readAt = sentAt + drawn(3) ** 8 * 3 * ttlMax;
    if (readAt >= expiresAt) outcomes.expired++;
    else if (toOldCell && readAt >= keptHours * 3_600) outcomes.lost++;
    else outcomes.read++;
  }
  return outcomes;
}

function move(options: CellsOptions, recipients: number) {
  const enoughHours = options.ttlMaxHours + options.rememberedSeconds / 3_600;
  const documentsSeconds = recipients / options.documentsPerSecond;
  return {
    recipients,
    documentsHours: rounded(documentsSeconds / 3_600),
    totalHours: rounded(documentsSeconds / 3_600 + enoughHours),
    /** By how long the old cell stays in the documents. */
    followed: Object.fromEntries(
      [0, 1, 24, enoughHours].map((keptHours) => [
        `${rounded(keptHours)} h`,
        followMove(options, keptHours),
      ]),
    ),
  };
}

// --------------------------------------------------------------------------------------- the whole

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}

export function simulate(options: CellsOptions) {
  const totals = totalsOf(options);
  const busiest = totals.load.indexOf(Math.max(...totals.load));
  const byLoad = [...totals.load.keys()].sort(
    (a, b) => (totals.load[a] ?? 0) - (totals.load[b] ?? 0),
  );
  const median = byLoad[byLoad.length >> 1] ?? 0;
  return {
    options,
    sentPerSecond: rounded(totals.sent),
    takenPerSecond: rounded(totals.taken),
    refusedShare: rounded(1 - totals.taken / totals.sent),
    hottest: {
      sentPerSecond: rounded(totals.hottest),
      shareOfAll: rounded(totals.hottest / totals.sent),
    },
    spread: spreadOf(totals.load, totals.counts, options),
    lost: { busiest: loss(options, totals, busiest), median: loss(options, totals, median) },
    move: move(options, totals.counts[busiest] ?? 0),
  };
}

if (import.meta.main) {
  const names = Object.keys(cellsDefaults) as (keyof CellsOptions)[];
  const { values } = parseArgs({
    options: Object.fromEntries(names.map((name) => [flagOf(name), { type: "string" as const }])),
  });
  const given = names.flatMap((name) => {
    const value = values[flagOf(name)];
    return value === undefined ? [] : [[name, Number(value)] as const];
  });
  console.log(
    JSON.stringify(simulate({ ...cellsDefaults, ...Object.fromEntries(given) }), null, 2),
  );
}

function flagOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
