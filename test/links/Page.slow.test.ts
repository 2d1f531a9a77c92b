import { createServer, request } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Layer } from "effect"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { isInstalled, openPage } from "../support/http/Browser.ts"
import { create } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { withoutPrefix } from "../support/keys/issuedKey.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, layerLive } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"
import { openLink } from "./browser.ts"
import { visit } from "./visit.ts"

const key = "sk-owner-kX8vQ2mZ7rT4wY1nB6cJ-WxYz"
const other = "sk-other-pL5hS9dF3gA0eU7iO2qR-MnOp"

const isComplaint = (message: string) => !/Failed to load resource: .* status of 4/.test(message)

const appearances = [
  [1280, "light"],
  [1280, "dark"],
  [390, "light"],
  [390, "dark"]
] as const

/** A proxy in front of the service that records all that passes, as one that terminates TLS would. */
const recordingProxy = Effect.fnUntraced(function* (target: string) {
  const recorded: Array<Buffer> = []
  const keep = (part: Buffer) => void recorded.push(part)
  const server = createServer((received, answer) => {
    keep(Buffer.from(`${received.method} ${received.url} ${received.rawHeaders.join("\n")}\n`))
    const sent = request(
      `${target}${received.url}`,
      { method: received.method, headers: received.headers },
      (response) => {
        answer.writeHead(response.statusCode ?? 502, response.headers)
        response.on("data", keep).pipe(answer)
      }
    )
    received.on("data", keep).pipe(sent)
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve))),
    () => Effect.sync(() => (server.closeAllConnections(), server.close()))
  )
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    recorded: () => Buffer.concat(recorded).toString("latin1")
  }
})

