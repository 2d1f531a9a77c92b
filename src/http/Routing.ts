import { Context, Effect, Layer } from "effect"
import { FindMyWay, HttpRouter } from "effect/http"
import { Api } from "../contract/TenantsApi.ts"
import { methods } from "./RequestMeter.ts"

/** Paths are taken exactly as they are written (D10), and may be as long as a request's head. */
const routerConfig = {
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

/** Knows each route that a router has, before the router takes a request. Of one that `isSafe`, a repeat does no harm. */
export const makeRouting = (isSafe: (method: string, path: string) => boolean) => {
  const routes = FindMyWay.make<string>(routerConfig)
  /** The template of the route that the router will take; none for an unknown path. */
  const routeOf = (method: string, url: string): string | undefined =>
    routes.find(method === "HEAD" ? "GET" : method, url)?.handler
  const note = ({ method, path }: Pick<HttpRouter.Route<unknown, unknown>, "method" | "path">) =>
    method === "*" ? routes.all(path, path) : routes.on(method, path, path)
  return {
    routeOf,
    /** Whether a request that failed may be sent again. */
    mayRepeat: (method: string, url: string) => isSafe(method, routeOf(method, url) ?? ""),
    /** The methods that a path allows, for `Allow`; none for an unknown path (D10). */
    methodsOf: (url: string): ReadonlyArray<string> =>
      Array.from(methods).filter((method) => routeOf(method, url) !== undefined),
    /** Makes a router whose routes are known from when they are added. */
    makeRouter: Effect.map(HttpRouter.make, (router): HttpRouter.HttpRouter => ({
      ...router,
      add: (method, path, handler, options) => {
        note({ method, path })
        return router.add(method, path, handler, options)
      },
      addAll: (added) => {
        added.forEach(note)
        return router.addAll(added)
      },
      prefixed: () => {
        throw new Error("A route must be added under its whole path")
      }
    })).pipe(Effect.provideService(HttpRouter.RouterConfig, routerConfig))
  }
}

/** The routing of the server's router. */
export class Routing extends Context.Service<Routing, ReturnType<typeof makeRouting>>()("byok/Routing") {}

/** A router, and its routing. */
export const layer = (routing: Routing["Service"]) =>
  Layer.merge(Layer.succeed(Routing, routing), Layer.effect(HttpRouter.HttpRouter, routing.makeRouter))

const plan = Api.groups.byok.endpoints.plan.path.slice("/api/v1".length)

/** The routing of the service's port, of which only reads may be repeated: also those of the owner's page. */
export const makePublicRouting = () => makeRouting((method, path) => method === "GET" || path.endsWith(plan))
