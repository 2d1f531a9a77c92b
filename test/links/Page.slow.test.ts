import { copyFileSync } from "node:fs"
import { createServer, type IncomingMessage, request } from "node:http"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Effect, Layer } from "effect"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { listening } from "../support/database/listen.ts"
import { raisePools } from "../support/database/raisePools.ts"
import { isInstalled } from "../support/http/Browser.ts"
import { create } from "../support/http/HttpProbe.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"
import { serviceAccount } from "../support/keys/cloudKeys.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { withoutPrefix } from "../support/keys/issuedKey.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, layerLive } from "../support/it.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { Recording } from "../support/process/Recording.ts"
import { openLink } from "./browser.ts"
import { visit } from "./visit.ts"

const key = "sk-owner-kX8vQ2mZ7rT4wY1nB6cJ-WxYz"
const other = "sk-other-pL5hS9dF3gA0eU7iO2qR-MnOp"

const isComplaint = (message: string) => !/Failed to load resource: .* status of 4/.test(message)

/** The fate of a request: it does not reach the service, its answer is late or lost, or a text precedes the answer. */
type Fate = "refused" | "late" | "lost" | { readonly before: string } | undefined

/** A proxy in front of the service that records all that passes, as one that terminates TLS would. */
const recordingProxy = Effect.fnUntraced(function* (
  target: string,
  fateOf: (asked: Pick<IncomingMessage, "method" | "url">) => Fate = () => undefined
) {
  const recorded: Array<Buffer> = []
  const keep = (part: Buffer) => void recorded.push(part)
  const server = createServer((received, answer) => {
    keep(Buffer.from(`${received.method} ${received.url} ${received.rawHeaders.join("\n")}\n`))
    const fate = fateOf(received)
    if (fate === "refused") return void answer.writeHead(502).end()
    const sent = request(
      `${target}${received.url}`,
      { method: received.method, headers: received.headers },
      (response) => {
        if (fate === "lost") return void (response.resume(), answer.destroy())
        const { "content-length": _, ...headers } = response.headers
        answer.writeHead(response.statusCode ?? 502, headers)
        if (typeof fate === "object") answer.write(fate.before)
        if (fate === "late") return void setTimeout(() => response.on("data", keep).pipe(answer), 4000)
        response.on("data", keep).pipe(answer)
      }
    )
    received.on("data", keep).pipe(sent)
  })
  const port = yield* listening(server)
  return {
    url: `http://127.0.0.1:${port}`,
    recorded: () => Buffer.concat(recorded).toString("latin1")
  }
})

/** The page that a new link of a tenant opens. */
const visitLink = Effect.fnUntraced(function* (tenant: Tenant, asked: object, width?: number) {
  const { url } = yield* TestService
  const link = yield* openLink(tenant, asked)
  return { link, ...(yield* visit(`${url}/keys${link.fragment}`, width)) }
})

