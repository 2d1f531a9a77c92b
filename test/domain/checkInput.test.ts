import { Result, Schema } from "effect"
import { HttpApiEndpoint } from "effect/http-api"
import { issuesOf } from "../../src/domain/Issue.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { precheckLength } from "../../src/domain/checkInput.ts"
import { assert, describe, it } from "../support/it.ts"

const lists = ["allowed_api_key_hashes", "allowed_models", "allowed_user_ids"]

/** A list of a schema that counts what it is given, and of which at most 100 are allowed. */
const countingList = () => {
  const visits = { count: 0 }
  const element = Schema.String.check(Schema.makeFilter(() => (visits.count += 1) > 0))
  return { visits, schema: Schema.Array(element).pipe(precheckLength(100, "must have at most 100 elements")) }
}

/** Elements that say so when they are read. */
const watchedList = (length: number) => {
  const reads = { count: 0 }
  const list = new Proxy(Array(length).fill("a"), {
    get: (target, name) => {
      if (name !== "length") reads.count += 1
      return Reflect.get(target, name) as unknown
    }
  })
  return { reads, list }
}

describe("the length of a list (section 8, F6)", () => {
  it("is checked before its elements are decoded", () => {
    const { schema, visits } = countingList()
    const decode = Schema.decodeUnknownResult(schema, { errors: "all" })
    assert.isTrue(Result.isFailure(decode(Array(101).fill("a"))))
    assert.strictEqual(visits.count, 0)
    assert.isTrue(Result.isSuccess(decode(Array(100).fill("a"))))
    assert.strictEqual(visits.count, 100)
  })

  it.each(lists)("is the only check of %s with 101 elements: none is read, in process or over HTTP", (name) => {
    const { payload } = HttpApiEndpoint.post("create", "/", { payload: NewCredential })
    const overHttp = Array.from(payload.values()).flatMap(({ schemas }) => schemas)
    assert.lengthOf(overHttp, 1)
    for (const schema of [NewCredential, ...overHttp]) {
      const { list, reads } = watchedList(101)
      const decode = Schema.decodeUnknownResult(schema as typeof NewCredential, { errors: "all" })
      const decoded = decode({ provider: "cohere", key: "a", [name]: list })
      assert(Result.isFailure(decoded))
      assert.strictEqual(reads.count, 0)
      assert.deepStrictEqual(issuesOf(decoded.failure.issue), [
        { path: [name], message: "must have at most 100 elements" }
      ])
    }
  })
})
