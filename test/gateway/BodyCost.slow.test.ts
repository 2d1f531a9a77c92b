import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { GatewayApi } from "../../src/contract/GatewayApi.ts"
import { LinksApi } from "../../src/contract/LinksApi.ts"
import { Api } from "../../src/contract/TenantsApi.ts"
import { type Address, call } from "./everyOperation.ts"
import { openSocket } from "./socket.ts"
import { openLink } from "../links/browser.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import type { JsonSchema, OpenApiDocument } from "../support/http/JsonSchema.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const maxBytes = 256 * 1024
/** Milliseconds of CPU that a body may take. */
const maxCost = 50

const documents = [Api, GatewayApi, LinksApi].map(
  (api) => JSON.parse(JSON.stringify(OpenApi.fromApi(api as typeof Api))) as OpenApiDocument
)

/** Bytes for costly values, beside others in the body. */
const room = maxBytes - 2048

/** As many texts as fit, and as many as a body, or a key that is JSON, may have: those are long. */
const asManyAsFit = (part: (n: number, pad: string) => string) =>
  Array.from({ length: Math.floor(room / (part(1e6, "").length + 1)) }, (_, n) => part(n, "")).join(",")
const asManyAsBody = (part: (n: number, pad: string) => string) =>
  Array.from({ length: 1900 }, (_, n) => part(n, "x".repeat(room / 1900 - 32))).join(",")
const asManyAsKey = (part: (n: number, pad: string) => string) =>
  Array.from({ length: 950 }, (_, n) => part(n, "x".repeat(room / 950 - 32))).join(",")

const member = (n: number, pad: string) => `"a${n}${pad}":0`
const textMember = (n: number, pad: string) => `"a${n}":"${pad}"`
const nearlyKnown = (n: number) => `"provide${String.fromCharCode(97 + (n % 26))}${n % 10}":0`
const text = (n: number, pad: string) => `"${pad}${n}"`
const emptyText = () => '""'
const half = (_: number, pad: string) => `"${pad}\\ud800"`
const id = (n: number) => `"019ad5a0-6c1e-7b3a-9f52-${n.toString(16).padStart(12, "0")}"`
const object = (n: number) => (n % 2 === 0 ? "{}" : '{"a":0}')
const number = () => "0"

const nested = (open: string, close: string, depth: number) => `${open.repeat(depth)}1${close.repeat(depth)}`
const longText = (unit: string) => JSON.stringify(unit.repeat(room / Buffer.byteLength(unit)))

/** Values, in JSON, that are costly for one implementation or another. */
const values: ReadonlyArray<readonly [name: string, json: string]> = [
  ["numbers", `[${asManyAsFit(number)}]`],
  ["1,900 numbers", `[${asManyAsBody(number)}]`],
  ["empty texts", `[${asManyAsFit(emptyText)}]`],
  ["1,900 empty texts", `[${asManyAsBody(emptyText)}]`],
  ["texts", `[${asManyAsFit(text)}]`],
  ["1,900 texts", `[${asManyAsBody(text)}]`],
  ["1,900 texts with half a surrogate pair", `[${asManyAsBody(half)}]`],
  ["ids", `[${asManyAsFit(id)}]`],
  ["1,000 ids", `[${Array.from({ length: 1000 }, (_, n) => id(n)).join(",")}]`],
  ["objects", `[${asManyAsFit(object)}]`],
  ["900 objects", `[${asManyAsBody(object).slice(0, 900 * 6 - 1)}]`],
  ["members", `{${asManyAsFit(member)}}`],
  ["1,900 members", `{${asManyAsBody(member)}}`],
  ["1,900 short members", `{${asManyAsBody((n) => member(n, ""))}}`],
  ["members that are nearly known", `{${asManyAsFit(nearlyKnown)}}`],
  ["1,900 members that are nearly known", `{${asManyAsBody(nearlyKnown)}}`],
  ["lists in lists", nested("[", "]", room / 2)],
  ["1,900 lists in lists", nested("[", "]", 1900)],
  ["objects in objects", nested('{"a":', "}", room / 6)],
  ["1,900 objects in objects", nested('{"a":', "}", 1900)],
  ["a number", "9".repeat(room)],
  ["a text of one letter", longText("a")],
  ["a text of blanks", longText(" ")],
  ["a text of blanks between letters", JSON.stringify(`a${" ".repeat(room)}a`)],
  ["a text of quotes", longText("'")],
  ["a text of names", longText("A_")],
  ["a text of words", longText("key ")],
  ["a text of emoji", longText("😀")],
  ["a text of Base64", longText("QUtJ")],
  ["a text of colons", longText("key:")],
  ["JSON of numbers in a text", JSON.stringify(`[${asManyAsFit(number)}]`)],
  ["JSON of 950 numbers in a text", JSON.stringify(`[${asManyAsKey(number)}]`)],
  ["JSON of objects in a text", JSON.stringify(`[${"{},".repeat(room / 3)}{}]`)],
  ["JSON of 400 objects in a text", JSON.stringify(`[${Array.from({ length: 400 }, () => "{}").join(",")}]`)],
  ["JSON of members in a text", JSON.stringify(`{${asManyAsFit(member).slice(0, room * 0.8)}}`)],
  ["JSON of 950 members in a text", JSON.stringify(`{${asManyAsKey((n, pad) => textMember(n, pad.slice(20)))}}`)],
  ["JSON of lists in a text", JSON.stringify(nested("[", "]", room / 2))],
  ["JSON of objects in objects in a text", JSON.stringify(nested('{"a":', "}", room / 8))]
]

