import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { Api } from "../../src/api/Api.ts"
import { renderPage } from "../../src/http/docs/renderPage.ts"
import { send } from "../support/http/HttpProbe.ts"
import type { JsonSchema } from "../support/http/JsonSchema.ts"
import { TestService } from "../support/http/TestService.ts"
import { layerLive } from "../support/process/layerLive.ts"

const assets = [
  ["/docs", "text/html; charset=utf-8"],
  ["/docs/style.css", "text/css; charset=utf-8"],
  ["/docs/try-it.js", "text/javascript; charset=utf-8"]
] as const

/** What makes a browser fetch from another origin: attributes, styles and modules that name one. */
const elsewhere = (html: string): ReadonlyArray<string> =>
  [
    /\b(?:src|href|srcset|action|poster|data)\s*=\s*["'`]?\s*(?:https?:)?\/\/[^\s"'`>]+/gi,
    /url\(\s*["']?(?:https?:)?\/\/[^)]*/gi,
    /@import\s*(?:url\()?\s*["']?[^;"']+/gi,
    /\bimport\(\s*["'`](?:https?:)?\/\/[^"'`]+/gi
  ].flatMap((pattern) => html.match(pattern) ?? [])

/** A request with the headers of a browser, whose body is decoded by its coding. */
const browse = (url: string, headers: Record<string, string>) =>
  Effect.promise(async () => {
    const response = await fetch(url, { headers })
    const body = await response.text()
    return { status: response.status, headers: Object.fromEntries(response.headers), body }
  })

layerLive(TestService.layer)("/docs", (it) => {
  it.effect.each(assets)("%s is small and fetches nothing from elsewhere", ([path, type]) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body, headers, status } = yield* send(url, { path })
      assert.strictEqual(status, 200)
      assert.strictEqual(headers["content-type"], type)
      assert.deepStrictEqual(elsewhere(body), [])
      assert.isBelow(body.length, 100_000)
      const compressed = yield* send(url, { path, method: "HEAD", headers: [["Accept-Encoding", "gzip"]] })
      assert.isBelow(Number(compressed.headers["content-length"]), 10_000)
    })
  )

  it.effect.each(assets)("%s is compressed if the browser accepts it, and may be kept (F17)", ([path]) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const plain = yield* send(url, { path })
      assert.isUndefined(plain.headers["content-encoding"])
      for (const [accepted, coding] of [
        ["gzip, deflate, br, zstd", "gzip"],
        ["br,gzip", "gzip"],
        ["GZIP;q=0.5", "gzip"],
        ["br;q=0, gzip;q=1.0", "gzip"],
        ["br;q=1.0, gzip; q=0", undefined],
        ["gzip;q=0.000, br", undefined],
        ["identity", undefined],
        ["gzippy", undefined]
      ] as const) {
        const answer = yield* browse(url + path, { "accept-encoding": accepted })
        assert.strictEqual(answer.headers["content-encoding"], coding, accepted)
        assert.strictEqual(answer.headers["vary"], "Accept-Encoding")
        assert.strictEqual(answer.headers["cache-control"], "public, max-age=300")
        assert.strictEqual(answer.body, plain.body)
      }
    })
  )

  it.effect("has a policy: nothing inline, nothing from elsewhere, in nobody's frame, no guessed types (F17)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body, headers } = yield* send(url, { path: "/docs" })
      const directives = (headers["content-security-policy"] ?? "").split("; ")
      assert.includeMembers(directives, [
        ...["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"],
        ...["base-uri 'none'", "form-action 'none'"]
      ])
      assert.notMatch(directives.join(), /unsafe|\*/)
      assert.notMatch(body, /<style|<script(?! src=)|\son\w+=|\sstyle=/)
      for (const [path] of assets) {
        assert.strictEqual((yield* send(url, { path })).headers["x-content-type-options"], "nosniff")
      }
    })
  )

  it.effect("is where / leads to (D10)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { headers, status } = yield* send(url, { path: "/" })
      assert.deepStrictEqual([status, headers["location"]], [302, "/docs"])
    })
  )

  it.effect.each([
    '<script src="https://cdn.example/swagger.js"></script>',
    "<link href=//cdn.example/swagger.css>",
    '<img srcset="http://cdn.example/a.png 2x">',
    '<style>@import "https://fonts.example/inter.css";</style>',
    "<style>body { background: url(https://cdn.example/a.png) }</style>",
    '<style>@font-face { src: url("//fonts.example/inter.woff2") }</style>',
    '<script type="module">import("https://cdn.example/a.js")</script>'
  ])("positive control: such a page is found out: %s", (planted) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body } = yield* send(url, { path: "/docs" })
      assert.lengthOf(elsewhere(body + planted), 1)
    })
  )
})

