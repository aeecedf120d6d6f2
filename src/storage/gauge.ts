/** Figures that a driver shows in `/metrics`. */

/** One value for each set of labels: the store's name, which the program adds, and the database. */
export type GaugeValues = readonly (readonly [labels: readonly string[], value: number])[];

/** Registers a figure of a store. `read` must be cheap. */
export type RegisterGauge = (
  gauge: { readonly name: string; readonly help: string },
  read: () => GaugeValues,
) => void;
