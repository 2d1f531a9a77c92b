import { readFileSync } from "node:fs"
import { Effect, Redacted } from "effect"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, json } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

/** The calls of docs/api.md that answer what owners ask. */
const calls = Array.from(
  (/## Four questions of owners\n(.*?)\n## /s.exec(readFileSync("docs/api.md", "utf8"))?.[1] ?? "").matchAll(
    /`(GET|POST) (\/[^`]+)`/g
  ),
  ([, method = "", path = ""]) => ({ method, path })
)

layerLive(TestService.layer)("owners' questions, each answered by one call (docs/api.md)", (it) => {
  it.effect(
    "four calls tell a viewer why a key is unused, who deleted it, if it leaked, and which keys fail",
    function* () {
      const { sql } = yield* TestService
      const tenant = yield* TestService.newTenant
      const { issueApiKey } = yield* Accounts
      const { key } = yield* issueApiKey(tenant.account_id, { name: "support", role: "viewer" })
      const ids = yield* Effect.forEach(["leaked", "failing", "deleted"], () =>
        Effect.map(tenant.create(minimal), createdId)
      )
      const [leaked = "", failing = "", deleted = ""] = ids
      yield* sql`
        INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, parked_at)
        VALUES (${tenant.account_id}, ${leaked}, '', 1, 'leaked', 0, now())`
      yield* sql`UPDATE pools SET health = health + 1 WHERE account_id = ${tenant.account_id}`
      yield* sql`
        INSERT INTO credential_use (account_id, credential_id, last_failed_at, last_failure, last_failed_version)
        VALUES (${tenant.account_id}, ${failing}, now(), 'rejected', 1)`
      yield* tenant.delete(deleted)
      assert.lengthOf(calls, 4)
      const answers = yield* Effect.forEach(calls, ({ method, path }) => {
        const id = path.includes("status") ? leaked : deleted
        const body = { model: "m", targets: [{ provider: minimal.provider }] }
        return TestService.send({
          method,
          path: path.replace("ID", id),
          headers: [bearer(Redacted.value(key)), json],
          ...(method === "POST" ? { body: JSON.stringify(body) } : {})
        })
      })
      const [plan, events, status, list] = answers.map(({ body, status }) => {
        assert.strictEqual(status, 200, body)
        return body
      })
      assert.match(plan ?? "", new RegExp(`${leaked}.*leaked`))
      assert.match(events ?? "", /"action":"credential.delete".*"name":"first management key"/)
      assert.include(status, '"state":"leaked"')
      assert.include(list, failing)
      assert.notInclude(list, leaked)
    }
  )
})
