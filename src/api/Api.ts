import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Credential } from "../domain/Credential.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { Conflict, NotFound } from "../domain/Errors.ts"
import { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import { NewCredential } from "../domain/NewCredential.ts"
import { Authentication } from "./Authentication.ts"
import { ExpectationFailed, HeadersTooLarge, RequestTimeout } from "./HttpErrors.ts"
import { JsonBody } from "./JsonBody.ts"
import { openApiAnnotations } from "./OpenApiAnnotations.ts"
import { ResourcePath } from "./ResourcePath.ts"

const Body = Schema.Struct({ data: Credential })

/** What the server answers to requests that never reach an operation. */
const refusals = [RequestTimeout, ExpectationFailed, HeadersTooLarge] as const

const create = HttpApiEndpoint.post("create", "/byok", {
  headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
  payload: NewCredential,
  success: HttpApiSchema.WithHeaders(Body.pipe(HttpApiSchema.status(201)), {
    "idempotent-replayed": Schema.optionalKey(Schema.Literal("true"))
  }),
  error: [Conflict, ...refusals]
})
  .annotate(OpenApi.Summary, "Create a credential")
  .annotate(
    OpenApi.Description,
    [
      "Encrypts the key and stores the credential. The response never includes the key. An `Idempotency-Key` makes the",
      "request safe to retry: the same request returns the credential that it created, a different one gets 409.",
      "Requests are compared by what they would create, not by how they are written."
    ].join("\n")
  )
  .middleware(JsonBody)

const get = HttpApiEndpoint.get("get", "/byok/:id", {
  params: { id: CredentialId },
  success: Body,
  error: [NotFound, ...refusals]
})
  .annotate(OpenApi.Summary, "Get a credential")
  .annotate(OpenApi.Description, "Another account's credential is treated as one that does not exist.")
  .middleware(ResourcePath)

/** The two operations on credentials (section 4). */
class ByokGroup extends HttpApiGroup.make("byok")
  .add(create, get)
  .middleware(Authentication)
  .annotate(OpenApi.Description, "Provider credentials brought by customers.") {}

/** The whole HTTP contract: server, typed client and OpenAPI document are derived from it. */
export class Api extends HttpApi.make("byok")
  .add(ByokGroup)
  .prefix("/api/v1")
  .annotate(HttpApi.PayloadParseOptions, { errors: "all" })
  .annotate(HttpApi.SuccessParseOptions, { disableChecks: true })
  .annotateMerge(openApiAnnotations) {}
