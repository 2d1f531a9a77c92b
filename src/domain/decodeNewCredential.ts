import { Effect, Schema } from "effect"
import { InvalidParams } from "./Errors.ts"
import { NewCredential } from "./NewCredential.ts"

const decode = Schema.decodeUnknownEffect(NewCredential, { errors: "all" })

/** Decodes the input of create, which may be anything. Fails with every issue at once, as HTTP answers. */
export const decodeNewCredential = (input: unknown): Effect.Effect<NewCredential, InvalidParams> =>
  Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
