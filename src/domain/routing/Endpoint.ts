import { Schema } from "effect"
import { withDefault } from "../checkInput.ts"
import { Region } from "../Region.ts"

/** Kinds of endpoint, by which declarations of a credential they honour (section 4.1, `declared_region`). */
export const EndpointKind = Schema.Literals(["standard", "private", "pinned", "cross_region", "video"]).annotate({
  message: "must be standard, private, pinned, cross_region or video"
})
export type EndpointKind = typeof EndpointKind.Type

/** A member that is false or true, and what it is if it is absent. */
export const flag = (initially: boolean, description: string) =>
  withDefault(Schema.Boolean.annotate({ message: "must be true or false", description, default: initially }))

/** What a gateway knows of a provider's endpoint for the requested model. */
export const Endpoint = Schema.Struct({
  kind: withDefault(EndpointKind.annotate({ description: "Kind of endpoint.", default: "standard" })),
  region: Schema.NullOr(Region)
    .annotate({
      message: "must be global, europe, us or null",
      description: "Recorded region; null or global for none in particular.",
      default: null
    })
    .pipe(withDefault),
  zdr: flag(false, "Whether the endpoint retains nothing of a request."),
  shared: flag(true, "Whether the gateway has capacity of its own there.")
})
export type Endpoint = typeof Endpoint.Type
