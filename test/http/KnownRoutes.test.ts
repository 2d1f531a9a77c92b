import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"
import { FindMyWay } from "effect/http"
import { Api } from "../../src/api/Api.ts"
import { routableUrl } from "../../src/http/routableUrl.ts"
import { routeOf, routerConfig } from "../../src/http/KnownRoutes.ts"
import { elementOf } from "../support/memory/arbitraries.ts"

const router = FindMyWay.make<string>(routerConfig)
for (const { method, path } of Object.values(Api.groups.byok.endpoints)) router.on(method, path, path)
for (const path of ["/", "/docs", "/health/live"] as const) router.on("GET", path, path)

const part = elementOf([
  "/api/v1/byok",
  "/api/v1/byok/",
  "/api/v1/byok/plan",
  "/api/v1/byok/plan/",
  "/API/v1/byok",
  "/docs",
  "/health/live",
  "/",
  "*",
  "?",
  "?a=/api/v1/byok",
  "#",
  ";",
  "%2F",
  "%",
  "%70lan",
  "a",
  "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11",
  "é",
  "//"
])
const url = Arbitrary.map(Arbitrary.array(part, { minLength: 1, maxLength: 4 }), (parts) => parts.join(""))
const method = elementOf(["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "BREW"])

describe("the template of a request's route", () => {
  it.prop("is that of the route which the router takes", { url, method }, ({ method, url }) => {
    const known = (["GET", "POST", "PATCH", "DELETE"] as const).find(
      (name) => name === (method === "HEAD" ? "GET" : method)
    )
    const taken = known === undefined ? undefined : router.find(known, routableUrl(url))?.handler
    assert.strictEqual(routeOf(method, url), taken, `${method} ${url}`)
  })

  it("holds no id", () => {
    const id = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
    assert.strictEqual(routeOf("GET", `/api/v1/byok/${id}?x=${id}`), "/api/v1/byok/:id")
    assert.strictEqual(routeOf("POST", "/api/v1/byok/plan"), "/api/v1/byok/plan")
    assert.strictEqual(routeOf("GET", "/api/v1/byok/plan"), "/api/v1/byok/:id")
    assert.isUndefined(routeOf("GET", `/${id}`))
  })
})
