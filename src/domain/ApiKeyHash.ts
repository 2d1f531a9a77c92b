import { Schema } from "effect"

/** SHA-256 of a whole API key as UTF-8, in lowercase hexadecimal: the only form in which API keys are stored (D24). */
export const ApiKeyHash = Schema.String.annotate({ message: "must be a string" })
  .check(Schema.isPattern(/^[a-f0-9]{64}$/u, { message: "must be 64 lowercase hexadecimal characters" }))
  .pipe(Schema.brand("ApiKeyHash"))
export type ApiKeyHash = typeof ApiKeyHash.Type
