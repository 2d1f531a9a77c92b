import { Effect } from "effect"
import { eventually } from "./eventually.ts"
import type { ServiceProcess } from "./ServiceProcess.ts"

/** Where a service that logs at `info` has its management port, once it says so. */
export const managementUrl = Effect.fnUntraced(function* ({ stderr }: Pick<ServiceProcess, "stderr">) {
  const found = () => /management port listens on (http:\/\/[\w.:[\]]+)/.exec(stderr())?.[1]
  yield* eventually(
    "the management port listens",
    Effect.sync(() => found() !== undefined)
  )
  return found() ?? ""
})
