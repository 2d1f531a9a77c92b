import { Option, Redacted, Result } from "effect"
import { readKeyMaterial } from "./KeyMaterial.ts"

const parse = (text: string): unknown => Result.getOrUndefined(Result.try(() => JSON.parse(text) as unknown))

/** Every string value inside JSON text; none if it is not JSON. */
const stringsIn = (text: string): ReadonlyArray<string> => {
  const strings: Array<string> = []
  const values = [parse(text)]
  while (values.length > 0) {
    const value = values.pop()
    if (typeof value === "string") strings.push(value)
    else if (typeof value === "object" && value !== null) for (const inner of Object.values(value)) values.push(inner)
  }
  return strings
}

/**
 * The secrets that a stored key holds: the key as a whole, and its parts. Of key material (D28) that is its `api_key`,
 * from which the label is made; of any other JSON every string in it.
 */
export const secretsIn = (provider: string, key: Redacted.Redacted): ReadonlyArray<string> => {
  const whole = Redacted.value(key)
  const secret = Option.match(readKeyMaterial(provider, key), { onNone: () => whole, onSome: ({ secret }) => secret })
  return [whole, secret, ...stringsIn(secret)]
}
