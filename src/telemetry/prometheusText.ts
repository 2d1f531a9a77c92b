import type { Context } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { families, prometheusName } from "../port/families.ts"

export const prometheusType = "text/plain; version=0.0.4; charset=utf-8"

const names = new Map(Object.entries(families).map(([name, family]) => [name, prometheusName(name, family)]))

/** The series of the context's registry in the text format of Prometheus. */
export const prometheusText = (context: Context.Context<never>): string =>
  PrometheusMetrics.formatUnsafe(context, { metricNameMapper: (name) => names.get(name) ?? name })