/** The paths of an object's members, at most one list or object deep, to which costly values are given. */
const pathsOf = (
  schema: JsonSchema,
  schemas: Readonly<Record<string, JsonSchema>>
): ReadonlyArray<ReadonlyArray<string>> => {
  const resolved = (one: JsonSchema): JsonSchema =>
    one.$ref === undefined ? one : resolved(schemas[one.$ref.replace("#/components/schemas/", "")] ?? {})
  const walk = (one: JsonSchema): ReadonlyArray<ReadonlyArray<string>> => {
    const { allOf = [], anyOf = [], items, properties = {} } = resolved(one)
    return [
      ...[...anyOf, ...allOf].flatMap(walk),
      ...(items === undefined ? [] : walk(items).map((path) => ["0", ...path])),
      ...Object.entries(properties).flatMap(([name, member]) => [
        [name],
        ...walk(member).map((path) => [name, ...path])
      ])
    ]
  }
  return Array.from(new Map(walk(schema).map((path) => [path.join("."), path])).values())
}

const hole = "<a costly value>"

/** The JSON of a body in which a path leads to a costly value, also where the body lacks it. */
const put = (body: unknown, path: ReadonlyArray<string>, json: string) => {
  const place = (at: unknown, [name, ...rest]: ReadonlyArray<string>): unknown => {
    if (name === undefined) return hole
    if (name === "0") return [place(Array.isArray(at) ? at[0] : undefined, rest)]
    return { ...(Object(at) as object), [name]: place(Reflect.get(Object(at) as object, name), rest) }
  }
  return JSON.stringify(place(body, path)).replace(JSON.stringify(hole), () => json)
}

const target = { provider: "azure" }
const routing = { model: "a/model", targets: [target] }
const sealed_key = { enc: "AAAA", ciphertext: "AAAA" }

/** A valid body of each operation that takes one, by method and path. `ID` is the id of a credential. */
const bodies: Readonly<Record<string, object>> = {
  "POST /api/v1/byok": { ...minimal, ...target },
  "POST /api/v1/byok/plan": routing,
  "PUT /api/v1/byok/order": { ...target, ids: ["ID"] },
  "PATCH /api/v1/byok/{id}": { name: "a name" },
  "POST /v1/attempts": { account_id: "ACCOUNT", ...routing, after: { attempt: "a", status: 200 } },
  "POST /v1/reports": { reports: [{ attempt: "a", status: 200 }] },
  "POST /v1/accounts": { name: "a name" },
  "POST /v1/accounts/{account_id}/workspaces": { name: "a name" },
  "POST /v1/accounts/{account_id}/api-keys": { name: "a name" },
  "POST /v1/accounts/{account_id}/links": { purpose: "manage" },
  "POST /v1/accounts/{account_id}/credentials": { ...minimal, ...target },
  "POST /v1/accounts/{account_id}/credentials/plan": routing,
  "PUT /v1/accounts/{account_id}/credentials/order": { ...target, ids: ["ID"] },
  "PATCH /v1/accounts/{account_id}/credentials/{id}": { name: "a name" },
  "PUT /api/links/v1/link/token": { token: "a" },
  "POST /api/links/v1/byok": { ...target, name: null, sealed_key },
  "PATCH /api/links/v1/byok/{id}": { name: "a name", sealed_key },
  "POST /api/links/v1/byok/plan": routing,
  "PUT /api/links/v1/byok/order": { ...target, ids: ["ID"] }
}

