import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { minimal } from "../support/http/Bodies.ts"
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
          const wrapping = yield* evaluate('getComputedStyle(document.querySelector("pre")).whiteSpace')
          assert.strictEqual(wrapping, width < 640 ? "pre-wrap" : "pre")
          yield* evaluate("scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' })")
          assert.isAbove(Number(yield* evaluate("scrollY")), 1000)
          assert.strictEqual(yield* evaluate('document.querySelector("#key").getBoundingClientRect().top'), 0)
          const starts = yield* evaluate(
            'new Set(Array.from(document.querySelectorAll("nav a"), (one) => one.getBoundingClientRect().left)).size'
          )
          assert.strictEqual(starts, 1, "the index is in columns")
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
          yield* evaluate("window.asked = []; window.confirm = (text) => asked.push(text) > 1")
          const operation = form("DELETE", "/byok/{id}")
          yield* evaluate(`${operation}.querySelector("input").value = ${JSON.stringify(id)}`)
          yield* evaluate(`${operation}.querySelector("button").click()`)
          assert.match(yield* send("GET", "/byok/{id}", { id }), /^200, /, "not confirmed, so not deleted")
          assert.match(yield* send("DELETE", "/byok/{id}", { id }), /^200, .*"deleted": true/s)
          assert.deepStrictEqual(yield* evaluate("asked"), Array(2).fill("Delete the credential and its key for good?"))
          assert.notInclude(String(yield* evaluate("document.body.textContent")), management_key)
          // The browser itself reports the 401.
          assert.lengthOf(messages, 1)
        }).pipe(Effect.scoped)
      )

      it.effect("keeps a long answer in a box, and offers the providers", () =>
        Effect.gen(function* () {
          const { newTenant, url } = yield* TestService
          const { create, management_key } = yield* newTenant
          yield* Effect.forEach(Array.from({ length: 50 }), () => create(minimal), { concurrency: 8 })
          const { evaluate } = yield* openPage(`${url}/docs`, 390)
          yield* evaluate(`document.querySelector("#key input").value = ${JSON.stringify(management_key)}`)
          const list = form("GET", "/byok")
          assert.strictEqual(yield* evaluate(`${list}.querySelector("input[name=provider]").list.options.length`), 115)
          yield* evaluate(`${list}.querySelector("button").click()`)
          yield* eventually(
            "an answer",
            Effect.map(evaluate(`${list}.querySelectorAll("output pre").length`), (count) => count === 1)
          )
          const box = `${list}.querySelector("output pre")`
          assert.isAtMost(Number(yield* evaluate(`${box}.offsetHeight`)), 400)
          assert.isAbove(Number(yield* evaluate(`${box}.scrollHeight`)), 5_000)
          const typed = yield* evaluate(`(() => {
            const form = ${form("POST", "/byok")}
            const input = form.querySelector("input[name=provider]")
            input.value = "groq"
            input.dispatchEvent(new Event("input", { bubbles: true }))
            return JSON.parse(form.querySelector("textarea").value).provider
          })()`)
          assert.strictEqual(typed, "groq")
        }).pipe(Effect.scoped)
      )
    })
  }
)
