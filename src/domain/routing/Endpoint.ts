import { Effect, Schema } from "effect"
import { Region } from "../Region.ts"

/** Kinds of endpoint, by which declarations of a credential they honour (section 4.1, `declared_region`). */
export const EndpointKind = Schema.Literals(["standard", "private", "pinned", "cross_region", "video"]).annotate({
  message: "must be standard, private, pinned, cross_region or video"
})
export type EndpointKind = typeof EndpointKind.Type

const flag = (initially: boolean, description: string) =>
  Schema.Boolean.annotate({ message: "must be true or false", description, default: initially }).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed(initially))
  )

/** What a gateway knows of a provider's endpoint for the requested model. */
export const Endpoint = Schema.Struct({
  kind: EndpointKind.annotate({ description: "Kind of endpoint.", default: "standard" }).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed("standard" as const))
  ),
  region: Schema.NullOr(Region)
    .annotate({
      message: "must be global, europe, us or null",
      description: "Recorded region; null or global for none in particular.",
      default: null
    })
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(null))),
  zdr: flag(false, "Whether the endpoint retains nothing of a request."),
  shared: flag(true, "Whether the gateway has capacity of its own there.")
})
export type Endpoint = typeof Endpoint.Type
