import { Config, ConfigProvider, Data, Effect, Layer, Option, Redacted, Schema } from "effect"
import { nearestWord } from "../domain/nearestWord.ts"

/** Reads the environment at each lookup: Effect's default keeps a copy, with secrets that were removed later. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)

/** A setting, or the input of a command, is wrong or missing. The message names it, and never its value. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{ readonly message: string }> {}

/** Fails with `InvalidSetting`. The message is a sentence that names the setting. */
export const refuse = (message: string): Effect.Effect<never, InvalidSetting> =>
  Effect.fail(new InvalidSetting({ message }))

/** Turns a failure into `InvalidSetting`, with the name of the setting or file before its message. */
export const refuseAs =
  (name: string) =>
  <A, E extends { readonly message: string }, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.catch(operation, ({ message }) => refuse(`${name}: ${message}.`))

/** How to read a setting. `expected` ends the sentence that refuses other text: `NAME must be …`. */
export interface Kind<A> {
  readonly read: (name: string) => Config.Config<A>
  readonly expected: string
}

/** A setting that a codec decodes. */
export const decodedBy = <A>(codec: Schema.Codec<A, string>, expected: string): Kind<A> => ({
  read: (name) => Config.schema(codec, name),
  expected
})

export const text: Kind<string> = { read: Config.String, expected: "text" }

export const address = decodedBy(
  Schema.String.check(Schema.isPattern(/^[^[\]]*$/)),
  "a host name or an address, without brackets"
)

const isHttp = ({ password, protocol, username }: URL) => /^https?:$/.test(protocol) && username + password === ""

export const httpUrl = decodedBy(
  Schema.URLFromString.check(Schema.makeFilter(isHttp)),
  "an http or https URL without user and password"
)

export const trueOrFalse: Kind<boolean> = { read: Config.Boolean, expected: "true or false" }

export const oneOf = <const Name extends string>(names: ReadonlyArray<Name>, expected: string): Kind<Name> =>
  decodedBy(Schema.Literals(names), expected)

/** The names of all settings read so far. */
const namesRead = new Set<string>()

/** Reads an optional setting; an empty one counts as unset. */
export const setting = <A>(name: string, { expected, read }: Kind<A>) =>
  Effect.suspend(() => {
    namesRead.add(name)
    return Config.option(read(name)).pipe(Effect.catch(() => refuse(`${name} must be ${expected}.`)))
  })

/** The shortest name that is compared: shorter ones of other programs resemble HOST and PORT by chance. */
const shortestMisspelt = 7

/** Warns of unknown variables if a setting has a similar name. Call it after reading all settings. */
export const warnOfMisspelt = Effect.suspend(() => {
  const unknown = Object.keys(process.env).filter((name) => name.length >= shortestMisspelt && !namesRead.has(name))
  return Effect.forEach(unknown, (name) => {
    const unprefixed = name.startsWith("BYOK_") ? name.slice("BYOK_".length) : name
    const nearest = namesRead.has(unprefixed) ? unprefixed : nearestWord(name, Array.from(namesRead))
    return nearest === undefined ? Effect.void : Effect.logWarning(`${name} is not a setting: is ${nearest} meant?`)
  })
})

/** Reads a setting; returns the fallback if it is unset. */
export const settingOr = <A>(name: string, kind: Kind<A>, fallback: NoInfer<A>) =>
  Effect.map(
    setting(name, kind),
    Option.getOrElse(() => fallback)
  )

/** Reads an optional secret and removes it from the environment. */
export const secret = <A>(name: string, kind: Kind<A>) =>
  Effect.map(setting(name, kind), (option) => {
    Reflect.deleteProperty(process.env, name)
    return Option.map(option, (value) => Redacted.make(value))
  })
