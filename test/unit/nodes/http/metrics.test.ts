/** The text format of /metrics. */
import { describe, expect, test } from "bun:test";
import { createMetrics, mergeSamples, renderMetrics } from "../../../../src/nodes/http/metrics.ts";

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

test("the samples of several threads are those of one process", async () => {
  const thread = (requests: number, lag: number) => {
    const metrics = createMetrics();
    metrics.counter({ name: "requests", help: "R.", labels: ["route"] }).add(["/a"], requests);
    metrics.gauge({ name: "lag", help: "L.", merge: "max" }, () => lag);
    metrics.histogram({ name: "seconds", help: "S." }, [0.1, 1]).observe([], lag);
    return metrics;
  };
  const merged = mergeSamples([await thread(2, 0.5).collect(), await thread(3, 0.05).collect()]);
  expect(renderMetrics(merged)).toBe(
    [
      "# HELP waypost_requests R.\n# TYPE waypost_requests counter",
      'waypost_requests{route="/a"} 5',
      "# HELP waypost_lag L.\n# TYPE waypost_lag gauge",
      "waypost_lag 0.5",
      "# HELP waypost_seconds S.\n# TYPE waypost_seconds histogram",
      'waypost_seconds_bucket{le="0.1"} 1',
      'waypost_seconds_bucket{le="1"} 2',
      'waypost_seconds_bucket{le="+Inf"} 2',
      "waypost_seconds_sum 0.55",
      "waypost_seconds_count 2\n",
    ].join("\n"),
  );
});
