import { Config, ConfigProvider, Data, Effect, Layer, Option, Redacted, Schema } from "effect"
import { nearestWord } from "../domain/checkInput.ts"

/** Reads the environment at each lookup: Effect's default keeps a copy, with secrets that were removed later. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)

/** Reports a wrong or missing setting, or input of a command. The message names the setting, never its value. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{ readonly message: string }> {}

/** Fails with a sentence that names the setting. */
export const refuse = (message: string): Effect.Effect<never, InvalidSetting> =>
  Effect.fail(new InvalidSetting({ message }))

/** Prefixes an error with the name of the setting or file. */
export const refuseAs =
  (name: string) =>
  <A, E extends { readonly message: string }, R>(use: Effect.Effect<A, E, R>) =>
    Effect.catch(use, ({ message }) => refuse(`${name}: ${message}.`))

/** The codec of a setting, and the end of the sentence that refuses other text. */
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

/** The names of all settings read so far. */
const settings = new Set<string>()

/** Reads an optional setting; empty counts as unset. */
export const setting = <A>(name: string, { expected, read }: Kind<A>) =>
  Effect.suspend(() => {
    settings.add(name)
    return Config.option(read(name)).pipe(Effect.catch(() => refuse(`${name} must be ${expected}.`)))
  })

/** Warns of variables that begin with BYOK_ and are close to a setting's name. Call it after reading all settings. */
export const warnOfMisspelt = Effect.suspend(() => {
  const unknown = Object.keys(process.env).filter((name) => name.startsWith("BYOK_") && !settings.has(name))
  return Effect.forEach(unknown, (name) => {
    const unprefixed = name.slice("BYOK_".length)
    const nearest = settings.has(unprefixed) ? unprefixed : nearestWord(name, Array.from(settings))
    return nearest === undefined ? Effect.void : Effect.logWarning(`${name} is not a setting: is ${nearest} meant?`)
  })
})

export const settingOr = <A>(name: string, kind: Kind<A>, fallback: NoInfer<A>) =>
  Effect.map(
    setting(name, kind),
    Option.getOrElse(() => fallback)
  )

/** Reads a secret setting and removes it from the environment. */
export const secret = <A>(name: string, kind: Kind<A>) =>
  Effect.map(setting(name, kind), (option) => {
    Reflect.deleteProperty(process.env, name)
    return Option.map(option, (value) => Redacted.make(value))
  })
