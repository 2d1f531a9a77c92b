import { assert, it } from "@effect/vitest"
import { routeOf } from "../../src/http/Routing.ts"

it("the template of a request's route holds no id", () => {
  const id = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
  assert.strictEqual(routeOf("GET", `/api/v1/byok/${id}?x=${id}`), "/api/v1/byok/:id")
  assert.strictEqual(routeOf("HEAD", `/api/v1/byok/${id}`), "/api/v1/byok/:id")
  assert.strictEqual(routeOf("POST", "/api/v1/byok/plan"), "/api/v1/byok/plan")
  assert.strictEqual(routeOf("GET", "/api/v1/byok/plan"), "/api/v1/byok/:id")
  assert.isUndefined(routeOf("GET", `/${id}`))
})
