import { Config, ConfigProvider, Data, Effect, Layer, Option, Redacted, Schema } from "effect"
import { nearestOf } from "../domain/checkInput.ts"

/** Reads the environment at each lookup: Effect's default keeps a copy, including secrets removed since. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)

/** A setting, or what a command is given to read, is wrong or missing. The message names it and never contains its value. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{ readonly message: string }> {}

/** Fails with a sentence that names the setting. */
export const refuse = (message: string): Effect.Effect<never, InvalidSetting> =>
  Effect.fail(new InvalidSetting({ message }))

/** Puts the name of a setting or file before the sentence on what is wrong with it. */
export const refuseAs =
  (name: string) =>
  <A, E extends { readonly message: string }, R>(use: Effect.Effect<A, E, R>) =>
    Effect.catch(use, ({ message }) => refuse(`${name}: ${message}.`))

/** What the text of a setting may be, and how the sentence that refuses another text ends. */
export interface Kind<A> {
  readonly read: (name: string) => Config.Config<A>
  readonly expected: string
}

export const decodedBy = <A>(codec: Schema.Codec<A, string>, expected: string): Kind<A> => ({
  read: (name) => Config.schema(codec, name),
  expected
})

export const text: Kind<string> = { read: Config.String, expected: "text" }

const isHttp = ({ password, protocol, username }: URL) => /^https?:$/.test(protocol) && username + password === ""

export const httpUrl = decodedBy(
  Schema.URLFromString.check(Schema.makeFilter(isHttp)),
  "an http or https URL without user and password"
)

export const trueOrFalse: Kind<boolean> = { read: Config.Boolean, expected: "true or false" }

export const oneOf = <const Name extends string>(names: ReadonlyArray<Name>, expected: string): Kind<Name> =>
  decodedBy(Schema.Literals(names), expected)

/** Every setting that was read. */
const settings = new Set<string>()

/** Reads a setting that may be unset; an empty one counts as unset. */
export const setting = <A>(name: string, { expected, read }: Kind<A>) =>
  Effect.suspend(() => {
    settings.add(name)
    return Config.option(read(name)).pipe(Effect.catch(() => refuse(`${name} must be ${expected}.`)))
  })

/** Warns of variables whose names begin with BYOK_ and are nearly those of settings that were read before. */
export const warnOfMisspelt = Effect.suspend(() => {
  const unknown = Object.keys(process.env).filter((name) => name.startsWith("BYOK_") && !settings.has(name))
  return Effect.forEach(unknown, (name) => {
    const unprefixed = name.slice("BYOK_".length)
    const nearest = settings.has(unprefixed) ? unprefixed : nearestOf(name, Array.from(settings))
    return nearest === undefined ? Effect.void : Effect.logWarning(`${name} is not a setting: is ${nearest} meant?`)
  })
})

export const settingOr = <A>(name: string, kind: Kind<A>, fallback: NoInfer<A>) =>
  Effect.map(
    setting(name, kind),
    Option.getOrElse(() => fallback)
  )

/** Reads a setting that must not be seen, and removes it from the environment. */
export const secret = <A>(name: string, kind: Kind<A>) =>
  Effect.map(setting(name, kind), (found) => {
    Reflect.deleteProperty(process.env, name)
    return Option.map(found, (value) => Redacted.make(value))
  })
