import { Effect } from "effect"
import { isInstalled, openPage } from "../support/http/Browser.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, layerLive } from "../support/it.ts"

/** Whether a message on the console is one that Scalar always writes: its version, or the duration of a step. */
const isScalars = (message: string) => /@scalar\/api-reference@|: \d+ ms"/.test(message)

/** Opens the page and waits for its nine operations. */
const openDocs = Effect.fnUntraced(function* (url: string, width: number, scheme?: "light" | "dark") {
  const page = yield* openPage(`${url}/docs`, width, scheme)
  const operations = page.evaluate('document.querySelectorAll("button.show-api-client-button").length')
  yield* eventually("the operations", operations, (count) => count === 11)
  return { ...page, complaints: () => page.messages.filter((message) => !isScalars(message)) }
})

const dialog = 'document.querySelector("[role=dialog]")'

/** The button in a part of the page whose text has some words. */
const button = (part: string, words: string) =>
  `Array.from(${part}?.querySelectorAll("button") ?? []).find(({ textContent }) => textContent.includes("${words}"))`

describe.skipIf(!isInstalled)(
  `/docs in Chromium${isInstalled ? "" : " (skipped: /usr/bin/chromium is not installed)"}`,
  () => {
    layerLive(TestService.layer)((it) => {
      it.effect.each([
        [1280, "light"],
        [1280, "dark"],
        [390, "light"],
        [390, "dark"]
      ] as const)(
        "at a width of %i pixels in %s mode, the page fits, loads nothing else and leaves the console empty (F17)",
        function* ([width, scheme]) {
          const { url } = yield* TestService
          const { complaints, evaluate } = yield* openDocs(url, width, scheme)
          assert.isAtMost(Number(yield* evaluate("document.documentElement.scrollWidth")), width)
          assert.strictEqual(yield* evaluate(`document.body.classList.contains("${scheme}-mode")`), true)
          const loaded = yield* evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
          assert.deepStrictEqual(loaded, [])
          const text = String(yield* evaluate("document.body.innerText"))
          for (const sample of ['"label": "sk-...AbCd"', "Authorization: Bearer YOUR_SECRET_TOKEN"]) {
            assert.include(text, sample)
          }
          for (const offer of ["Open API Client", "Share", "Generate SDKs", "Deploy"]) assert.notInclude(text, offer)
          assert.deepStrictEqual(complaints(), [])
        }
      )

      it.effect("/docs creates, lists and deletes a credential with a typed management key (F7, F17)", function* () {
        const { tenant, url } = yield* TestService
        const { get, management_key } = yield* tenant
        const { complaints, evaluate, type } = yield* openDocs(url, 1280)
        /** Types again until it is there: a dialog that is opening takes the focus away. */
        const typeInto = (field: string, text: string) =>
          eventually(
            `${field} filled`,
            Effect.gen(function* () {
              yield* evaluate(`${field}?.focus(), document.execCommand("selectAll")`)
              yield* type(text)
              return yield* evaluate(`${field}?.value ?? ${field}?.innerText`)
            }),
            (shown) => shown === text
          )
        const response = Effect.map(
          evaluate(`${dialog}?.innerText`),
          (text) => /Status:\n(\d+ .+)\n[^]*?(^\{\n[^]*^\})$/m.exec(String(text))?.slice(1) ?? []
        )
        /** Sends an operation in its dialog, and returns the response that the dialog shows. */
        const send = Effect.fnUntraced(function* (method: string, path: string, id?: string) {
          yield* evaluate(`${button("document", `Test Request(${method} ${path})`)}.click()`)
          const sending = button(dialog, `Send ${method} request to ${url}/${path}`)
          yield* eventually("its dialog", evaluate(`${sending}?.checkVisibility()`), Boolean)
          yield* eventually("no response yet", response, (parts) => parts.length === 0)
          if (id !== undefined) {
            yield* typeInto(`${dialog}.querySelector("tr#id td:last-child [contenteditable=true]")`, id)
            // Scalar takes over what was typed a moment later, and then shows it in its sample.
            yield* eventually("the sample", evaluate(`document.body.textContent.includes("/byok/${id}")`), Boolean)
          }
          yield* evaluate(`${sending}.click()`)
          yield* eventually("a response", response, (parts) => parts.length === 2)
          const [status = "", body = ""] = yield* response
          yield* evaluate(`${button(dialog, "Close Client")}.click()`)
          yield* eventually("no dialog", evaluate(`!${dialog}?.checkVisibility()`), Boolean)
          return {
            status,
            body: JSON.parse(body) as Readonly<Record<string, unknown>>
          }
        })
        yield* typeInto('document.querySelector("input[placeholder=Token]")', management_key)
        const created = yield* send("post", "/api/v1/byok")
        assert.strictEqual(created.status, "201 Created")
        const { id } = created.body["data"] as { readonly id: string }
        const listed = yield* send("get", "/api/v1/byok")
        assert.strictEqual(listed.status, "200 OK")
        assert.deepStrictEqual(listed.body, { data: [created.body["data"]], total_count: 1 })
        assert.deepStrictEqual(yield* send("delete", "/api/v1/byok/{id}", id), {
          status: "200 OK",
          body: { deleted: true }
        })
        assert.strictEqual((yield* get(id)).status, 404)
        assert.notInclude(String(yield* evaluate("JSON.stringify([localStorage, document.cookie])")), management_key)
        assert.deepStrictEqual(complaints(), [])
      })
    })
  }
)
