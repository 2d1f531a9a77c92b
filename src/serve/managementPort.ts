import { Effect, Layer, Option } from "effect"
import type { Management } from "../management/Management.ts"
import * as ManagementServer from "../management/ManagementServer.ts"
import { InvalidSetting, type Settings } from "../wiring/Settings.ts"

const message = "BYOK_MANAGEMENT_HOST and BYOK_MANAGEMENT_PORT must be an address that is free to listen on."

/** The management port, if the settings ask for one. */
export const managementPort = (settings: Settings): Layer.Layer<never, InvalidSetting, Management> =>
  Option.match(settings.management, {
    onNone: () => Layer.empty,
    onSome: (address) =>
      ManagementServer.layer({ ...settings, ...address }).pipe(
        Layer.catchTag("ServeError", () => Layer.effectDiscard(Effect.fail(new InvalidSetting({ message }))))
      )
  })
