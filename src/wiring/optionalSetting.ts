import { Config, Effect } from "effect"
import { InvalidSetting } from "./InvalidSetting.ts"

/** Reads a setting that may be unset; `expected` ends the sentence that refuses it. */
export const optionalSetting = <A>(name: string, config: Config.Config<A>, expected: string) =>
  Effect.mapError(Config.option(config), () => new InvalidSetting({ message: `${name} must be ${expected}.` }))