describe.skipIf(!isInstalled)(
  `the owner's page in Chromium${isInstalled ? "" : " (skipped: /usr/bin/chromium is not installed)"}`,
  () => {
    layerLive(TestService.layer)((it) => {
      it.effect("stores a key by a connect link, after it names what is missing or wrong", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "connect", return_url: "https://gateway.example/settings" })
        yield* page.reads("Add your API key")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Add key")
        yield* page.reads("Provider is required.")
        yield* page.choose("Provider", "openai")
        yield* page.evaluate(
          "window.sent = 0, window.fetch = new Proxy(fetch, { apply: (...call) => (sent += 1, Reflect.apply(...call)) })"
        )
        for (const [entered, fault] of [
          [key.replace(/-k.*6cJ-/, "..."), "the form of a label or a mask"],
          [
            "os.environ/OPENAI_API_KEY",
            "the form of a reference or placeholder such as os.environ/NAME or YOUR_API_KEY"
          ],
          [`OPENAI_API_KEY: ${key}`, "the form of a line such as NAME=value or name: value"],
          [`{"api_key":"sk-...WxYz"}`, "an api_key with the form of a label or a mask"],
          [`Bearer ${key}`, "a scheme such as Bearer before it"],
          ["****", "the form of a label or a mask"]
        ] as const) {
          yield* page.fill("API key", entered)
          yield* page.click("Add key")
          yield* page.reads(`API key must not have ${fault}.`)
          assert.strictEqual(yield* page.valueOf("API key"), entered, "kept until it is stored")
        }
        assert.strictEqual(yield* page.evaluate("sent"), 0, "neither sealed nor sent")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("API key", key)
        yield* page.reads("It will be shown as sk-...WxYz")
        yield* page.fill("Name", "Production")
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        yield* page.reads("Back to gateway.example")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.include((yield* tenant.list()).body, '"name":"Production","label":"sk-...WxYz"')
        const again = yield* visit(`${url}/keys${page.link.fragment}`)
        yield* again.reads("This link was used. Ask for a new one.")
        yield* again.reads("It has stored sk-...WxYz for OpenAI.")
        assert.deepStrictEqual(yield* again.faults, [])
        assert.deepStrictEqual([...page.messages, ...again.messages].filter(isComplaint), [])
      })

      it.effect("stores a doubtful key only if the next press is about the same key", function* () {
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "connect", provider: "openai" })
        const warned = page.reads("This is shorter than keys usually are. If it is right, press the button again.")
        for (const entered of ["abc", "xyz", "abc"]) {
          yield* page.fill("API key", entered)
          assert.notInclude(yield* page.text, "press the button again")
          yield* page.click("Add key")
          yield* warned
        }
        assert.include((yield* tenant.list()).body, '"total_count":0')
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        assert.include((yield* tenant.list()).body, '"total_count":1')
      })

      it.effect("replaces a key by a replace link", function* () {
        const tenant = yield* TestService.newTenant
        const id = createdId(yield* tenant.create({ ...minimal, name: "Production" }))
        const page = yield* visitLink(tenant, { purpose: "replace", credential_id: id })
        yield* page.reads("The new key takes the place of sk-...AbCd for a test account")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("API key", key)
        yield* page.click("Replace key")
        yield* page.reads("The key was replaced")
        yield* page.reads("sk-...WxYz for OpenAI is stored.")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.include((yield* tenant.get(id)).body, '"name":"Production","label":"sk-...WxYz"')
        assert.deepStrictEqual(page.messages, [])
      })

      it.effect("finds, orders, switches, renames, replaces, deletes and adds keys by a manage link", function* () {
        const tenant = yield* TestService.newTenant
        for (const name of ["First", "Second"]) yield* tenant.create({ ...minimal, name, allowed_models: ["a/model"] })
        const page = yield* visitLink(tenant, { purpose: "manage" })
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
        yield* page.reads("Second is now number 1 of OpenAI.")
        yield* page.click("Move down")
        yield* page.reads("Second is now number 2 of OpenAI.")
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
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("New name", "Renamed")
        yield* page.click("Save")
        yield* page.reads("The name was changed.")
        yield* page.click("Replace key")
        yield* page.reads("Replace the key of Renamed")
        assert.deepStrictEqual(yield* page.faults, [])
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
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.choose("Provider", "anthropic")
        yield* page.fill("API key", other)
        yield* page.click("Add key")
        yield* page.reads("The key sk-...MnOp was added.")
        yield* page.reads("Anthropic")
        const { body } = yield* tenant.list()
        assert.deepStrictEqual(
          (JSON.parse(body) as { data: ReadonlyArray<{ label: string }> }).data.map(({ label }) => label),
          ["sk-...AbCd", "sk-...MnOp"]
        )
        assert.deepStrictEqual(page.messages, [])
      })

      it.effect("shows keys by a view link, and has no button that changes one", function* () {
        const tenant = yield* TestService.newTenant
        yield* tenant.create({ ...minimal, name: "First" })
        const page = yield* visitLink(tenant, { purpose: "view" })
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
      })

      it.effect("stores a key by keyboard alone, and moves the focus to invalid fields and headings", function* () {
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "connect" })
        const { focused } = page
        yield* page.reads("Add your API key")
        yield* eventually("the heading has the focus", focused, (id) => id === "H1")
        const order: Array<string> = []
        const next = Effect.andThen(
          page.press("Tab"),
          Effect.map(focused, (id) => void order.push(id))
        )
        yield* next
        yield* page.type("openai")
        yield* page.reads("Make a key at OpenAI")
        yield* next
        yield* next
        yield* page.type("Bearer x")
        yield* page.press("Enter")
        yield* page.reads("API key must not have a scheme")
        yield* eventually("the focus is on what is wrong", focused, (id) => id === "key")
        yield* page.type(key)
        yield* next
        yield* page.type("Mine")
        yield* next
        yield* page.press("Space")
        yield* page.reads("The key was added")
        yield* eventually("the heading has the focus", focused, (id) => id === "H1")
        assert.deepStrictEqual(order, ["provider", "A", "key", "name", "BUTTON"])
        assert.include((yield* tenant.list()).body, '"name":"Mine","label":"sk-...WxYz"')
      })

      it.effect("keeps the focus on an existing element after each action, and labels all elements", function* () {
        const tenant = yield* TestService.newTenant
        for (const name of ["First", "Second"]) yield* tenant.create({ ...minimal, name })
        const page = yield* visitLink(tenant, { purpose: "manage" })
        const focus = (id: string) => eventually(`the focus is on ${id}`, page.focused, (now) => now === id)
        const act = (words: string) =>
          Effect.andThen(page.evaluate(`${page.button(words)}.focus()`), page.press("Space"))
        yield* page.reads("Active")
        assert.includeMembers(yield* page.told, [
          ...["heading Keys", "button Add key", "searchbox Search", "heading OpenAI", "button First", "button Second"]
        ])
        yield* act("Second")
        yield* focus("H1")
        yield* act("Move up")
        yield* page.reads("Second is now number 1 of OpenAI.")
        yield* focus("BUTTON")
        yield* act("Move up")
        yield* act("Switch off")
        yield* page.reads("The key is switched off.")
        yield* focus("BUTTON")
        yield* act("Rename")
        yield* focus("rename")
        yield* act("Rename")
        yield* eventually("no form", page.has("Save"), (has) => !has)
        yield* act("Rename")
        yield* page.fill("New name", "Other")
        yield* act("Save")
        yield* page.reads("The name was changed.")
        yield* focus("H1")
        assert.includeMembers(yield* page.told, [
          ...[
            "heading Other",
            "button Switch on",
            "rowheader Provider",
            "cell OpenAI",
            "textbox Model",
            "heading Events"
          ]
        ])
        yield* act("Settings")
        yield* focus("H1")
        yield* page.fill("Models", "m".repeat(300))
        yield* act("Save settings")
        yield* focus("allowed_models")
        yield* act("Cancel")
        yield* focus("H1")
        yield* act("Delete")
        yield* focus("confirm")
        yield* page.type("sk-...AbCd")
        yield* page.press("Enter")
        yield* page.reads("The key sk-...AbCd was deleted.")
        yield* focus("H1")
      })

      it.effect("shows a recording proxy no nine consecutive characters of a key", function* () {
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

      it.effect("keeps neither key nor link token in the browser, but continues after a reload", function* () {
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("Add key")
        yield* page.choose("Provider", "openai")
        yield* page.fill("API key", key)
        yield* page.click("Add key")
        yield* page.reads("was added")
        const secrets = [key, withoutPrefix(page.link.token)]
        const kept = String(yield* page.kept)
        assert.include(kept, "/keys", "control")
        assert.isUndefined(leakOf(kept + String(yield* page.evaluate("document.documentElement.outerHTML")), secrets))
        assert.strictEqual(yield* page.evaluate('document.querySelectorAll("input[type=password]").length'), 0)
        yield* page.evaluate("location.reload()")
        yield* page.reads("sk-...WxYz")
        assert.isUndefined(leakOf(JSON.stringify(page.messages), secrets))
      })

      it.effect("leaves no usable manage link in the browser's history", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const link = yield* openLink(tenant, { purpose: "manage" })
        const profile = yield* temporaryDirectory
        /** What the browser has written down, some seconds after it went there. */
        const addresses = Effect.sync(() => {
          copyFileSync(join(profile, "Default", "History"), join(profile, "copy"))
          const history = new DatabaseSync(join(profile, "copy"), { readOnly: true })
          const rows = history.prepare("SELECT url FROM urls").all()
          history.close()
          return rows.map((row) => String(row["url"]))
        })
        const page = yield* visit(`${url}/keys${link.fragment}`, 1280, [`--user-data-dir=${profile}`])
        yield* page.reads("There are no keys yet.")
        yield* eventually("the link in the history (control)", addresses, (all) =>
          all.includes(`${url}/keys${link.fragment}`)
        )
        for (const address of yield* addresses) {
          const again = yield* visit(address)
          yield* eventually("no keys", again.text, (text) => /This link cannot be used|Open your link again/.test(text))
        }
      })

      it.effect("opens a second link in its tab, and returns to the first", function* () {
        const { url } = yield* TestService
        const [first, second] = [yield* TestService.newTenant, yield* TestService.newTenant]
        const page = yield* visitLink(first, { purpose: "connect", provider: "openai" })
        yield* page.reads("Provider: OpenAI")
        yield* page.go(
          `${url}/keys${(yield* openLink(second, { purpose: "connect", provider: "anthropic" })).fragment}`
        )
        yield* page.reads("Provider: Anthropic")
        assert.notInclude(String(yield* page.evaluate("location.href")), "#")
        yield* page.fill("API key", key)
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        assert.include((yield* second.list()).body, '"provider":"anthropic"')
        assert.include((yield* first.list()).body, '"total_count":0')
        yield* page.evaluate("history.back()")
        yield* page.reads("Provider: OpenAI")
        yield* page.fill("API key", other)
        yield* page.click("Add key")
        yield* page.reads("The key was added")
        assert.include((yield* first.list()).body, '"provider":"openai"')
      })

      it.effect("stores a key once if it is sent again after a lost answer, by a manage or connect link", function* () {
        for (const purpose of ["manage", "connect"]) {
          const tenant = yield* TestService.newTenant
          const page = yield* visitLink(tenant, { purpose })
          if (purpose === "manage") yield* page.click("Add key")
          yield* page.choose("Provider", "openai")
          yield* page.fill("API key", key)
          yield* page.loseAnswers("POST", 1)
          yield* page.click("Add key")
          yield* page.reads("No answer came.")
          assert.deepStrictEqual(yield* page.faults, [])
          assert.strictEqual(yield* page.valueOf("API key"), key, "nothing that was typed is lost")
          yield* page.click("Add key")
          yield* page.reads(purpose === "manage" ? "The key sk-...WxYz was added." : "The key was added")
          assert.include((yield* tenant.list()).body, '"total_count":1')
        }
      })

      it.effect("stores a key once if it is sent again after a lost answer and a reload or Cancel", function* () {
        const { url } = yield* TestService
        for (const [fate, leave] of [
          ["lost", "reload"],
          ["late", "reload"],
          ["lost", "cancel"]
        ] as const) {
          const tenant = yield* TestService.newTenant
          let now: Fate = fate
          const proxy = yield* recordingProxy(url, ({ method }) => (method === "POST" ? now : undefined))
          const page = yield* visit(`${proxy.url}/keys${(yield* openLink(tenant, { purpose: "manage" })).fragment}`)
          const add = Effect.fnUntraced(function* (entered: string) {
            yield* page.choose("Provider", "openai")
            yield* page.fill("API key", entered)
            yield* page.click("Add key")
          })
          yield* page.click("Add key")
          yield* add(key)
          if (fate === "lost") yield* page.reads("No answer came.")
          yield* eventually("it is stored", tenant.list(), ({ body }) => body.includes('"total_count":1'))
          now = undefined
          if (leave === "reload") {
            assert.isUndefined(leakOf(String(yield* page.kept), [key]))
            yield* page.evaluate("location.reload()")
            yield* eventually("an empty form", page.evaluate("document.getElementById('key')?.value === ''"), Boolean)
          } else {
            yield* page.click("Cancel")
            yield* page.reads("There are no keys yet.")
            yield* page.click("Add key")
          }
          yield* add('{"api_key":7}')
          yield* page.reads("API key must be a plain key or a JSON object")
          yield* add(key)
          yield* page.reads("The key sk-...WxYz was added.")
          assert.include((yield* tenant.list()).body, '"total_count":1')
        }
      })

      it.effect("stores another key after a lost answer too, once it has said that the first was stored", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "manage" })
        const add = Effect.fnUntraced(function* (entered: string) {
          yield* page.choose("Provider", "openai")
          yield* page.fill("API key", entered)
          yield* page.click("Add key")
        })
        yield* page.click("Add key")
        yield* page.loseAnswers("POST", 1)
        yield* add(key)
        yield* page.reads("No answer came.")
        // Another link, in the same tab: what it sends is no repeat.
        yield* page.go(`${url}/keys${(yield* openLink(tenant, { purpose: "manage" })).fragment}`)
        yield* page.reads("sk-...WxYz")
        yield* page.click("Add key")
        yield* add(key)
        yield* page.reads("The key sk-...WxYz was added.")
        assert.include((yield* tenant.list()).body, '"total_count":2')
        yield* page.evaluate("history.back()")
        yield* add(other)
        yield* page.reads("The key that you sent before was stored. Check your keys before you add this one.")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.strictEqual(yield* page.valueOf("API key"), other)
        yield* page.click("Add key")
        yield* page.reads("The key sk-...MnOp was added.")
        assert.include((yield* tenant.list()).body, '"total_count":3')
      })

      it.effect("says which key a replace link has stored if the answer is lost", function* () {
        const tenant = yield* TestService.newTenant
        for (const leave of ["again", "reload"]) {
          const id = createdId(yield* tenant.create(minimal))
          const page = yield* visitLink(tenant, { purpose: "replace", credential_id: id })
          yield* page.fill("API key", key)
          yield* page.loseAnswers("PATCH", 1)
          yield* page.click("Replace key")
          yield* page.reads("No answer came.")
          assert.strictEqual(yield* page.valueOf("API key"), key)
          if (leave === "again") {
            yield* page.click("Replace key")
            yield* page.reads("The key was replaced")
            yield* page.reads("sk-...WxYz for OpenAI is stored.")
          } else {
            yield* page.evaluate("location.reload()")
            yield* page.reads("It has stored sk-...WxYz for OpenAI.")
          }
          assert.deepStrictEqual(yield* page.faults, [])
          assert.include((yield* tenant.get(id)).body, '"label":"sk-...WxYz"')
        }
      })

      it.effect(
        "says that a pool is full and keeps the key, whether its owner or the link chooses the provider",
        function* () {
          const { sql } = yield* TestService
          for (const provider of [undefined, "openai"]) {
            const tenant = yield* TestService.newTenant
            yield* tenant.create(minimal)
            yield* sql`UPDATE pools SET members = 1_000_000 WHERE account_id = ${tenant.account_id}`
            const page = yield* visitLink(tenant, { purpose: "connect", ...(provider && { provider }) })
            if (provider === undefined) yield* page.choose("Provider", "openai")
            yield* page.fill("API key", key)
            yield* page.click("Add key")
            yield* page.reads("Provider must have at most 1000000 credentials in a workspace.")
            assert.deepStrictEqual(yield* page.faults, [])
            assert.strictEqual(yield* page.valueOf("API key"), key)
            yield* sql`UPDATE pools SET members = 1 WHERE account_id = ${tenant.account_id}`
            yield* page.click("Add key")
            yield* page.reads("The key was added")
          }
        }
      )

      it.effect("says that a key was deleted meanwhile, and shows the others", function* () {
        const tenant = yield* TestService.newTenant
        const id = createdId(yield* tenant.create({ ...minimal, name: "First" }))
        yield* tenant.create({ ...minimal, name: "Second" })
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("First")
        yield* page.reads("This key is used.")
        yield* tenant.delete(id)
        yield* page.click("Switch off")
        yield* page.reads("This key no longer exists: it was deleted.")
        yield* page.reads("Second")
        assert.notInclude(yield* page.text, "First")
        assert.deepStrictEqual(yield* page.faults, [])
      })

      it.effect("asks for the provider before it deletes a JSON key whose label is hard to type", function* () {
        const tenant = yield* TestService.newTenant
        const account = JSON.stringify({ ...serviceAccount, private_key_id: "short" })
        yield* tenant.create({ provider: "google-vertex", name: "Vertex", key: account })
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("Vertex")
        yield* page.click("Delete")
        const confirm = "Type google-vertex to delete this key for good"
        yield* page.fill(confirm, "***...***")
        yield* page.click("Delete for good")
        yield* page.reads("That is not google-vertex. Nothing was deleted.")
        yield* page.fill(confirm, "google-vertex")
        yield* page.click("Delete for good")
        yield* page.reads("The key ***...*** was deleted.")
        assert.include((yield* tenant.list()).body, '"total_count":0')
      })

      it.effect("exchanges the token of its link only once if the answer is lost", function* () {
        const { url } = yield* TestService
        const link = yield* openLink(yield* TestService.newTenant, { purpose: "manage" })
        let fate: Fate = "lost"
        const proxy = yield* recordingProxy(url, ({ method }) => (method === "PUT" ? fate : undefined))
        const page = yield* visit(`${proxy.url}/keys${link.fragment}`)
        yield* page.reads("No answer came.")
        assert.strictEqual((yield* link.ask("GET", "/link")).status, 401, "the exchange was made")
        fate = "refused"
        yield* page.click("Try again")
        yield* page.reads("There are no keys yet.")
      })

      it.effect("shows results without scrolling at 390 pixels, and supports Back, Forward and reload", function* () {
        const tenant = yield* TestService.newTenant
        yield* tenant.create({ ...minimal, name: "n".repeat(200) })
        const page = yield* visitLink(tenant, { purpose: "manage" }, 390)
        yield* page.reads("Active")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("nnnn")
        yield* page.click("Switch off")
        yield* page.reads("The key is switched off.")
        assert.isTrue(yield* page.isSeen("The key is switched off."))
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.evaluate("history.back()")
        yield* page.reads("Off")
        yield* eventually(
          "the list",
          page.text,
          (text) => text.startsWith("a test account") && text.includes("Add key")
        )
        yield* page.evaluate("history.forward()")
        yield* page.reads("This key is switched off and is not used.")
        yield* page.evaluate("location.reload()")
        yield* page.reads("This key is switched off and is not used.")
      })

      it.effect("offers to retry when loading failed or the service did not answer", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        let refused = "/keys/hpke.js"
        const proxy = yield* recordingProxy(url, (asked) =>
          asked.url?.startsWith(refused) === true ? "refused" : undefined
        )
        const page = yield* visit(`${proxy.url}/keys${(yield* openLink(tenant, { purpose: "manage" })).fragment}`)
        yield* page.reads("This page could not be loaded.")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.notInclude(String(yield* page.evaluate("location.href")), "#")
        for (const [next, said] of [
          ["/api/links/v1/link", "No answer came."],
          ["/api/links/v1/byok", "No answer came."],
          ["nothing", "There are no keys yet."]
        ] as const) {
          refused = next
          yield* page.click("Try again")
          yield* page.reads(said)
          assert.deepStrictEqual(yield* page.faults, [])
        }
      })

      it.effect("says that reading failed or that an answer takes long, and continues afterwards", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        yield* (yield* Accounts)
          .issueApiKey(tenant.account_id, { name: "A client", role: "ordinary" })
          .pipe(Effect.orDie)
        yield* tenant.create({ ...minimal, name: "First" })
        let fate: Fate = "refused"
        const proxy = yield* recordingProxy(url, (asked) =>
          /events|api-keys/.test(asked.url ?? "") || asked.method === "PATCH" ? fate : undefined
        )
        const page = yield* visit(`${proxy.url}/keys${(yield* openLink(tenant, { purpose: "manage" })).fragment}`)
        yield* page.click("First")
        yield* page.reads("No answer came.")
        assert.deepStrictEqual(yield* page.faults, [])
        fate = undefined
        yield* page.click("Try again")
        yield* page.reads("Added, by the API key first management key")
        fate = "refused"
        yield* page.click("Settings")
        yield* page.reads("No answer came.")
        fate = undefined
        yield* page.click("Try again")
        yield* page.reads("A client")
        yield* page.click("Cancel")
        fate = "late"
        yield* page.click("Switch off")
        yield* page.reads("Still waiting for an answer.")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.reads("The key is switched off.")
        assert.notInclude(yield* page.text, "Still waiting")
      })

      it.effect("says that the browser lacks a feature, or that the tab has no link", function* () {
        const { url } = yield* TestService
        const proxy = yield* recordingProxy(url, ({ url }) =>
          url === "/keys/start.js" ? { before: "delete AbortSignal.timeout\n" } : undefined
        )
        const link = yield* openLink(yield* TestService.newTenant, { purpose: "manage" })
        const lacking = yield* visit(`${proxy.url}/keys${link.fragment}`)
        yield* lacking.reads("try a current version of another browser")
        const page = yield* visit(`${url}/keys`)
        yield* page.reads("This tab has no link.")
        assert.deepStrictEqual(yield* page.faults, [])
      })

      it.effect("works where a browser has no Map.groupBy", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        yield* tenant.create(minimal)
        const proxy = yield* recordingProxy(url, ({ url }) =>
          url === "/keys/start.js" ? { before: "delete Map.groupBy\n" } : undefined
        )
        const page = yield* visit(`${proxy.url}/keys${(yield* openLink(tenant, { purpose: "view" })).fragment}`)
        yield* page.reads("sk-...AbCd")
        assert.strictEqual(yield* page.evaluate("typeof Map.groupBy"), "undefined", "control")
      })

      it.effect("shows at 390 pixels why the service refused a hidden field, and keeps the input", function* () {
        const { sql } = yield* TestService
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "connect", provider: "openai" }, 390)
        yield* page.click("Add key")
        yield* page.reads("API key is required.")
        yield* page.fill("API key", key)
        yield* eventually("no complaint", page.text, (text) => !text.includes("is required"))
        yield* sql`UPDATE workspaces SET deleted_at = now() WHERE account_id = ${tenant.account_id}`
        yield* page.click("Add key")
        yield* page.reads("The workspace of this link was deleted.")
        assert.isTrue(yield* page.isSeen("The workspace of this link was deleted."))
        assert.strictEqual(yield* page.valueOf("API key"), key)
      })

      it.effect("offers no change but renaming and deletion of a key that cannot be opened", function* () {
        const { sql } = yield* TestService
        const tenant = yield* TestService.newTenant
        const id = createdId(yield* tenant.create(minimal))
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("sk-...AbCd")
        yield* page.reads("This key is used.")
        yield* sql`UPDATE credentials SET allowed_models = '{x}' WHERE id = ${id}`
        yield* raisePools(sql)
        yield* page.click("Switch off")
        yield* page.reads("The stored key cannot be opened, so this credential can only be renamed or deleted")
        yield* page.reads("This key cannot be opened any more")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.deepStrictEqual([yield* page.has("Switch off"), yield* page.has("Replace key")], [false, false])
        yield* page.click("Delete")
        yield* page.fill("Type sk-...AbCd to delete this key for good", "sk-...AbCd")
        yield* page.click("Delete for good")
        yield* page.reads("There are no keys yet.")
      })

      it.effect("shows invisible characters of names, and isolates names that reverse text direction", function* () {
        const { sql } = yield* TestService
        const tenant = yield* TestService.newTenant
        yield* sql`UPDATE accounts SET name = ${"\u202Etroppus moc.elgoog"} WHERE id = ${tenant.account_id}`
        const page = yield* visitLink(tenant, { purpose: "connect" })
        yield* page.reads("It will be used on behalf of [U+202E]troppus moc.elgoog")
        assert.notInclude(yield* page.text, "\u202E")
        assert.strictEqual(
          yield* page.evaluate("getComputedStyle(document.querySelector('bdi')).unicodeBidi"),
          "isolate"
        )
      })

      it.effect("changes the edited settings of a key, and keeps what others changed meanwhile", function* () {
        const tenant = yield* TestService.newTenant
        const { hash } = yield* Effect.orDie(
          (yield* Accounts).issueApiKey(tenant.account_id, { name: "A client", role: "ordinary" })
        )
        const id = createdId(yield* tenant.create({ ...minimal, name: "First", allowed_user_ids: ["u"] }))
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("First")
        yield* page.reads("Every model")
        yield* page.click("Settings")
        yield* page.reads("A client")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* tenant.update(id, { allowed_user_ids: ["u", "v"], name: "Second" })
        for (const [models, doubt] of [
          ["a/model,b/model", "a comma does not separate them, so write one a line."],
          ["a/*", "* is no wildcard. If it is right, press the button again."],
          ["b/*", "* is no wildcard. If it is right, press the button again."]
        ] as const) {
          yield* page.fill("Models", models)
          yield* page.click("Save settings")
          yield* page.reads(doubt)
          assert.include((yield* tenant.get(id)).body, '"allowed_models":null', "not sent")
        }
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.fill("Models", "a/model\nb/model")
        yield* page.tick("A client")
        yield* page.tick("Use only my keys for the models of this key")
        yield* page.tick("Use this key only after all other keys and shared capacity")
        yield* page.reads("A key that comes after shared capacity cannot forbid it")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Save settings")
        yield* page.tick("Use this key only after all other keys and shared capacity")
        yield* page.click("Save settings")
        yield* page.reads("The settings were changed.")
        yield* page.reads("Shared capacity is not used for its models.")
        yield* page.reads("a/model, b/model")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.deepInclude((JSON.parse((yield* tenant.get(id)).body) as { data: object }).data, {
          ...{ name: "Second", allowed_models: ["a/model", "b/model"], allowed_user_ids: ["u", "v"] },
          ...{ allowed_api_key_hashes: [hash], is_byok_only: true, is_fallback: false, declared_zdr: null }
        })
        yield* page.evaluate("history.back()")
        yield* page.reads("Add key")
      })

      it.effect("finds providers by name, and warns of keys that do not look like the provider's", function* () {
        const tenant = yield* TestService.newTenant
        const page = yield* visitLink(tenant, { purpose: "connect" })
        const { providers } = yield* page.link.about
        const known = (yield* page.evaluate(`import("/keys/providers.js").then(({ doubtOf, providerName, slugOf }) => {
          const slugs = ${JSON.stringify(providers)}
          const json = (members) => JSON.stringify(members)
          return [
            new Set(slugs.map(providerName)).size, slugs.map(providerName).filter((name) => slugs.includes(name)),
            slugs.every((slug) => slugOf(slugs, providerName(slug).toUpperCase()) === slug), slugOf(slugs, "nobody") ?? null,
            doubtOf("sk-ant-0123456789", "openai"), doubtOf("sk-ant-0123456789", "anthropic/2") ?? null,
            doubtOf(json({ client_email: "a" }), "google-vertex").split(". ")[0],
            doubtOf(json([{ endpoint_url: "u", api_key: "k" }]), "azure") ?? null,
            doubtOf(json({ accessKeyId: "i", secretAccessKey: "s", region: "r" }), "amazon-bedrock/claude-on-aws") ?? null
          ]
        })`)) as ReadonlyArray<unknown>
        assert.deepStrictEqual(known, [
          ...[providers.length, [], true, null],
          ...["This looks like a key of Anthropic, not of OpenAI.", null],
          ...["This JSON has no private_key_id and no private_key", null, null]
        ])
        yield* page.choose("Provider", "Nobody")
        yield* page.fill("API key", "sk-ant-0123456789-0123456789-0123")
        yield* page.click("Add key")
        yield* page.reads("There is no such provider: choose one from the list.")
        yield* page.choose("Provider", "open ai")
        yield* page.choose("Provider", "OpenAI")
        yield* page.reads("Make a key at OpenAI")
        yield* page.reads("This looks like a key of Anthropic, not of OpenAI.")
        yield* page.choose("Provider", "Google Vertex AI")
        assert.strictEqual(yield* page.evaluate("document.getElementById('key').tagName"), "TEXTAREA")
        assert.include(yield* page.valueOf("API key"), "sk-ant-", "what was typed stays")
        const account = JSON.stringify(
          { type: "service_account", client_email: "a@b", private_key_id: "i", private_key: "p" },
          null,
          2
        )
        yield* page.fill("API key", account.slice(0, -3))
        yield* page.click("Add key")
        yield* page.reads("perhaps its end is missing.")
        yield* page.reads("API key must not have a line break")
        yield* page.fill("API key", account.replace(/\s/g, "").slice(0, -3))
        yield* page.click("Add key")
        yield* page.reads("perhaps its end is missing. If it is right, press the button again.")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.include((yield* tenant.list()).body, '"total_count":0')
        const take = (text: string) =>
          page.evaluate(`{
            const files = new DataTransfer()
            files.items.add(new File([${JSON.stringify(text)}], "key.json"))
            const input = document.getElementById("file")
            input.files = files.files
            input.dispatchEvent(new Event("change", { bubbles: true }))
          }`)
        yield* take("x".repeat(100_001))
        yield* page.reads("This file is too large to be a key.")
        yield* take(account)
        yield* eventually("the file", page.valueOf("API key"), (text) => text === account)
        assert.deepStrictEqual(page.messages, [])
      })

      it.effect("shows the time until a parked key is tried again, and the remaining life of a token", function* () {
        const { sql } = yield* TestService
        const tenant = yield* TestService.newTenant
        const id = createdId(yield* tenant.create({ ...minimal, provider: "google-vertex", name: "Parked" }))
        yield* sql`INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
          VALUES (${tenant.account_id}, ${id}, '', 1, 'rejected', 1, now() + interval '20 seconds', now())`
        yield* raisePools(sql)
        const page = yield* visitLink(tenant, { purpose: "manage" })
        yield* page.click("Parked")
        yield* page.reads("It is tried again in")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.click("Delete")
        yield* page.reads("stays valid for up to an hour")
        assert.deepStrictEqual(yield* page.faults, [])
        yield* page.reads("This key is used.")
      })

      it.effect("refuses keys over plain HTTP from another machine, and says why", function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.newTenant
        const link = yield* openLink(tenant, { purpose: "connect" })
        const elsewhere = url.replace("127.0.0.1", "byok.test")
        const page = yield* visit(`${elsewhere}/keys${link.fragment}`, 1280, [
          "--host-resolver-rules=MAP byok.test 127.0.0.1"
        ])
        yield* page.reads("Open this page over HTTPS")
        assert.deepStrictEqual(yield* page.faults, [])
        assert.strictEqual(yield* page.evaluate('document.querySelectorAll("input").length'), 0)
      })
    })

    layerLive(Layer.fresh(TestService.recordedWith({ settings: (settings) => ({ ...settings, accessLog: true }) })))(
      "the service's records of the page's requests",
      (it) => {
        it.effect("hold neither token nor key in a log, trace or error", function* () {
          const tenant = yield* TestService.newTenant
          const page = yield* visitLink(tenant, { purpose: "manage" })
          yield* page.click("Add key")
          yield* page.choose("Provider", "openai")
          for (const [given, answer] of [
            [`{"api_key":["${key}"]}`, "must be a plain key or a JSON object"],
            [key, "was added"]
          ] as const) {
            yield* page.fill("API key", given)
            yield* page.click("Add key")
            yield* page.reads(answer)
          }
          yield* page.link.ask("GET", `/${page.link.token}`)
          const recorded = yield* (yield* Recording).all
          assert.include(recorded, page.link.link_id, "control")
          assert.isUndefined(leakOf(recorded, [key, withoutPrefix(page.link.token)]))
        })
      }
    )
  }
)
