import { Effect } from "effect"
import { send } from "./HttpProbe.ts"
import type { JsonSchema } from "./JsonSchema.ts"

interface Content {
  readonly "application/json": { readonly schema: JsonSchema; readonly example?: unknown }
}

interface DeclaredResponse {
  readonly description: string
  readonly headers: Readonly<
    Record<string, { readonly description: string; readonly required?: boolean; readonly schema: JsonSchema }>
  >
  readonly content: Content
}

export interface Operation {
  readonly operationId: string
  readonly summary: string
  readonly description: string
  readonly security: ReadonlyArray<Readonly<Record<string, ReadonlyArray<string>>>>
  readonly parameters: ReadonlyArray<{
    readonly name: string
    readonly in: string
    readonly required: boolean
    readonly description: string
    readonly schema: JsonSchema
  }>
  readonly requestBody?: { readonly required: boolean; readonly description: string; readonly content: Content }
  readonly responses: Readonly<Record<string, DeclaredResponse>>
}

/** As much of an OpenAPI document as the tests read. */
export interface OpenApiDocument {
  readonly openapi: string
  readonly info: { readonly title: string; readonly version: string; readonly description: string }
  readonly servers: ReadonlyArray<{ readonly url: string }>
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, JsonSchema>>
    readonly securitySchemes: Readonly<Record<string, { readonly type: string; readonly scheme: string }>>
  }
}

/** The document that a service serves. */
export const fetchDocument = (url: string) =>
  Effect.map(send(url, { path: "/openapi.json" }), ({ body }) => JSON.parse(body) as OpenApiDocument)

/** An operation, which must be in the document. */
export const operationOf = (
  document: OpenApiDocument,
  [method, path]: readonly [method: string, path: string]
): Operation => {
  const operation = document.paths[path]?.[method]
  if (operation === undefined) throw new Error(`${method} ${path} is not in the document`)
  return operation
}
