/** The text format of /metrics. */
import { describe, expect, test } from "bun:test";
import { createMetrics } from "../../../../src/nodes/http/metrics.ts";

describe("metrics", () => {
  test("metrics render in the text format", async () => {
    const metrics = createMetrics();
    const counter = metrics.counter({ name: "things_total", help: "Things.", labels: ["kind"] });
    counter.add(['a"b']);
    counter.add(['a"b'], 2);
    metrics.gauge({ name: "held", help: "Held." }, () => 7);
    metrics.gauge({ name: "broken", help: "Fails." }, () => Promise.reject(new Error("x")));
    metrics.histogram({ name: "seconds", help: "Time.", labels: [] }, [1, 2]).observe([], 1.5);
    expect(await metrics.render()).toBe(
      [
        "# HELP waypost_things_total Things.",
        "# TYPE waypost_things_total counter",
        'waypost_things_total{kind="a\\"b"} 3',
        "# HELP waypost_held Held.",
        "# TYPE waypost_held gauge",
        "waypost_held 7",
        "# HELP waypost_broken Fails.",
        "# TYPE waypost_broken gauge",
        "# HELP waypost_seconds Time.",
        "# TYPE waypost_seconds histogram",
        'waypost_seconds_bucket{le="1"} 0',
        'waypost_seconds_bucket{le="2"} 1',
        'waypost_seconds_bucket{le="+Inf"} 1',
        "waypost_seconds_sum 1.5",
        "waypost_seconds_count 1",
        "",
      ].join("\n"),
    );
  });
});