describe.skipIf(!isInstalled)(
  `the owner's page in Chromium${isInstalled ? "" : " (skipped: /usr/bin/chromium is not installed)"}`,
  () => {
    layerLive(TestService.layer)((it) => {
      it.effect.each(appearances)("connects a key at %i pixels, %s", function* ([width, scheme]) {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const link = yield* openLink(tenant, { purpose: "connect", return_url: "https://gateway.example/settings" })
        const page = yield* visit(`${url}/keys${link.fragment}`, width, scheme)
        yield* page.reads("Add your API key")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Add key")
        yield* page.reads("Provider is required.")
        yield* page.choose("Provider", "openai")
        yield* page.fill("API key", `Bearer ${key}`)
        yield* page.click("Add key")
        yield* page.reads("API key must not have a scheme such as Bearer before it.")
        assert.strictEqual(yield* page.valueOf("API key"), "", "emptied when sent")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("API key", key)
        yield* page.reads("It will be shown as sk-...WxYz")
        yield* page.fill("Name", "Production")
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        yield* page.reads("Back to gateway.example")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.include((yield* tenant.list()).body, '"name":"Production","label":"sk-...WxYz"')
        const again = yield* visit(`${url}/keys${link.fragment}`, width, scheme)
        yield* again.reads("This link was used. Ask for a new one.")
        assert.deepStrictEqual(yield* again.faults, [])
        assert.deepStrictEqual([...page.messages, ...again.messages].filter(isComplaint), [])
      })

      it.effect.each(appearances)("replaces a key at %i pixels, %s", function* ([width, scheme]) {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const id = createdId(yield* tenant.create({ ...minimal, name: "Production" }))
        const link = yield* openLink(tenant, { purpose: "replace", credential_id: id })
        const page = yield* visit(`${url}/keys${link.fragment}`, width, scheme)
        yield* page.reads("The new key takes the place of sk-...AbCd for a test account")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("API key", key)
        yield* page.click("Replace key")
        yield* page.reads("The key was replaced")
        yield* page.reads("sk-...WxYz for openai is stored.")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.include((yield* tenant.get(id)).body, '"name":"Production","label":"sk-...WxYz"')
        assert.deepStrictEqual(page.messages, [])
      })

      it.effect.each(appearances)("manages keys at %i pixels, %s", function* ([width, scheme]) {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        for (const name of ["First", "Second"]) yield* tenant.create({ ...minimal, name, allowed_models: ["a/model"] })
        const link = yield* openLink(tenant, { purpose: "manage" })
        const page = yield* visit(`${url}/keys${link.fragment}`, width, scheme)
        yield* page.reads("Active")
        yield* page.reads("Not used yet")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("Search", "seco")
        yield* eventually("only the second", page.text, (text) => !text.includes("First"))
        yield* page.click("Second")
        yield* page.reads("This key is used.")
        yield* page.reads("Added, by the API key first management key")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Move up")
        yield* page.reads("Second is now number 1 of openai.")
        yield* page.click("Move down")
        yield* page.reads("Second is now number 2 of openai.")
        yield* page.click("Switch off")
        yield* page.reads("The key is switched off.")
        yield* page.reads("This key is switched off and is not used.")
        yield* page.fill("Model", "another/model")
        yield* page.click("Explain")
        yield* page.reads("For another/model, this key is not used.")
        yield* page.reads("it is disabled")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Switch on")
        yield* page.reads("The key is switched on.")
        yield* page.click("Rename")
        yield* page.fill("New name", "Renamed")
        yield* page.click("Save")
        yield* page.reads("The name was changed.")
        yield* page.click("Replace key")
        yield* page.reads("Replace the key of Renamed")
        yield* page.fill("API key", key)
        yield* page.click("Replace key")
        yield* page.reads("The key sk-...WxYz was stored in place of the old one.")
        yield* page.click("Delete")
        const confirm = "Type sk-...WxYz to delete this key for good"
        yield* page.fill(confirm, "sk-...AbCd")
        yield* page.click("Delete for good")
        yield* page.reads("That is not sk-...WxYz. Nothing was deleted.")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill(confirm, "sk-...WxYz")
        yield* page.click("Delete for good")
        yield* page.reads("The key sk-...WxYz was deleted.")
        yield* page.click("Add key")
        yield* page.reads("Add a key")
        yield* page.choose("Provider", "anthropic")
        yield* page.fill("API key", other)
        yield* page.click("Add key")
        yield* page.reads("The key sk-...MnOp was added.")
        yield* page.reads("anthropic")
        const { body } = yield* tenant.list()
        assert.deepStrictEqual(
          (JSON.parse(body) as { data: ReadonlyArray<{ label: string }> }).data.map(({ label }) => label),
          ["sk-...AbCd", "sk-...MnOp"]
        )
        assert.deepStrictEqual(page.messages, [])
      })

      it.effect.each(appearances)(
        "shows keys at %i pixels, %s, and offers nothing that would change one",
        function* ([width, scheme]) {
          const { url } = yield* TestService
          const tenant = yield* TestService.newTenant
          yield* tenant.create({ ...minimal, name: "First" })
          const link = yield* openLink(tenant, { purpose: "view" })
          const page = yield* visit(`${url}/keys${link.fragment}`, width, scheme)
          yield* page.reads("Active")
          yield* page.click("First")
          yield* page.reads("Added, by the API key first management key")
          for (const words of ["Add key", "Replace key", "Switch off", "Rename", "Move up", "Delete"]) {
            assert.isFalse(yield* page.has(words), words)
          }
          yield* page.fill("Model", "a/model")
          yield* page.click("Explain")
          yield* page.reads("this key is tried as number 1")
          assert.deepStrictEqual(yield* page.faults, [])
          assert.deepStrictEqual(page.messages, [])
        }
      )

      it.effect("works by keyboard alone, from the heading to the key that is stored", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const link = yield* openLink(tenant, { purpose: "connect", provider: "openai" })
        const page = yield* visit(`${url}/keys${link.fragment}`)
        yield* page.reads("Add your API key")
        const focused = page.evaluate("document.activeElement.id || document.activeElement.tagName")
        yield* eventually("the heading has the focus", focused, (id) => id === "H1")
        const order: Array<unknown> = []
        yield* page.press("Tab")
        order.push(yield* focused)
        yield* page.type("Bearer x")
        yield* page.press("Enter")
        yield* page.reads("API key must not have a scheme")
        yield* eventually("the focus is on what is wrong", focused, (id) => id === "key")
        yield* page.type(key)
        yield* page.press("Tab")
        order.push(yield* focused)
        yield* page.type("Mine")
        yield* page.press("Tab")
        order.push(yield* focused)
        yield* page.press("Space")
        yield* page.reads("The key was added")
        assert.deepStrictEqual(order, ["key", "name", "BUTTON"])
      })

      it.effect("gives a proxy that records everything no nine characters of a key in a row", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const proxy = yield* recordingProxy(url)
        const link = yield* openLink(tenant, { purpose: "connect", provider: "openai" })
        const page = yield* visit(`${proxy.url}/keys${link.fragment}`)
        yield* page.fill("API key", key)
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        assert.include(proxy.recorded(), '"ciphertext"')
        assert.isUndefined(leakOf(proxy.recorded(), [key]))
        yield* create(proxy.url, tenant.management_key, { provider: "openai", key })
        assert.isDefined(leakOf(proxy.recorded(), [key]), "the tenants' API (control)")
      })

      it.effect(
        "keeps neither token nor key in its address, history, storage or cookies; a reload asks for the link",
        function* () {
          const { url } = yield* TestService
          const tenant = yield* TestService.newTenant
          const link = yield* openLink(tenant, { purpose: "manage" })
          const page = yield* visit(`${url}/keys${link.fragment}`)
          yield* page.click("Add key")
          yield* page.choose("Provider", "openai")
          yield* page.fill("API key", key)
          yield* page.click("Add key")
          yield* page.reads("was added")
          const secrets = [key, withoutPrefix(link.token)]
          const kept = String(yield* page.kept)
          assert.include(kept, "/keys", "control")
          assert.isUndefined(leakOf(kept + String(yield* page.evaluate("document.documentElement.outerHTML")), secrets))
          assert.strictEqual(yield* page.evaluate('document.querySelectorAll("input[type=password]").length'), 0)
          yield* page.evaluate("location.reload()")
          yield* page.reads("Open your link again")
          assert.isUndefined(leakOf(JSON.stringify(page.messages), secrets))
        }
      )

      it.effect("takes no key over plain HTTP from another machine, and says why", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const link = yield* openLink(tenant, { purpose: "connect" })
        const elsewhere = url.replace("127.0.0.1", "byok.test")
        const page = yield* openPage(`${elsewhere}/keys${link.fragment}`, 1280, "light", [
          "--host-resolver-rules=MAP byok.test 127.0.0.1"
        ])
        yield* eventually("the notice", page.evaluate("document.body.innerText"), (text) =>
          String(text).includes("Open this page over HTTPS")
        )
        assert.strictEqual(yield* page.evaluate('document.querySelectorAll("input").length'), 0)
      })
    })

    layerLive(Layer.fresh(TestService.recordedWith({ settings: (settings) => ({ ...settings, accessLog: true }) })))(
      "what the service records of it",
      (it) => {
        it.effect("holds neither token nor key in a log, trace or error", function* () {
          const { url } = yield* TestService
          const tenant = yield* TestService.newTenant
          const link = yield* openLink(tenant, { purpose: "manage" })
          const page = yield* visit(`${url}/keys${link.fragment}`)
          yield* page.click("Add key")
          yield* page.choose("Provider", "openai")
          for (const [given, answer] of [
            [`Bearer ${key}`, "must not have a scheme"],
            [key, "was added"]
          ] as const) {
            yield* page.fill("API key", given)
            yield* page.click("Add key")
            yield* page.reads(answer)
          }
          yield* link.ask("GET", `/${link.token}`)
          const recorded = yield* (yield* Recording).all
          assert.include(recorded, link.link_id, "control")
          assert.isUndefined(leakOf(recorded, [key, withoutPrefix(link.token)]))
        })
      }
    )
  }
)
