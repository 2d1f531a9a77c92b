import { Effect, Layer } from "effect"
import { OtlpSerialization } from "effect/observability"

type MetricsData = Parameters<OtlpSerialization.OtlpSerialization["Service"]["metrics"]>[0]
type Metric = MetricsData["resourceMetrics"][number]["scopeMetrics"][number]["metrics"][number]

const withoutUnit = <Point extends { attributes?: Array<{ key: string }> }>(points: ReadonlyArray<Point>) =>
  points.map((point) => ({ ...point, attributes: (point.attributes ?? []).filter(({ key }) => key !== "unit") }))

const cleaned = ({ gauge, histogram, sum, ...metric }: Metric): Metric => ({
  ...metric,
  ...(gauge === undefined ? {} : { gauge: { ...gauge, dataPoints: withoutUnit(gauge.dataPoints) } }),
  ...(sum === undefined ? {} : { sum: { ...sum, dataPoints: withoutUnit(sum.dataPoints) } }),
  ...(histogram === undefined ? {} : { histogram: { ...histogram, dataPoints: withoutUnit(histogram.dataPoints) } })
})

/** JSON for a collector. Effect takes the unit of a series from its attributes and leaves it among them. */
export const layer = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, (json) => ({
    ...json,
    metrics: ({ resourceMetrics }) =>
      json.metrics({
        resourceMetrics: resourceMetrics.map((each) => ({
          ...each,
          scopeMetrics: each.scopeMetrics.map((scope) => ({ ...scope, metrics: scope.metrics.map(cleaned) }))
        }))
      })
  }))
).pipe(Layer.provide(OtlpSerialization.layerJson))
