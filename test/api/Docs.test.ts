import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"

/** What makes a browser fetch from another origin: attributes, styles and modules that name one. */
const elsewhere = (html: string): ReadonlyArray<string> =>
  [
    /\b(?:src|href|srcset|action|poster|data)\s*=\s*["'`]?\s*(?:https?:)?\/\/[^\s"'`>]+/gi,
    /url\(\s*["']?(?:https?:)?\/\/[^)]*/gi,
    /@import\s*(?:url\()?\s*["']?[^;"']+/gi,
    /\bimport\(\s*["'`](?:https?:)?\/\/[^"'`]+/gi
  ].flatMap((pattern) => html.match(pattern) ?? [])

layerLive(TestService.layer)("/docs", (it) => {
  it.effect("fetches nothing from elsewhere", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body, headers, status } = yield* send(url, { path: "/docs" })
      assert.strictEqual(status, 200)
      assert.match(headers["content-type"] ?? "", /^text\/html/)
      assert.deepStrictEqual(elsewhere(body), [])
    })
  )

  it.effect("embeds the served document, so none is fetched or sent to a validator", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body: page } = yield* send(url, { path: "/docs" })
      const { body: document } = yield* send(url, { path: "/openapi.json" })
      const inline = /<script id="swagger-spec" type="application\/json">([^]*?)<\/script>/.exec(page)?.[1] ?? "null"
      assert.deepStrictEqual(JSON.parse(inline), JSON.parse(document))
      const [, start = ""] = page.split("window.ui = SwaggerUIBundle(")
      assert.match(start, /\bspec:/)
      assert.notMatch(start, /\b(?:url|urls|configUrl|validatorUrl):/)
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
  ])("a page that does fetch is found: %s (control)", (planted) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { body } = yield* send(url, { path: "/docs" })
      assert.lengthOf(elsewhere(body + planted), 1)
    })
  )
})
