import { Effect } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { ResourcePath } from "../api/ResourcePath.ts"
import { NotFound } from "../domain/Errors.ts"

export const layer = HttpApiMiddleware.layerSchemaErrorTransform(ResourcePath, (error) =>
  Effect.fail(error.kind === "Params" ? new NotFound() : error)
)
