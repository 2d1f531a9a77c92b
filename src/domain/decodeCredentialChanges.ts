import { Effect, Schema } from "effect"
import { CredentialChanges } from "./CredentialChanges.ts"
import { InvalidParams } from "./Errors.ts"

const decode = Schema.decodeUnknownEffect(CredentialChanges, { errors: "all" })

/** Decodes the input of update, which may be anything. Fails with every issue at once, as HTTP answers. */
export const decodeCredentialChanges = (input: unknown): Effect.Effect<CredentialChanges, InvalidParams> =>
  Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
