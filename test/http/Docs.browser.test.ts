import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { isInstalled, openPage } from "../support/http/Browser.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { layerLive } from "../support/process/layerLive.ts"

const operation = (method: string) => `document.querySelector("form[data-method=${method}]")`

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

      it.effect("creates a credential with the key that is typed, and reads it back (F7, F17)", () =>
        Effect.gen(function* () {
          const { tenant, url } = yield* TestService
          const { management_key } = yield* tenant
          const { evaluate, messages } = yield* openPage(`${url}/docs`, 1280)
          const send = Effect.fnUntraced(function* (method: string) {
            yield* evaluate(`${operation(method)}.querySelector("button").click()`)
            const shown = evaluate(`${operation(method)}.querySelector("output").textContent`)
            yield* eventually(
              "an answer",
              Effect.map(shown, (text) => text !== "")
            )
            return String(yield* shown)
          })
          assert.match(yield* send("POST"), /^401, /)
          yield* evaluate(`${operation("POST")}.querySelector("output").textContent = ""`)
          yield* evaluate(`document.querySelector("#key input").value = ${JSON.stringify(management_key)}`)
          const created = yield* send("POST")
          assert.match(created, /^201, X-Request-Id [\w-]+\{/)
          const [, id = ""] = /"id": "([^"]+)"/.exec(created) ?? []
          yield* evaluate(`${operation("GET")}.querySelector("input").value = ${JSON.stringify(id)}`)
          const found = yield* send("GET")
          assert.match(found, /^200, /)
          assert.include(found, `"id": "${id}"`)
          assert.notInclude(String(yield* evaluate("document.body.textContent")), management_key)
          // The browser itself reports the 401.
          assert.lengthOf(messages, 1)
        }).pipe(Effect.scoped)
      )
    })
  }
)
