import { Context, Metric } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { families, type Family } from "./families.ts"
import type { Series, Snapshot } from "./Snapshot.ts"

const register = (context: Context.Context<never>, { attributes, family, reading }: Series) => {
  const { bounds = [], description }: Family = families[family]
  const options = { description, attributes }
  const readOnly = { update: () => {}, modify: () => {} }
  switch (reading.type) {
    case "counter": {
      const get = () => ({ count: reading.value, incremental: true })
      return Metric.registerUnsafe(Metric.counter(family, { ...options, incremental: true }), context, {
        ...readOnly,
        get
      })
    }
    case "gauge":
      return Metric.registerUnsafe(Metric.gauge(family, options), context, {
        ...readOnly,
        get: () => ({ value: reading.value })
      })
    case "histogram": {
      const buckets = bounds.map((bound, index): [number, number] => [bound, reading.buckets[index] ?? 0])
      const get = () => ({ buckets, count: reading.count, sum: reading.sum, min: 0, max: 0 })
      return Metric.registerUnsafe(Metric.histogram(family, { ...options, boundaries: bounds }), context, {
        ...readOnly,
        get
      })
    }
  }
}

/** The content type of the text format. */
export const prometheusType = "text/plain; version=0.0.4; charset=utf-8"

const names = new Map<string, string>(Object.entries(families).map(([name, { prometheus }]) => [name, prometheus]))

const keyOf = ({ attributes, family }: Series) =>
  JSON.stringify([family, ...Object.entries(attributes).sort(([one], [other]) => (one < other ? -1 : 1))])

const sorted = (snapshot: Snapshot) =>
  snapshot
    .map((series) => [keyOf(series), series] as const)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, series]) => series)

/** A snapshot in the text format of Prometheus, in the order of names and labels. */
export const prometheusText = (snapshot: Snapshot): string => {
  const context = Context.make(Metric.MetricRegistry, new Map())
  for (const series of sorted(snapshot)) register(context, series)
  return PrometheusMetrics.formatUnsafe(context, { metricNameMapper: (name) => names.get(name) ?? name })
}
