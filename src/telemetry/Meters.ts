import { Layer } from "effect"
import * as DatabaseMeterLive from "./DatabaseMeterLive.ts"
import { Meter } from "./Meter.ts"
import * as RequestMeterLive from "./RequestMeterLive.ts"
import * as RouterMeterLive from "./RouterMeterLive.ts"

/** Everything that measures, and what makes further series. */
export const layer = Layer.mergeAll(DatabaseMeterLive.layer, RequestMeterLive.layer, RouterMeterLive.layer).pipe(
  Layer.provideMerge(Meter.layer)
)
