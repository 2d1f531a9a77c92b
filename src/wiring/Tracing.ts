import { Layer, Option, Redacted, References } from "effect"
import * as TracerLive from "../telemetry/TracerLive.ts"
import type { Settings } from "./Settings.ts"

/** Sends spans to the collector that the settings name; without one, none are made. */
export const layer = ({ otlp: { resource, sampling, traces } }: Settings) =>
  Option.match(traces, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: ({ headers, url }) =>
      TracerLive.layer({ url: url.href, headers: Redacted.value(headers), resource, sampling })
  })