describe("the page", () => {
  const document = OpenApi.fromApi(Api)
  const page = renderPage(document)

  it("shows every operation, parameter, field, status and header of the document", () => {
    const shown = (text: string) => page.includes(`<code>${text}</code>`)
    for (const [path, item] of Object.entries(document.paths)) {
      assert.isTrue(shown(path), path)
      for (const { parameters, responses, summary = "" } of Object.values(
        item as Record<string, OpenApi.OpenAPISpecOperation>
      )) {
        assert.include(page, `<h2>${summary}</h2>`)
        for (const { name } of parameters) assert.isTrue(shown(name), name)
        for (const [status, { headers = {} }] of Object.entries(responses)) {
          assert.include(page, `>${status}</b>`)
          for (const header of Object.keys(headers)) assert.isTrue(shown(header), header)
        }
      }
    }
    const schemas = document.components.schemas as Readonly<Record<string, JsonSchema>>
    for (const name of ["Credential", "NewCredential"]) {
      const fields = Object.keys(schemas[name]?.properties ?? {})
      assert.isAbove(fields.length, 10)
      for (const field of fields) assert.isTrue(shown(field), field)
    }
    for (const provider of schemas["NewCredential"]?.properties?.["provider"]?.enum ?? []) {
      assert.isTrue(shown(String(provider)), String(provider))
    }
  })

  it("shows the errors of every operation once, and those of one operation with it", () => {
    const [create = "", errors = ""] = ["post-api-v1-byok", "errors"].map(
      (id) => page.split(`<section id="${id}">`)[1]?.split("</section>")[0]
    )
    const statusesIn = (part: string) => Array.from(part.matchAll(/<b class="s\d">(\d+)/g), ([, status]) => status)
    assert.deepStrictEqual(statusesIn(create), ["201", "400", "409"])
    assert.include(create, '<a href="#errors">')
    assert.deepStrictEqual(statusesIn(errors), ["401", "403", "408", "413", "417", "431", "500", "503"])
  })

  it("has a curl command beside each operation, quoted for a shell", () => {
    assert.lengthOf(page.match(/<pre>curl /g) ?? [], 9)
    const patch = page.split("<pre>curl").find((part) => part.includes("-X PATCH")) ?? ""
    assert.include(patch, "/api/v1/byok/ID' \\\n  -X PATCH")
    assert.include(patch, "-d '{&#34;name&#34;:&#34;Staging&#34;,&#34;disabled&#34;:true}'")
  })

  it("masks the key that is typed and lets no browser remember it (F17)", () => {
    assert.match(page, /<input type="password" name="key" autocomplete="off"/)
  })

  it("shows what is in the document as text, whatever that is", () => {
    const hostile = `<img src=x onerror="alert(1)">&'`
    const schema = { type: hostile, description: hostile, enum: [hostile], default: hostile, pattern: hostile }
    const example = { example: hostile }
    const operation: OpenApi.OpenAPISpecOperation = {
      operationId: hostile,
      tags: [hostile],
      security: [],
      summary: hostile,
      description: hostile,
      parameters: [{ name: hostile, in: "path", required: true, schema }],
      requestBody: {
        required: true,
        content: { "application/json": { schema: { properties: { [hostile]: schema } }, ...example } }
      },
      responses: {
        200: {
          description: hostile,
          headers: { [hostile]: { description: hostile, required: true, schema } },
          content: {
            "application/json": {
              schema: { properties: { data: { properties: { [hostile]: schema } } } },
              ...example
            }
          }
        }
      }
    }
    const rendered = renderPage({
      openapi: "3.1.0",
      security: [],
      tags: [],
      info: { title: hostile, version: hostile, description: hostile },
      paths: { [`/${hostile}`]: { get: operation } },
      components: { schemas: {}, securitySchemes: {} }
    })
    assert.notInclude(rendered, "<img")
    assert.notInclude(rendered, 'onerror="')
  })
})
