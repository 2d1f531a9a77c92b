import { Config, ConfigProvider, Data, Effect, Layer, Option, Redacted } from "effect"

/** Reads the environment at each lookup: Effect's default keeps a copy, including secrets removed since. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)

/** A setting is wrong or missing. The message names it and never contains its value. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{ readonly message: string }> {}

/** Reads a setting that may be unset; `expected` ends the sentence that refuses it. */
export const optionalSetting = <A>(name: string, config: Config.Config<A>, expected: string) =>
  Effect.mapError(Config.option(config), () => new InvalidSetting({ message: `${name} must be ${expected}.` }))

/** Reads a setting that has a default. */
export const settingOr = <A>(name: string, config: Config.Config<A>, fallback: NoInfer<A>, expected: string) =>
  Effect.map(
    optionalSetting(name, config, expected),
    Option.getOrElse(() => fallback)
  )

/** Reads a setting that must not be seen, and removes it from the environment. */
export const secretSetting = <A>(name: string, config: Config.Config<A>, expected: string) =>
  Effect.map(optionalSetting(name, config, expected), (found) => {
    Reflect.deleteProperty(process.env, name)
    return Option.map(found, (value) => Redacted.make(value))
  })