/** Providers whose keys are parsed in different ways: the material of each may be costly. */
const parsedProviders = ["azure", "openai", "amazon-bedrock", "google-vertex"]

/** Every operation that takes a body, and the paths in that body. */
const operations = documents.flatMap(({ components, paths }) =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { requestBody }]) =>
      requestBody === undefined
        ? []
        : [
            {
              name: `${method.toUpperCase()} ${path}`,
              paths: pathsOf(requestBody.content["application/json"].schema, components.schemas)
            }
          ]
    )
  )
)

/** The bodies to try for an operation: costly as a whole, beside valid members, and in the place of each member. */
const costlyBodies = (name: string, paths: ReadonlyArray<ReadonlyArray<string>>) => {
  const valid = bodies[name] ?? assert.fail(name)
  const isKeyed = paths.some(([member]) => member === "key") && name.startsWith("POST")
  const bases = isKeyed ? parsedProviders.map((provider) => ({ ...valid, provider })) : [valid]
  return values.flatMap(([value, json]) => [
    [`${value} as the body`, json] as const,
    ...(json.startsWith("{")
      ? [[`${value} beside valid ones`, `${JSON.stringify(valid).slice(0, -1)},${json.slice(1)}`] as const]
      : []),
    ...bases.flatMap((base, n) =>
      [...paths, ["unknown"]]
        .filter(([member]) => n === 0 || member === "key")
        .map(
          (path) =>
            [
              `${value} as ${path.join(".")}${n === 0 ? "" : ` for ${parsedProviders[n]}`}`,
              put(base, path, json)
            ] as const
        )
    )
  ])
}

layerLive(TestService.layer)("the cost of a body (F6, T9)", (it) => {
  it.effect("is known of every operation that takes one", function* () {
    assert.sameMembers(
      Object.keys(bodies),
      operations.map(({ name }) => name)
    )
  })

  it.effect.each(operations)("$name: 256 KiB take at most 50 ms of CPU", function* ({ name, paths }) {
    const tenant = yield* TestService.newTenant
    const { url } = yield* TestService
    const credential = createdId(yield* tenant.create({ ...minimal, ...target }))
    const { token } = yield* openLink(tenant, { purpose: "manage" })
    const isGateway = name.includes(" /v1/")
    const to: Address = isGateway ? { socketPath: yield* openSocket } : { url }
    const [method = "", template = ""] = name.split(" ")
    const path = template.replace(/\{account_id\}|:account_id/, tenant.account_id).replace("{id}", credential)
    const bearer = isGateway ? undefined : template.startsWith("/api/links") ? token : tenant.management_key
    const cost = Effect.fnUntraced(function* (body: string) {
      const before = process.threadCpuUsage()
      const { status } = yield* call(to, method, path, body, bearer)
      const { system, user } = process.threadCpuUsage(before)
      return { status, millis: (system + user) / 1000 }
    })
    const costly: Array<string> = []
    for (const [what, json] of costlyBodies(name, paths)) {
      const body = json.replaceAll('"ID"', `"${credential}"`).replaceAll('"ACCOUNT"', `"${tenant.account_id}"`)
      if (Buffer.byteLength(body) > maxBytes) continue
      let least = yield* cost(body)
      // The compiler or the garbage collector may have run: what is costly is costly each time.
      for (let n = 0; n < 2 && least.millis > maxCost; n += 1) {
        const again = yield* cost(body)
        if (again.millis < least.millis) least = again
      }
      if (least.millis > maxCost) costly.push(`${what}: ${least.status} after ${least.millis.toFixed(0)} ms`)
    }
    assert.deepStrictEqual(costly, [])
  })
})
