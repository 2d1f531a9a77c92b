import { Schema } from "effect"
import { ApiKeyHash } from "./Identifiers.ts"
import { keyFaultIn } from "./KeyHygiene.ts"
import { Region } from "./Region.ts"
import { Text } from "./Text.ts"
import { withMaxLength } from "./checkInput.ts"

const tooLong = "must have at most 100 elements"

const shortText = Text.check(Schema.isMaxCodePoints(255, { message: "must have at most 255 characters" }))

const keyDescription =
  "Raw provider key. Encrypted at rest, never returned. It must not have white space, control characters, quotes or a scheme such as Bearer around it. For openai and fireworks it may be a JSON object with api_key and region. A new key of these sets declared_region to its own region, or to null if it has none."

const key = Schema.RedactedFromValue(
  Text.check(
    Schema.makeFilter(keyFaultIn),
    Schema.isNonEmpty({ message: "must not be empty", description: keyDescription })
  )
)

/** The members of a request that create takes and update changes (section 4.1, section 8). Only a create has defaults. */
export const credentialFields = (request: "create" | "update") => {
  const nullable = request === "create" ? { default: null } : {}
  const flag = request === "create" ? { default: false } : {}

  const orNull = <S extends Schema.Constraint>(schema: S, message: string, description: string) =>
    Schema.NullOr(schema).annotate({ message, description, ...nullable })

  const toggle = (description: string) =>
    Schema.Boolean.annotate({ message: "must be true or false", description, ...flag })

  const listOrNull = <T extends string>(element: Schema.Codec<T, string>, minLength: 0 | 1, description: string) => {
    const list = Schema.Array(element).check(Schema.isMaxLength(100, { message: tooLong }))
    const atLeast1 = Schema.isMinLength(1, { message: "must have at least 1 element" })
    return Schema.NullOr(minLength === 1 ? list.check(atLeast1) : list)
      .annotate({ message: "must be a list of strings or null", description, ...nullable })
      .pipe(withMaxLength(100, tooLong))
  }

  return {
    key,
    name: orNull(shortText, "must be a string or null", "Human-readable name."),
    allowed_api_key_hashes: listOrNull(
      ApiKeyHash,
      1,
      "SHA-256 of each API key of the account that may use the credential; null for no restriction."
    ),
    allowed_models: listOrNull(shortText, 0, "Model slugs; null for no restriction, an empty list matches nothing."),
    allowed_user_ids: listOrNull(shortText, 0, "User ids; null for no restriction, an empty list matches nothing."),
    declared_region: orNull(
      Region,
      "must be global, europe, us or null",
      "Declared data region. For openai and fireworks it must match the region of the key; only azure may declare europe or us otherwise."
    ),
    declared_zdr: orNull(
      Schema.Boolean,
      "must be true, false or null",
      "Declared zero data retention; null inherits the service's policy for the endpoint."
    ),
    disabled: toggle("Whether the credential is disabled."),
    is_required: toggle("Remove the provider's shared endpoints for every model. Not for fallback credentials."),
    is_fallback: toggle("Use only after non-fallback keys of the provider have been tried. Not with is_byok_only."),
    is_byok_only: toggle("Remove the provider's shared endpoints for the models this credential applies to.")
  }
}
