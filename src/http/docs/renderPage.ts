import type { OpenApi } from "effect/http-api"

/** The limits that a schema may set, which the page shows by these names. */
const limits = ["minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum"] as const

/** The part of JSON Schema that the contract uses. */
interface ValueSchema extends Readonly<Partial<Record<(typeof limits)[number], number>>> {
  readonly $ref?: string
  readonly type?: string
  readonly format?: string
  readonly description?: string
  readonly default?: unknown
  readonly enum?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<ValueSchema>
  readonly allOf?: ReadonlyArray<ValueSchema>
  readonly items?: ValueSchema
  readonly properties?: Readonly<Record<string, ValueSchema>>
  readonly required?: ReadonlyArray<string>
  readonly pattern?: string
}

/** Schema and example of a body, which is JSON. */
const jsonOf = (body?: { readonly content?: OpenApi.OpenApiSpecContent }) =>
  (body?.content?.["application/json"] ?? {}) as { readonly schema?: ValueSchema; readonly example?: unknown }

const escape = (text: string) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`)

/** Paragraphs with blank lines between them, and with `code` between backticks. */
const inline = (text: string) => escape(text).replace(/`([^`]*)`/g, "<code>$1</code>")

const prose = (text = "") => (text === "" ? "" : `<p>${inline(text).replaceAll("\n\n", "</p><p>")}</p>`)

const code = (value: unknown) => `<code>${escape(typeof value === "string" ? value : JSON.stringify(value))}</code>`

const block = (value: unknown) => `<pre>${escape(JSON.stringify(value, null, 2))}</pre>`

const badge = (method: string) => `<b class="${method}">${method.toUpperCase()}</b>`

const table = (caption: string, rows: string) =>
  rows === "" ? "" : `<h3>${caption}</h3><table><tbody>${rows}</tbody></table>`

/** How many values of an enumeration are shown without being asked for. */
const fewValues = 6

/** The statuses that say something of an operation of its own; the others are shown once for all. */
const isOwnStatus = (status: string) => /^(2..|400|404|409)$/.test(status)

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

/** A command that sends a request like the example. The script puts the origin of the page into it. */
const curl = (method: string, path: string, { requestBody, security }: OpenApi.OpenAPISpecOperation) => {
  const { example } = jsonOf(requestBody)
  const rest = [
    quoted(path.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase())).slice(1),
    ...(method === "get" ? [] : [`-X ${method.toUpperCase()}`]),
    ...(security.length > 0 ? ['-H "Authorization: Bearer $BYOK_MANAGEMENT_KEY"'] : []),
    ...(example === undefined ? [] : ["-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(example))}`])
  ].join(" \\\n  ")
  return `<pre>curl '<span class="origin">http://127.0.0.1:3000</span>${escape(rest)}</pre>`
}

/** Renders an OpenAPI document as a page that is complete without scripts; a script adds sending requests. */
export const renderPage = ({ components, info, paths }: OpenApi.OpenAPISpec): string => {
  const resolve = (schema: ValueSchema): ValueSchema => {
    const name = schema.$ref?.split("/").at(-1)
    return name === undefined ? schema : (components.schemas[name] ?? schema)
  }

  const manyValuesOf = (schema: ValueSchema) => {
    const { enum: values = [] } = resolve(schema)
    return values.length > fewValues ? values : []
  }

  const typeOf = (given: ValueSchema): string => {
    const { anyOf, enum: values, format, items = {}, type = "any value" } = resolve(given)
    if (anyOf !== undefined) return anyOf.map(typeOf).join(" or ")
    if (values !== undefined && values.length <= fewValues) return values.map(code).join(" or ")
    if (type === "array") return `list of ${typeOf(items)}`
    return escape(format === undefined ? type : `${type} (${format})`)
  }

  const limitsOf = (given: ValueSchema): ReadonlyArray<string> => {
    const schema = resolve(given)
    const { allOf = [], anyOf = [], format, items, pattern } = schema
    return [
      ...limits.flatMap((name) => (schema[name] === undefined ? [] : [`${name} ${schema[name]}`])),
      ...(pattern === undefined || format !== undefined ? [] : [`pattern ${code(pattern)}`]),
      ...[...allOf, ...anyOf].flatMap(limitsOf),
      ...(items === undefined ? [] : limitsOf(items).map((limit) => `each ${limit}`))
    ]
  }

  const row = (name: string, schema: ValueSchema, required: boolean, where: string, about?: string) => {
    const { default: byDefault, description } = resolve(schema)
    const [limits, values] = [limitsOf(schema).join("; "), manyValuesOf(schema)]
    return [
      `<tr><th scope="row">${code(name)}<span>${[where, required ? "required" : ""].filter(Boolean).join(", ")}</span></th>`,
      `<td><span class="type">${typeOf(schema)}${byDefault === undefined ? "" : `, default ${code(byDefault)}`}</span>`,
      prose(about ?? description),
      limits === "" ? "" : `<p class="limits">${limits}</p>`,
      values.length === 0
        ? ""
        : `<details><summary>${values.length} values</summary><p class="values">${values.map(code).join(" ")}</p></details>`,
      "</td></tr>"
    ].join("")
  }

  const rowsOf = (given: ValueSchema = {}): string => {
    const { properties = {}, required = [] } = resolve(given)
    return Object.entries(properties)
      .map(([name, schema]) => row(name, schema, required.includes(name), ""))
      .join("")
  }

  /** What an error's body is, for each of its sentences. */
  const errorsOf = (given: ValueSchema): ReadonlyArray<object> => {
    const { code, message, metadata } = resolve(resolve(given).properties?.["error"] ?? {}).properties ?? {}
    const issues = [{ path: ["allowed_models", 3], message: "must be a string" }]
    return (message?.enum ?? []).map((sentence) => ({
      error: { code: code?.enum?.[0], message: sentence, ...(metadata && { metadata: { issues } }) }
    }))
  }

  const response = ([status, answer]: [string, OpenApi.OpenApiSpecResponse]) => {
    const { example, schema = {} } = jsonOf(answer)
    const bodies = example === undefined ? errorsOf(schema) : [example]
    const listed = Object.entries(answer.headers ?? {}).map(
      ([name, { description = "" }]) => `<li>${code(name)} ${inline(description)}</li>`
    )
    return `<details class="response"><summary><b class="s${status.slice(0, 1)}">${status}</b> ${inline(answer.description)}</summary>${bodies.map(block).join("")}<ul>${listed.join("")}</ul>${table("Fields of data", rowsOf(resolve(schema).properties?.["data"]))}</details>`
  }

  const form = (id: string, method: string, path: string, operation: OpenApi.OpenAPISpecOperation) => {
    const { parameters, requestBody, security } = operation
    const { example, schema = {} } = jsonOf(requestBody)
    const ofBody = Object.entries(resolve(schema).properties ?? {})
      .filter(([, schema]) => manyValuesOf(schema).length > 0)
      .map(([name, schema]) => ({ in: "body", name, required: false, schema }))
    const inputs = [...parameters, ...ofBody].map(({ in: where, name, required, schema }) => {
      const options = manyValuesOf(schema).map((value) => `<option value="${escape(String(value))}"></option>`)
      const list = escape(`${id}-${name}`)
      return `<label>${code(name)}<input name="${escape(name)}" data-in="${where}"${required ? " required" : ""} autocomplete="off" spellcheck="false" list="${list}"></label><datalist id="${list}">${options.join("")}</datalist>`
    })
    const body =
      example === undefined
        ? ""
        : `<label>Body<textarea name="body" rows="6" spellcheck="false" autocomplete="off">${escape(JSON.stringify(example, null, 2))}</textarea></label>`
    return `<form data-method="${method.toUpperCase()}" data-path="${escape(path)}"${security.length > 0 ? " data-key" : ""}><h3>Try it</h3>${inputs.join("")}${body}<button>${method === "delete" ? "Delete" : "Send"}</button><output></output></form>`
  }

  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item as Record<string, OpenApi.OpenAPISpecOperation>).map(([method, operation]) => {
      const { description, parameters, requestBody, responses, security } = operation
      const id = `${method}${path.replace(/[^a-z0-9]+/gi, "-")}`.replace(/-$/, "")
      const summary = escape(operation.summary ?? path)
      const isCommon = ([status]: [string, unknown]) => security.length > 0 && !isOwnStatus(status)
      const common = Object.entries(responses).filter(isCommon)
      const own = Object.entries(responses).filter((response) => !isCommon(response))
      const rows = parameters.map(({ description, in: where, name, required, schema }) =>
        row(name, schema, required, where, description)
      )
      const section = [
        `<section id="${id}"><h2>${summary}</h2><p class="route">${badge(method)} ${code(path)}</p>`,
        prose(description),
        curl(method, path, operation),
        table("Parameters", rows.join("")),
        table("Body", rowsOf(jsonOf(requestBody).schema)),
        `<h3>Answers</h3>${own.map(response).join("")}`,
        common.length === 0 ? "" : `<p>Also <a href="#errors">${common.map(([status]) => status).join(", ")}</a>.</p>`,
        form(id, method, path, operation),
        "</section>"
      ].join("")
      return { common, entry: `<li>${badge(method)} <a href="#${id}">${summary}</a> ${code(path)}</li>`, section }
    })
  )
  const common = new Map(operations.flatMap(({ common }) => common).sort(([one], [other]) => one.localeCompare(other)))
  const [entries, sections] = [operations.map(({ entry }) => entry), operations.map(({ section }) => section)]
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(info.title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/style.css">
<script src="/docs/try-it.js" defer></script>
</head>
<body>
<header><h1>${escape(info.title)}</h1>${prose(info.description)}<p>This is version ${escape(info.version)}. <a href="/openapi.json">OpenAPI document</a></p></header>
<nav aria-label="Operations"><ul>${entries.join("")}</ul></nav>
<form id="key"><label>Management key<input type="password" name="key" autocomplete="off" spellcheck="false" placeholder="byok_mk_…"></label></form>
<p class="limits">Sent with the requests that you try below, and kept nowhere else.</p>
<main>${sections.join("")}<section id="errors"><h2>Errors of every operation</h2>${Array.from(common, response).join("")}</section></main>
</body>
</html>
`
}
