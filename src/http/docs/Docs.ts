import { readFileSync } from "node:fs"
import { gzipSync } from "node:zlib"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { Api } from "../../api/Api.ts"
import { renderPage } from "./renderPage.ts"
import { style } from "./style.ts"

/** The page asks nobody but this service, and nobody else may frame it. */
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** Whether a list such as `br, gzip;q=0.5` accepts gzip. */
const acceptsGzip = (list = "") =>
  list.split(",").some((coding) => /^\s*gzip\s*(;|$)/i.test(coding) && !/;\s*q=0(\.0*)?\s*$/i.test(coding))

/** Makes a route of fixed content, compressed once, which browsers may keep for five minutes. */
const makeAsset = (contentType: string, text: string) => {
  const headers = {
    "cache-control": "public, max-age=300",
    "content-security-policy": policy,
    "referrer-policy": "no-referrer",
    vary: "Accept-Encoding",
    "x-content-type-options": "nosniff"
  }
  const plain = HttpServerResponse.text(text, { contentType, headers })
  const compressed = HttpServerResponse.uint8Array(gzipSync(text), {
    contentType,
    headers: { ...headers, "content-encoding": "gzip" }
  })
  return Effect.map(HttpServerRequest.HttpServerRequest, (request) =>
    acceptsGzip(request.headers["accept-encoding"]) ? compressed : plain
  )
}

/** `/docs`, a page to read the contract and try it, and `/`, which leads there. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const script = readFileSync(new URL("tryIt.js", import.meta.url), "utf8")
    yield* router.add("GET", "/", Effect.succeed(HttpServerResponse.redirect("/docs")))
    yield* router.add("GET", "/docs", makeAsset("text/html; charset=utf-8", renderPage(OpenApi.fromApi(Api))))
    yield* router.add("GET", "/docs/style.css", makeAsset("text/css; charset=utf-8", style))
    yield* router.add("GET", "/docs/try-it.js", makeAsset("text/javascript; charset=utf-8", script))
  })
)
