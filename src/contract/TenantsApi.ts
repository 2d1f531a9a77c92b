import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { CredentialId } from "../domain/Identifiers.ts"
import { Authentication } from "./Middleware.ts"
import { openApiAnnotations } from "./OpenApiAnnotations.ts"
import { healthAnswer, operationsAt, ready } from "./operations.ts"

class ByokGroup extends HttpApiGroup.make("byok")
  .add(...operationsAt({ id: CredentialId }))
  .prefix("/api/v1/byok")
  .middleware(Authentication)
  .annotate(OpenApi.Description, "Provider credentials brought by customers.") {}

class HealthGroup extends HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("live", "/health/live", { success: healthAnswer("live") })
      .annotate(OpenApi.Summary, "Check that the process runs")
      .annotate(OpenApi.Description, "For probes. Needs no key and does not query the database."),
    ready
  )
  .annotate(OpenApi.Description, "For probes.") {}

/** The tenants' API, from which the server, the typed client and the OpenAPI document are derived. */
export class Api extends HttpApi.make("byok")
  .add(ByokGroup, HealthGroup)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.SuccessParseOptions, { disableChecks: true })
  .annotateMerge(openApiAnnotations) {}
