/** How each limit of a schema is said, and of what it counts. */
const limits = [
  ["minLength", "at least", "character"],
  ["maxLength", "at most", "character"],
  ["minItems", "at least", "element"],
  ["maxItems", "at most", "element"],
  ["minimum", "at least", ""],
  ["maximum", "at most", ""]
] as const

/** The part of JSON Schema that the contract uses. */
interface ValueSchema extends Readonly<Partial<Record<(typeof limits)[number][0], number>>> {
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

type Content = Readonly<Record<"application/json", { readonly schema: ValueSchema; readonly example?: unknown }>>

interface Operation {
  readonly summary?: string
  readonly description?: string
  readonly security?: ReadonlyArray<object>
  readonly parameters?: ReadonlyArray<{
    readonly name: string
    readonly in: string
    readonly required: boolean
    readonly description?: string
    readonly schema: ValueSchema
  }>
  readonly requestBody?: { readonly description?: string; readonly content: Content }
  readonly responses: Readonly<
    Record<
      string,
      {
        readonly description: string
        readonly headers?: Readonly<Record<string, { readonly description?: string }>>
        readonly content?: Content
      }
    >
  >
}

/** The part of an OpenAPI document that the page shows. */
export interface ApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description?: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, ValueSchema>> }
}

const escape = (text: string) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`)

/** A text with `code` between backticks. */
const inline = (text: string) => escape(text).replace(/`([^`]*)`/g, "<code>$1</code>")

/** Texts with blank lines between paragraphs. */
const prose = (text = "") =>
  text
    .split("\n\n")
    .filter((paragraph) => paragraph !== "")
    .map((paragraph) => `<p>${inline(paragraph)}</p>`)
    .join("")

const code = (value: unknown) => `<code>${escape(typeof value === "string" ? value : JSON.stringify(value))}</code>`

const block = (value: unknown) => `<pre>${escape(JSON.stringify(value, null, 2))}</pre>`

const idOf = (method: string, path: string) => `${method}${path.replace(/[^a-z0-9]+/gi, "-")}`.replace(/-$/, "")

/** How many values of an enumeration are shown without being asked for. */
const fewValues = 6

/** The statuses that say something of an operation of its own; the others are shown once for all. */
const isOwnStatus = (status: string) => /^(2..|400|404|409)$/.test(status)

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

const badge = (method: string) => `<b class="${method}">${method.toUpperCase()}</b>`

/** A command that sends a request like the example. The script puts the origin of the page into it. */
const curl = (method: string, path: string, { requestBody, security = [] }: Operation) => {
  const example = requestBody?.content["application/json"].example
  const options = [
    ...(method === "get" ? [] : [`-X ${method.toUpperCase()}`]),
    ...(security.length > 0 ? ['-H "Authorization: Bearer $BYOK_MANAGEMENT_KEY"'] : []),
    ...(example === undefined ? [] : ["-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(example))}`])
  ]
  const rest = [quoted(path.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase())).slice(1), ...options].join(
    " \\\n  "
  )
  return `<pre>curl '<span class="origin">http://127.0.0.1:3000</span>${escape(rest)}</pre>`
}

/** Renders an OpenAPI document as a page that is complete without scripts; a script adds sending requests. */
export const renderPage = ({ components, info, paths }: ApiDocument): string => {
  const resolve = (schema: ValueSchema): ValueSchema => {
    const name = schema.$ref?.split("/").at(-1)
    return name === undefined ? schema : (components.schemas[name] ?? schema)
  }

  const typeOf = (given: ValueSchema): string => {
    const schema = resolve(given)
    if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(" or ")
    if (schema.enum !== undefined && schema.enum.length <= fewValues) return schema.enum.map(code).join(" or ")
    if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`
    return escape(
      [schema.type ?? "any value", ...(schema.format === undefined ? [] : [`(${schema.format})`])].join(" ")
    )
  }

  const limitsOf = (given: ValueSchema): ReadonlyArray<string> => {
    const schema = resolve(given)
    const { allOf = [], anyOf = [], format, items, pattern } = schema
    const numbers = limits.flatMap(([name, bound, counted]) => {
      const limit = schema[name]
      if (limit === undefined) return []
      return [`${bound} ${limit}${counted === "" ? "" : ` ${counted}${limit === 1 ? "" : "s"}`}`]
    })
    return [
      ...numbers,
      ...(pattern === undefined || format !== undefined ? [] : [`matching ${code(pattern)}`]),
      ...[...allOf, ...anyOf].flatMap(limitsOf),
      ...(items === undefined ? [] : limitsOf(items).map((limit) => `each ${limit}`))
    ]
  }

  const valuesOf = (given: ValueSchema) => {
    const values = resolve(given).enum ?? []
    if (values.length <= fewValues) return ""
    const listed = values.map(code).join(" ")
    return `<details><summary>${values.length} values</summary><p class="values">${listed}</p></details>`
  }

  const row = (name: string, schema: ValueSchema, required: boolean, where: string, description?: string) => {
    const told = description ?? resolve(schema).description
    const limits = limitsOf(schema)
    const byDefault = resolve(schema).default
    return `<tr><th scope="row">${code(name)}<span>${[where, required ? "required" : ""].filter(Boolean).join(", ")}</span></th><td><span class="type">${typeOf(schema)}</span>${byDefault === undefined ? "" : `<span class="type">, default ${code(byDefault)}</span>`}${prose(told)}${limits.length === 0 ? "" : `<p class="limits">${limits.join("; ")}</p>`}${valuesOf(schema)}</td></tr>`
  }

  const rowsOf = (given: ValueSchema): string => {
    const { properties = {}, required = [] } = resolve(given)
    return Object.entries(properties)
      .map(([name, schema]) => row(name, schema, required.includes(name), ""))
      .join("")
  }

  const table = (caption: string, rows: string) =>
    rows === "" ? "" : `<h3>${caption}</h3><table><tbody>${rows}</tbody></table>`

  /** What an error's body is, for each of its sentences. */
  const errorsOf = (given: ValueSchema): ReadonlyArray<object> => {
    const { code, message, metadata } = resolve(resolve(given).properties?.["error"] ?? {}).properties ?? {}
    const issue = { path: ["allowed_models", 3], message: "must be a string" }
    return (message?.enum ?? []).map((sentence) => ({
      error: {
        code: code?.enum?.[0],
        message: sentence,
        ...(metadata === undefined ? {} : { metadata: { issues: [issue] } })
      }
    }))
  }

  const response = ([status, { content, description, headers = {} }]: [string, Operation["responses"][string]]) => {
    const { example, schema = {} } = content?.["application/json"] ?? {}
    const bodies = example === undefined ? errorsOf(schema) : [example]
    const data = resolve(schema).properties?.["data"]
    const listed = Object.entries(headers).map(
      ([name, header]) => `<li>${code(name)} ${inline(header.description ?? "")}</li>`
    )
    return `<details class="response"><summary><b class="s${status.slice(0, 1)}">${status}</b> ${inline(description)}</summary>${bodies.map(block).join("")}${listed.length === 0 ? "" : `<ul>${listed.join("")}</ul>`}${data === undefined ? "" : table("Fields of data", rowsOf(data))}</details>`
  }

  const manyValuesOf = (schema: ValueSchema) => {
    const { enum: values = [] } = resolve(schema)
    return values.length > fewValues ? values : []
  }

  const form = (id: string, method: string, path: string, operation: Operation) => {
    const { parameters = [], requestBody, security = [] } = operation
    const { properties = {} } = resolve(requestBody?.content["application/json"].schema ?? {})
    const ofBody = Object.entries(properties)
      .filter(([, schema]) => manyValuesOf(schema).length > 0)
      .map(([name, schema]) => ({ in: "body", name, required: false, schema }))
    const inputs = [...parameters, ...ofBody].map(({ in: where, name, required, schema }) => {
      const options = manyValuesOf(schema).map((value) => `<option value="${escape(String(value))}"></option>`)
      const list = options.length === 0 ? "" : escape(`${id}-${name}`)
      return `<label>${code(name)}<input name="${escape(name)}" data-in="${where}"${required ? " required" : ""} autocomplete="off" spellcheck="false"${list === "" ? "" : ` list="${list}"`}></label>${list === "" ? "" : `<datalist id="${list}">${options.join("")}</datalist>`}`
    })
    const example = requestBody?.content["application/json"].example
    const body =
      example === undefined
        ? ""
        : `<label>Body<textarea name="body" rows="6" spellcheck="false" autocomplete="off">${escape(JSON.stringify(example, null, 2))}</textarea></label>`
    return `<form data-method="${method.toUpperCase()}" data-path="${escape(path)}"${security.length > 0 ? " data-key" : ""}><h3>Try it</h3>${inputs.join("")}${body}<button>${method === "delete" ? "Delete" : "Send"}</button><output></output></form>`
  }

  const operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ id: idOf(method, path), method, operation, path }))
  )
  const common = new Map(
    operations
      .filter(({ operation: { security = [] } }) => security.length > 0)
      .flatMap(({ operation: { responses } }) => Object.entries(responses).filter(([status]) => !isOwnStatus(status)))
      .sort(([one], [other]) => one.localeCompare(other))
  )
  const sections = operations.map(({ id, method, operation, path }) => {
    const parameters = (operation.parameters ?? [])
      .map(({ description, in: where, name, required, schema }) => row(name, schema, required, where, description))
      .join("")
    const request = operation.requestBody
    const responses = Object.entries(operation.responses)
    const others = responses.filter(([status]) => (operation.security ?? []).length > 0 && !isOwnStatus(status))
    const own = responses.filter((response) => !others.includes(response))
    const rest =
      others.length === 0 ? "" : `<p>Also <a href="#errors">${others.map(([status]) => status).join(", ")}</a>.</p>`
    return `<section id="${id}"><h2>${escape(operation.summary ?? path)}</h2><p class="route">${badge(method)} ${code(path)}</p>${prose(operation.description)}${curl(method, path, operation)}${table("Parameters", parameters)}${request === undefined ? "" : table("Body", rowsOf(request.content["application/json"].schema)) + prose(request.description)}<h3>Answers</h3>${own.map(response).join("")}${rest}${form(id, method, path, operation)}</section>`
  })
  const index = operations.map(
    ({ id, method, operation, path }) =>
      `<li>${badge(method)} <a href="#${id}">${escape(operation.summary ?? path)}</a> ${code(path)}</li>`
  )
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
<nav aria-label="Operations"><ul>${index.join("")}</ul></nav>
<form id="key"><label>Management key<input type="password" name="key" autocomplete="off" spellcheck="false" placeholder="byok_mk_…"></label></form>
<p class="limits">Sent with the requests that you try below, and kept nowhere else.</p>
<main>${sections.join("")}<section id="errors"><h2>Errors of every operation</h2>${Array.from(common, response).join("")}</section></main>
</body>
</html>
`
}
