import { hash } from "node:crypto"
import { brotliCompressSync, gzipSync } from "node:zlib"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"

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
export const makeAsset = (type: string, text: string, headers: Readonly<Record<string, string>> = {}) => {
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
