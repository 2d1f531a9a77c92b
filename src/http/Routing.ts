import { Context, Effect, Layer } from "effect"
import { FindMyWay, HttpRouter } from "effect/http"
import { Api } from "../contract/TenantsApi.ts"
import { methods } from "./RequestMeter.ts"

/** Matches paths exactly as written (D10). A path parameter may be as long as the head of a request. */
const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  maxParamLength: 16_384
}

const isDecodable = (path: string) => {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** Scheme and authority of a target in absolute form (RFC 9112, section 3.2.2), which clients send to proxies. */
const origin = /^https?:\/\/[^/?#]+/i

/**
 * Rewrites the target of a request so that the router matches the path literally: a path that is not percent-encoded
 * UTF-8 stands for itself, `;` starts no query, `#` starts no fragment, and a path that ends in a slash matches no
 * route. Otherwise a request could bypass authentication or reach another resource (D5, D10). Drops scheme and
 * authority of an absolute target.
 */
export const routableUrl = (target: string): string => {
  // An absolute target without a path stands for `/`.
  const url = target.startsWith("/") ? target : target.replace(origin, "").replace(/^(?=\?|$)/, "/")
  const [path = ""] = /^[^?]*/.exec(url) ?? []
  // Makes a path that matches no route, because none begins with `//`. The router would read `*` and an invalid URL as
  // `/`, and a path that ends in a slash as one with an empty id.
  if (!path.startsWith("/") || (path !== "/" && path.endsWith("/"))) return `//${url}`
  if (!/[%;#]/.test(path)) return url
  const encoded = isDecodable(path) ? path : path.replaceAll("%", "%25")
  return encoded.replaceAll(";", "%3B").replaceAll("#", "%23") + url.slice(path.length)
}

/**
 * Records the routes of a router as they are added. `isSafe` says whether repeating a request does no harm; its `path`
 * is the template of the request's route, empty if there is none.
 */
export const makeRouting = (isSafe: (method: string, path: string) => boolean) => {
  const routes = FindMyWay.make<string>(routerConfig)
  /** The template of the route that the router will match; undefined if none does. HEAD matches the route of GET. */
  const routeOf = (method: string, url: string): string | undefined =>
    routes.find(method === "HEAD" ? "GET" : method, url)?.handler
  const record = ({ method, path }: Pick<HttpRouter.Route<unknown, unknown>, "method" | "path">) => {
    // The router matches `/a/*` by `/a` too.
    for (const pattern of new Set([path, path.replace(/\/\*$/, "")]) as ReadonlySet<HttpRouter.PathInput>) {
      if (method === "*") routes.all(pattern, path)
      else routes.on(method, pattern, path)
    }
  }
  return {
    routeOf,
    /** Whether a request that failed may be sent again. */
    mayRepeat: (method: string, url: string) => isSafe(method, routeOf(method, url) ?? ""),
    /** The methods for the `Allow` header of a path; empty for an unknown path (D10). */
    methodsOf: (url: string): ReadonlyArray<string> =>
      Array.from(methods).filter((method) => routeOf(method, url) !== undefined),
    /** Makes a router that records its routes here. */
    makeRouter: Effect.map(HttpRouter.make, (router): HttpRouter.HttpRouter => ({
      ...router,
      add: (method, path, handler, options) => {
        record({ method, path })
        return router.add(method, path, handler, options)
      },
      addAll: (added) => {
        added.forEach(record)
        return router.addAll(added)
      },
      prefixed: () => {
        throw new Error("A route must be added under its whole path")
      }
    })).pipe(Effect.provideService(HttpRouter.RouterConfig, routerConfig))
  }
}

/** The routes of a server, for code that runs outside of its router. */
export class Routing extends Context.Service<Routing, ReturnType<typeof makeRouting>>()("byok/Routing") {}

/** Provides `routing`, and a router that records its routes there. */
export const layer = (routing: Routing["Service"]) =>
  Layer.merge(Layer.succeed(Routing, routing), Layer.effect(HttpRouter.HttpRouter, routing.makeRouter))

/** The path of `plan`, without the prefix in which the tenants' API and the links' API differ. */
const planPath = Api.groups.byok.endpoints.plan.path.slice("/api/v1".length)

/** Makes the routing of the service's port, where only reads may be repeated: GET and plan. */
export const makePublicRouting = () => makeRouting((method, path) => method === "GET" || path.endsWith(planPath))
