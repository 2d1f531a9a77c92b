import { Config, Effect, Option, Redacted } from "effect"
import { optionalSetting } from "./optionalSetting.ts"

/** Reads a setting that must not be seen, and removes it from the environment. */
export const secretSetting = (name: string) =>
  Effect.map(optionalSetting(name, Config.NonEmptyString(name), "a non-empty string"), (found) => {
    Reflect.deleteProperty(process.env, name)
    return Option.map(found, (value) => Redacted.make(value))
  })
