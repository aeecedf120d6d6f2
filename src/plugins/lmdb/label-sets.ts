/**
 * The labels of rows. Many rows have the same few, so a row has the number of a set, and a set is kept for as long as
 * rows have it. An array of its own for each row took more memory than the rest of the row.
 */
type LabelSet = { readonly labels: readonly string[]; readonly key: string; rows: number };

/** The number of the empty set. */
export const noLabels = 0;

export class LabelSets {
  private readonly numbers = new Map<string, number>();
  private readonly sets: (LabelSet | undefined)[] = [{ labels: [], key: "", rows: 0 }];
  private readonly free: number[] = [];

  labels(number: number): readonly string[] {
    return this.sets[number]!.labels;
  }

  /** One more row has these labels. Labels hold no spaces. */
  take(labels: readonly string[]): number {
    if (labels.length === 0) return noLabels;
    const key = labels.join(" ");
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.free.pop() ?? this.sets.length;
      this.sets[number] = { labels: key.split(" "), key, rows: 0 };
      this.numbers.set(key, number);
    }
    this.sets[number]!.rows++;
    return number;
  }

  release(number: number): void {
    if (number === noLabels) return;
    const set = this.sets[number]!;
    if (--set.rows > 0) return;
    this.numbers.delete(set.key);
    this.sets[number] = undefined;
    this.free.push(number);
  }
}
