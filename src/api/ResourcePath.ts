import { HttpApiMiddleware } from "effect/http-api"
import { NotFound } from "../domain/Errors.ts"

/** Treats a path that does not decode as a resource that does not exist (D5). */
export class ResourcePath extends HttpApiMiddleware.Service<ResourcePath>()("byok/ResourcePath", { error: NotFound }) {}
