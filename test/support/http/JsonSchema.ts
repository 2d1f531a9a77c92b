import { assert } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { Api } from "../../../src/contract/TenantsApi.ts"
import type { Answer } from "./RawConnection.ts"

/** The part of JSON Schema that the OpenAPI document uses. */
export interface JsonSchema {
  readonly $ref?: string
  readonly type?: "object" | "array" | "string" | "number" | "integer" | "boolean" | "null"
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: ReadonlyArray<string>
  readonly items?: JsonSchema
  readonly enum?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly pattern?: string
  readonly format?: string
  readonly minLength?: number
  readonly maxLength?: number
  readonly minItems?: number
  readonly maxItems?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly description?: string
  readonly default?: unknown
  readonly examples?: ReadonlyArray<unknown>
}

const known = [
  ...["$ref", "type", "properties", "required", "items", "enum", "anyOf", "allOf", "pattern", "format", "minLength"],
  ...["maxLength", "minItems", "maxItems", "minimum", "maximum", "description", "default", "examples"]
]

const typeOf = (value: unknown): ReadonlyArray<JsonSchema["type"]> => {
  if (value === null) return ["null"]
  if (Array.isArray(value)) return ["array"]
  if (Number.isInteger(value)) return ["integer", "number"]
  return [typeof value as "object" | "string" | "number" | "boolean"]
}

const isWithin = (size: number, low = -Infinity, high = Infinity) => size >= low && size <= high

/** The places at which a value does not match a schema. Stricter than the standard: refuses undeclared members. */
export const mismatches = (
  schema: JsonSchema,
  value: unknown,
  definitions: Readonly<Record<string, JsonSchema>>,
  at = "$"
): ReadonlyArray<string> => {
  const unknown = Object.keys(schema).filter((keyword) => !known.includes(keyword))
  if (unknown.length > 0) throw new Error(`a schema uses ${unknown.join(", ")}`)
  const check = (inner: JsonSchema, part: unknown, where: string) => mismatches(inner, part, definitions, where)
  const wrong: Array<string> = []
  const demand = (holds: boolean, keyword: string) => {
    if (!holds) wrong.push(`${at}: ${keyword}`)
  }

  if (schema.$ref !== undefined) {
    const target = definitions[schema.$ref.replace("#/components/schemas/", "")]
    if (target === undefined) throw new Error(`${schema.$ref} is not defined`)
    wrong.push(...check(target, value, at))
  }
  if (schema.type !== undefined) demand(typeOf(value).includes(schema.type), "type")
  if (schema.enum !== undefined) demand(schema.enum.includes(value), "enum")
  if (schema.anyOf !== undefined)
    demand(
      schema.anyOf.some((one) => check(one, value, at).length === 0),
      "anyOf"
    )
  for (const one of schema.allOf ?? []) wrong.push(...check(one, value, at))
  if (typeof value === "string") {
    demand(isWithin(Array.from(value).length, schema.minLength, schema.maxLength), "length")
    demand(schema.pattern === undefined || new RegExp(schema.pattern, "u").test(value), "pattern")
  }
  if (typeof value === "number") demand(isWithin(value, schema.minimum, schema.maximum), "range")
  if (Array.isArray(value)) {
    demand(isWithin(value.length, schema.minItems, schema.maxItems), "number of items")
    const { items } = schema
    if (items !== undefined) wrong.push(...value.flatMap((item, index) => check(items, item, `${at}[${index}]`)))
  } else if (typeof value === "object" && value !== null && schema.properties !== undefined) {
    for (const name of schema.required ?? []) demand(name in value, `no ${name}`)
    for (const [name, member] of Object.entries(value)) {
      const property = schema.properties[name]
      if (property === undefined) demand(false, `unknown ${name}`)
      else wrong.push(...check(property, member, `${at}.${name}`))
    }
  }
  return wrong
}

interface Content {
  readonly "application/json": {
    readonly schema: JsonSchema
    readonly examples?: { readonly example: { readonly value: unknown } }
  }
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

/** The parts of an OpenAPI document that tests read. */
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

/** An operation, which must be in the document. */
export const operationOf = (
  document: OpenApiDocument,
  [method, path]: readonly [method: string, path: string]
): Operation => {
  const operation = document.paths[path]?.[method]
  if (operation === undefined) throw new Error(`${method} ${path} is not in the document`)
  return operation
}

/** The places at which body and headers of an answer differ from the document's declaration for operation and status. */
export const undeclared = (
  document: OpenApiDocument,
  operation: readonly [method: string, path: string],
  { body, headers, status }: Answer
): ReadonlyArray<string> => {
  const declared = operationOf(document, operation).responses[String(status)]
  if (declared === undefined) return [`${status} is not declared`]
  const { schemas } = document.components
  return [
    ...mismatches(declared.content["application/json"].schema, JSON.parse(body), schemas),
    ...Object.entries(declared.headers).flatMap(([name, { required, schema }]) => {
      const value = headers[name.toLowerCase()]
      if (required === false && value === undefined) return []
      return mismatches(schema, schema.type === "integer" ? Number(value) : value, schemas, name)
    })
  ]
}

/** The document of the contract. */
export const contract = JSON.parse(JSON.stringify(OpenApi.fromApi(Api))) as OpenApiDocument

/** The answer is as the contract declares it for the operation (section 7). */
export const assertDeclared = (operation: readonly [method: string, path: string], answer: Answer) =>
  assert.deepStrictEqual(undeclared(contract, operation, answer), [], `${answer.status} ${answer.body}`)
