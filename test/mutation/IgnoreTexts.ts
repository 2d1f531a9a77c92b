interface Node {
  readonly type: string
  readonly [member: string]: unknown
}
interface Path {
  readonly node: Node
  readonly parent: Node | null
}

const is = (value: unknown): value is Node => typeof value === "object" && value !== null && "type" in value

/** The name of an identifier, or `Object.member`. */
const nameOf = (node: unknown): string => {
  if (!is(node)) return ""
  if (node.type === "MemberExpression") return `${nameOf(node["object"])}.${nameOf(node["property"])}`
  if (node.type === "CallExpression") return nameOf(node["callee"])
  return String(node["name"])
}

/** Functions whose first or last argument is a text for the OpenAPI document, a trace, a type or the wiring. */
const labelled = new Set([
  "orNull",
  "nullableOutput",
  "sentence",
  "timestamp",
  "flag",
  "flagOutput",
  "uuid",
  "ask",
  "Effect.fn",
  "Context.Service",
  "Context.Reference",
  "Schema.brand"
])
const documentation = new Set(["default", "description", "examples", "identifier", "toJsonSchema"])

const isDocumentation = (node: unknown) =>
  is(node) && node.type === "ObjectProperty" && documentation.has(nameOf(node["key"]))

const reasonFor = ({ node, parent }: Path): string | undefined => {
  const properties = node.type === "ObjectExpression" && Array.isArray(node["properties"]) ? node["properties"] : [node]
  if (properties.length > 0 && properties.every(isDocumentation)) {
    return "documentation: the tests of the OpenAPI document look for it"
  }
  if (parent?.type !== "CallExpression" || !Array.isArray(parent["arguments"])) return undefined
  const callee = nameOf(parent["callee"])
  const isText = node.type === "StringLiteral"
  if (isText && labelled.has(callee) && [parent["arguments"][0], parent["arguments"].at(-1)].includes(node)) {
    return "a name or description that decides nothing"
  }
  const isList = node.type === "ArrayExpression" && Array.isArray(node["elements"]) && node["elements"].length > 100
  return isList && callee === "Schema.Literals" ? "data: the tests compare the whole list" : undefined
}

export const strykerPlugins = [{ kind: "Ignore", name: "texts", value: { shouldIgnore: reasonFor } }]
