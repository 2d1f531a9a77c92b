import { FindMyWay } from "effect/http"
import { Api } from "../api/Api.ts"
import { routableUrl } from "./routableUrl.ts"

/** Paths are taken exactly as they are written (D10), and may be as long as a request's head. */
export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  maxParamLength: 16_384
}

const others = ["/", "/docs", "/docs/style.css", "/docs/try-it.js", "/openapi.json", "/health/live", "/health/ready"]
const known = [
  ...Object.values(Api.groups.byok.endpoints).map(({ method, path }) => ({ method, path })),
  ...(others as ReadonlyArray<`/${string}`>).map((path) => ({ method: "GET" as const, path }))
]

const routes = FindMyWay.make<string>(routerConfig)
for (const { method, path } of known) routes.on(method, path, path)

/** The routes of one method that need no search. */
const simple = (["GET", "POST", "PATCH", "DELETE"] as const).map((method) => {
  const paths = known.filter((route) => route.method === method).map(({ path }) => path)
  const fixed = new Map<string, string>(paths.filter((path) => !path.includes(":")).map((path) => [path, path]))
  /** Those whose last segment is their only parameter, by what stands before it. */
  const open = new Map<string, string>(
    paths.filter((path) => /^[^:]+:\w+$/.test(path)).map((path) => [path.replace(/:.*/, ""), path])
  )
  return { method, fixed, open }
})
const methods = new Map<string, (typeof simple)[number]>(simple.map((routes) => [routes.method, routes]))

/**
 * The template of the route that a request takes; none for an unknown path. Every request is asked for it, and what needs
 * no search takes a tenth of the time.
 */
export const routeOf = (method: string, url: string): string | undefined => {
  const ofMethod = methods.get(method === "HEAD" ? "GET" : method)
  if (ofMethod === undefined) return undefined
  const query = url.indexOf("?")
  const path = query < 0 ? url : url.slice(0, query)
  const last = path.lastIndexOf("/") + 1
  return (
    ofMethod.fixed.get(path) ??
    (last < path.length ? ofMethod.open.get(path.slice(0, last)) : undefined) ??
    routes.find(ofMethod.method, routableUrl(url))?.handler
  )
}

/** The methods that a path allows, for `Allow`; none for an unknown path (D10). */
export const methodsOf = (url: string): ReadonlyArray<string> => [
  ...(routes.find("GET", url) === undefined ? [] : ["GET", "HEAD"]),
  ...(["POST", "PATCH", "DELETE"] as const).filter((method) => routes.find(method, url) !== undefined)
]
