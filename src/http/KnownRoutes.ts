import { FindMyWay } from "effect/http"
import { Api } from "../api/Api.ts"

/** Paths are taken exactly as they are written (D10), and may be as long as a request's head. */
export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  maxParamLength: 16_384
}

const routes = FindMyWay.make<string>(routerConfig)
for (const { method, path } of Object.values(Api.groups.byok.endpoints)) routes.on(method, path, path)
const others = ["/", "/docs", "/docs/style.css", "/docs/try-it.js", "/openapi.json", "/health/live", "/health/ready"]
for (const path of others as ReadonlyArray<`/${string}`>) {
  routes.on("GET", path, path)
}

/** The template of the route that a request takes; none for an unknown path. */
export const routeOf = (method: string, url: string): string | undefined =>
  method === "GET" || method === "HEAD" || method === "POST" || method === "PATCH" || method === "DELETE"
    ? routes.find(method === "HEAD" ? "GET" : method, url)?.handler
    : undefined

/** The methods that a path allows, for `Allow`; none for an unknown path (D10). */
export const methodsOf = (url: string): ReadonlyArray<string> => [
  ...(routes.find("GET", url) === undefined ? [] : ["GET", "HEAD"]),
  ...(["POST", "PATCH", "DELETE"] as const).filter((method) => routes.find(method, url) !== undefined)
]
