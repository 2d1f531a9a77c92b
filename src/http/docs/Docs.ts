import { hash } from "node:crypto"
import { readFileSync } from "node:fs"
import { brotliCompressSync, gzipSync } from "node:zlib"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { Api } from "../../api/Api.ts"
import { type ApiDocument, renderPage } from "./renderPage.ts"
import { style } from "./style.ts"

/** Whether a list such as `br;q=1.0, gzip;q=0` accepts a content coding. */
const accepts = (list: string, coding: string) =>
  list
    .toLowerCase()
    .split(",")
    .map((part) => part.split(";").map((piece) => piece.trim()))
    .some(([name, ...parameters]) => name === coding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter)))

const matches = (list: string, etag: string) =>
  list.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag)

/** Makes a route of fixed content, compressed once, which browsers may keep for five minutes and revalidate then. */
const makeAsset = (type: string, text: string, headers: Readonly<Record<string, string>> = {}) => {
  const content = Buffer.from(text)
  const digest = hash("sha256", content, "base64url").slice(0, 22)
  const variants = [
    { coding: "br", bytes: brotliCompressSync(content) },
    { coding: "gzip", bytes: gzipSync(content) },
    { coding: "identity", bytes: content }
  ].map(({ bytes, coding }) => ({
    coding,
    bytes,
    etag: `"${digest}-${coding}"`,
    contentCoding: coding === "identity" ? {} : { "content-encoding": coding }
  }))
  return Effect.map(HttpServerRequest.HttpServerRequest, (request) => {
    const { "accept-encoding": accepted = "", "if-none-match": known = "" } = request.headers
    const variant = variants.find(({ coding }) => coding === "identity" || accepts(accepted, coding))
    if (variant === undefined) return HttpServerResponse.empty({ status: 406 })
    const { bytes, contentCoding, etag } = variant
    const common = {
      ...headers,
      "cache-control": "public, max-age=300",
      etag,
      vary: "Accept-Encoding",
      "x-content-type-options": "nosniff"
    }
    return matches(known, etag)
      ? HttpServerResponse.empty({ status: 304, headers: common })
      : HttpServerResponse.uint8Array(bytes, { contentType: type, headers: { ...common, ...contentCoding } })
  })
}

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
