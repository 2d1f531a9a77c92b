import { HttpApiMiddleware } from "effect/http-api"
import { NotFound } from "../domain/Errors.ts"

/** A path that cannot be decoded is a resource that does not exist (D5). */
export class ResourcePath extends HttpApiMiddleware.Service<ResourcePath>()("byok/ResourcePath", { error: NotFound }) {}
