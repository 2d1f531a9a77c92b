import { FindMyWay, type HttpMethod } from "effect/http"
import { Api } from "../api/Api.ts"
import { LinksApi } from "../api/LinksApi.ts"

/** Paths are taken exactly as they are written (D10), and may be as long as a request's head. */
export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  maxParamLength: 16_384
}

const isEncoded = (path: string) => {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** The scheme and authority of a target in absolute form (RFC 9112, section 3.2.2), which a proxy is sent. */
const origin = /^https?:\/\/[^/?#]+/i

/**
 * What the router takes the target of a request for: every path literally. One that is not percent-encoded UTF-8 stands for
 * itself, `;` starts no query, `#` no fragment, and nothing follows a last slash. Otherwise a request could bypass
 * authentication or reach another resource (D5, D10). A target in absolute form is its path.
 */
export const routableUrl = (target: string): string => {
  const url = target.startsWith("/") ? target : target.replace(origin, "").replace(/^(?=\?|$)/, "/")
  const [path = ""] = /^[^?]*/.exec(url) ?? []
  // The router reads `*` and what is no URL as `/`, and a path that ends in a slash as one with an empty id.
  if (!path.startsWith("/") || (path !== "/" && path.endsWith("/"))) return `//${url}`
  if (!/[%;#]/.test(path)) return url
  const encoded = isEncoded(path) ? path : path.replaceAll("%", "%25")
  return encoded.replaceAll(";", "%3B").replaceAll("#", "%23") + url.slice(path.length)
}

const { byok, health } = Api.groups
const { links } = LinksApi.groups
const others = ["/", "/docs", "/openapi.json", "/keys", "/keys/:file"] as const

/** The methods that some path allows. */
export const allowedMethods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const

interface KnownRoute {
  readonly method: HttpMethod.HttpMethod
  readonly path: `/${string}`
}

/** What is known of a route before the router takes it. One that `isSafe` answers 503 without the database, not 500. */
export const routingOf = (known: ReadonlyArray<KnownRoute>, isSafe: (method: string, path: string) => boolean) => {
  const routes = FindMyWay.make<string>(routerConfig)
  for (const { method, path } of known) routes.on(method, path, path)
  /** The template of the route that the router will take; none for an unknown path. */
  const routeOf = (method: string, url: string): string | undefined => {
    const routed = allowedMethods.find((known) => known === (method === "HEAD" ? "GET" : method))
    return routed === undefined ? undefined : routes.find(routed, url)?.handler
  }
  return {
    routeOf,
    mayRepeat: (method: string, url: string) => isSafe(method, routeOf(method, url) ?? ""),
    /** The methods that a path allows, for `Allow`; none for an unknown path (D10). */
    methodsOf: (url: string): ReadonlyArray<string> =>
      allowedMethods.filter((method) => routeOf(method, url) !== undefined)
  }
}
export type Routing = ReturnType<typeof routingOf>

/** The routes of the service's port. */
export const publicRouting = routingOf(
  [
    ...[byok.endpoints, health.endpoints, links.endpoints].flatMap((group) => Object.values<KnownRoute>(group)),
    ...others.map((path) => ({ method: "GET", path }) as const)
  ],
  (method, path) => method === "GET" || path.endsWith(byok.endpoints.plan.path.slice("/api/v1".length))
)
export const { routeOf } = publicRouting
