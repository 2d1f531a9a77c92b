import { Effect } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { QueryParameters } from "../api/QueryParameters.ts"
import { InvalidParams } from "../domain/Errors.ts"

export const layer = HttpApiMiddleware.layerSchemaErrorTransform(QueryParameters, (error) =>
  Effect.fail(error.kind === "Query" ? InvalidParams.ofSchema(error.cause.issue) : error)
)
