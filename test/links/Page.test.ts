import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { labelOf } from "../../src/domain/labelOf.js"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

layerLive(TestService.layer)("the files of the owner's page", (it) => {
  it.effect("are served with no-store and a Content-Security-Policy that forbids other origins", function* () {
    const files = [
      "/keys",
      ...[
        "start.js",
        "app.js",
        "api.js",
        "form.js",
        "key.js",
        "keys.js",
        "parts.js",
        "providers.js",
        "settings.js",
        "words.js",
        "style.css",
        "simple.css"
      ].map((file) => `/keys/${file}`)
    ]
    const modules = ["hpke.js", "preact.js", "label.js", "keyFault.js"].map((file) => `/keys/${file}`)
    for (const path of [...files, ...modules]) {
      const { headers, status } = yield* TestService.send({ path })
      assert.strictEqual(status, 200, path)
      assert.deepInclude(headers, {
        "content-security-policy":
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff"
      })
    }
    const { headers } = yield* TestService.send({ path: "/keys" })
    assert.strictEqual(
      headers["link"]?.split(", ").toSorted().join(),
      [...files, ...modules]
        .filter((path) => path.endsWith(".js"))
        .map((path) => `<${path.slice(1)}>; rel=modulepreload`)
        .toSorted()
        .join()
    )
    const types = yield* Effect.forEach(["/keys", "/keys/app.js", "/keys/simple.css"], (path) =>
      Effect.map(TestService.send({ path }), ({ headers }) => headers["content-type"])
    )
    assert.deepStrictEqual(
      types,
      ["text/html", "text/javascript", "text/css"].map((type) => `${type}; charset=utf-8`)
    )
  })

  it.effect("are the only files served under /keys", function* () {
    for (const path of ["/keys/", "/keys/tsconfig.json", "/keys/..%2FPage.ts", "/keys/hpke.d.ts", "/keys/x/app.js"]) {
      assert.strictEqual((yield* TestService.send({ path })).status, 404, path)
    }
    assert.strictEqual((yield* TestService.send({ method: "POST", path: "/keys" })).status, 405)
  })

  it.effect("include the service's own code for labels and for the rules of keys", function* () {
    for (const [file, source] of [
      ["label.js", "labelOf.js"],
      ["keyFault.js", "keyFault.js"]
    ]) {
      const { body } = yield* TestService.send({ path: `/keys/${file}` })
      assert.strictEqual(body, readFileSync(new URL(`../../src/domain/${source}`, import.meta.url), "utf8"))
    }
    assert.strictEqual(labelOf("sk-0123456789-0123456789-AbCd"), "sk-...AbCd")
  })
})
