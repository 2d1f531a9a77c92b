import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiScalar, OpenApi } from "effect/http-api"
import { Api } from "../contract/TenantsApi.ts"
import { completeDocument, operationsOf } from "../contract/OpenApiAnnotations.ts"

const path = "/docs"

/**
 * Keeps Scalar from loading from other hosts, sending to them, and storing anything in the browser. The other options
 * set its look and the scheme that its authentication form shows first.
 */
const scalarOptions = {
  withDefaultFonts: false,
  hideClientButton: true,
  telemetry: false,
  persistAuth: false,
  showDeveloperTools: "never",
  hideModels: true,
  favicon: "data:,",
  defaultOpenAllTags: true,
  customCss: "#api-reference-container { overflow-x: clip }",
  authentication: { preferredSecurityScheme: "management_key" }
}

/** The contract with optional parameters disabled: otherwise Scalar sends the default or the first value of each. */
const api = Api.annotate(OpenApi.Transform, (document) => {
  const spec = completeDocument(document)
  for (const parameter of operationsOf(spec).flatMap(({ parameters }) => parameters)) {
    if (!parameter.required) Object.assign(parameter, { examples: { example: { value: "", "x-disabled": true } } })
  }
  return spec
})

const sha256 = (text: string) => createHash("sha256").update(text).digest("base64")

/** Allows only the page's inline scripts and styles and requests to this service, and forbids framing. */
const policyOf = (html: string) => {
  const scripts = Array.from(
    html.matchAll(/<script>(.*?)<\/script>/gs),
    ([, script = ""]) => `'sha256-${sha256(script)}'`
  )
  return [
    "default-src 'none'",
    `script-src ${scripts.join(" ")}`,
    "style-src 'unsafe-inline'",
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'"
  ].join("; ")
}

/** Renders and compresses the page, which is 3 MB uncompressed. */
const render = Effect.gen(function* () {
  const router = yield* HttpRouter.make
  yield* Layer.build(HttpApiScalar.layer(api, { path, scalar: scalarOptions })).pipe(
    Effect.provideService(HttpRouter.HttpRouter, router)
  )
  const response = HttpServerResponse.toWeb(yield* Effect.orDie(router.asHttpEffect()))
  const html = yield* Effect.promise(() => response.text())
  const headers = {
    "cache-control": "public, max-age=300",
    "content-encoding": "gzip",
    "content-security-policy": policyOf(html),
    etag: `"${sha256(html)}"`,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff"
  }
  const compressed = yield* Effect.promise(() => promisify(gzip)(html))
  return HttpServerResponse.uint8Array(compressed, { contentType: "text/html; charset=utf-8", headers })
}).pipe(Effect.scoped)

/** Serves `/docs`, a page to read and try the contract, rendered once at the first request; `/` redirects there. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const rendered = yield* Effect.cached(render)
    const answer = Effect.zipWith(HttpServerRequest.HttpServerRequest, rendered, (request, page) =>
      request.headers["if-none-match"] === page.headers["etag"]
        ? HttpServerResponse.empty({ status: 304, headers: page.headers })
        : page
    )
    yield* router.add("GET", "/", Effect.succeed(HttpServerResponse.redirect(path)))
    yield* router.add("GET", path, answer)
  })
)
