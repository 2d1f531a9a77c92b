import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { isInstalled, openPage } from "../support/http/Browser.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { layerLive } from "../support/process/layerLive.ts"

const form = (method: string, path: string) =>
  `document.querySelector('form[data-method=${method}][data-path="/api/v1${path}"]')`

describe.skipIf(!isInstalled)(
  `/docs in Chromium${isInstalled ? "" : " (skipped: /usr/bin/chromium is not installed)"}`,
  () => {
    layerLive(TestService.layer)((it) => {
      it.effect.each([1280, 390])("at %i pixels: it fits, and nothing is on the console (F17)", (width) =>
        Effect.gen(function* () {
          const { url } = yield* TestService
          const { evaluate, messages } = yield* openPage(`${url}/docs`, width)
          yield* evaluate('document.querySelectorAll("details").forEach((one) => (one.open = true))')
          assert.isAtMost(Number(yield* evaluate("document.documentElement.scrollWidth")), width)
          const style = yield* evaluate("getComputedStyle(document.body).maxWidth")
          assert.strictEqual(style, "896px", "the style sheet is in force")
          assert.deepStrictEqual(messages, [])
        }).pipe(Effect.scoped)
      )

      it.effect("creates, lists, reads, updates and deletes a credential with the key that is typed (F7, F17)", () =>
        Effect.gen(function* () {
          const { tenant, url } = yield* TestService
          const { management_key } = yield* tenant
          const { evaluate, messages } = yield* openPage(`${url}/docs`, 1280)
          const send = Effect.fnUntraced(function* (method: string, path: string, fields: Record<string, string> = {}) {
            const operation = form(method, path)
            for (const [name, value] of Object.entries(fields)) {
              const selector = JSON.stringify(name === "body" ? "textarea" : `input[name=${name}]`)
              yield* evaluate(`${operation}.querySelector(${selector}).value = ${JSON.stringify(value)}`)
            }
            yield* evaluate(`${operation}.querySelector("output").textContent = ""`)
            yield* evaluate(`${operation}.querySelector("button").click()`)
            const shown = evaluate(`${operation}.querySelector("output").textContent`)
            yield* eventually("an answer", shown, (text) => text !== "")
            return String(yield* shown)
          })
          assert.match(yield* send("POST", "/byok"), /^401, /)
          yield* evaluate(`document.querySelector("#key input").value = ${JSON.stringify(management_key)}`)
          const created = yield* send("POST", "/byok")
          assert.match(created, /^201, X-Request-Id [\w-]+\{/)
          const [, id = ""] = /"id": "([^"]+)"/.exec(created) ?? []
          yield* send("POST", "/byok")
          const listed = yield* send("GET", "/byok", { limit: "1" })
          assert.match(listed, /^200, .*"total_count": 2/s)
          assert.lengthOf(listed.match(/"id": /g) ?? [], 1)
          const found = yield* send("GET", "/byok/{id}", { id })
          assert.match(found, /^200, /)
          assert.include(found, `"id": "${id}"`)
          const updated = yield* send("PATCH", "/byok/{id}", { id, body: '{"name":"Renamed"}' })
          assert.match(updated, /^200, .*"name": "Renamed"/s)
          assert.match(yield* send("DELETE", "/byok/{id}", { id }), /^200, .*"deleted": true/s)
          assert.notInclude(String(yield* evaluate("document.body.textContent")), management_key)
          // The browser itself reports the 401.
          assert.lengthOf(messages, 1)
        }).pipe(Effect.scoped)
      )
    })
  }
)
