import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { Api } from "../../api/Api.ts"
import type { ApiDocument } from "./ApiDocument.ts"
import { makeAsset } from "./makeAsset.ts"
import { renderPage } from "./renderPage.ts"
import { style } from "./style.ts"

/** The page asks nobody but this service, and nobody else may frame it. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'"
].join("; ")

/** `/docs`, a page to read the contract and try it, and `/`, which leads there. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const page = renderPage(OpenApi.fromApi(Api) as unknown as ApiDocument)
    const script = readFileSync(new URL("tryIt.js", import.meta.url), "utf8")
    const headers = { "content-security-policy": policy, "referrer-policy": "no-referrer" }
    yield* router.add("GET", "/", Effect.succeed(HttpServerResponse.redirect("/docs")))
    yield* router.add("GET", "/docs", makeAsset("text/html; charset=utf-8", page, headers))
    yield* router.add("GET", "/docs/style.css", makeAsset("text/css; charset=utf-8", style))
    yield* router.add("GET", "/docs/try-it.js", makeAsset("text/javascript; charset=utf-8", script))
  })
)
