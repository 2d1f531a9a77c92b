import { type Context, Effect, Layer } from "effect"
import { HttpServer, HttpServerRequest, HttpServerResponse } from "effect/http"
import { MethodNotAllowed } from "../contract/HttpErrors.ts"
import { InternalError, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { errorResponse } from "../http/Envelope.ts"
import { makeNodeServer } from "../http/makeNodeServer.ts"
import { requestIdOf } from "../http/RequestHead.ts"
import { listen, type ServerSettings } from "../http/Server.ts"
import { KeyringReload } from "../port/KekRegistry.ts"
import { isLoopback } from "../port/Links.ts"
import { Draining, type HealthReport, Readiness } from "../port/Readiness.ts"
import { PrometheusMetrics } from "effect/observability"
import { families, prometheusName } from "../runtime/families.ts"

/** Serves metrics, health details and the reload of the keyring on a separate port, for operators and their tools. */
export const layer = (settings: ServerSettings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const routes = yield* makeRoutes
      const { host, port } = settings
      const { address, serve } = yield* listen(
        makeNodeServer({ ...settings, maxConnections: 100 }),
        { host, port },
        "1 second"
      )
      yield* serve(answerFrom(routes, host))
      if (address._tag !== "UnixPathAddress") {
        yield* Effect.logInfo(`The management port listens on ${HttpServer.formatAddress(address)}`)
      }
    })
  )

const json = (body: unknown) => HttpServerResponse.jsonUnsafe(body)

const makeRoutes = Effect.gen(function* () {
  const context = yield* Effect.context()
  const readiness = yield* Readiness
  const isDraining = yield* Draining
  const { reload } = yield* KeyringReload
  const health: Effect.Effect<HealthReport> = Effect.suspend(() =>
    isDraining()
      ? Effect.succeed({ problems: ["the service is stopping"], warnings: [] })
      : Effect.all(readiness, { concurrency: 2 })
  )
  const ready = Effect.map(health, ({ problems, warnings }) =>
    problems.length === 0
      ? json({ status: "ready", warnings })
      : errorResponse({ error: { ...new ServiceUnavailable().error, metadata: { problems, warnings } } })
  )
  const metrics = Effect.sync(() => HttpServerResponse.text(prometheusText(context), { contentType: prometheusType }))
  const reloadKeyring = reload.pipe(
    Effect.map((report) => json(report)),
    Effect.catchTag("KeyringNotReloaded", ({ message }) =>
      Effect.succeed(
        errorResponse({ error: { code: 409, message: "Keyring not reloaded", metadata: { reason: message } } })
      )
    ),
    Effect.catchTag("DatabaseFailure", () => Effect.succeed(errorResponse(new ServiceUnavailable())))
  )
  return new Map([
    ["/health/live", { methods: ["GET", "HEAD"], answer: Effect.succeed(json({ status: "live" })) }],
    ["/health/ready", { methods: ["GET", "HEAD"], answer: ready }],
    ["/metrics", { methods: ["GET", "HEAD"], answer: metrics }],
    ["/keyring/reload", { methods: ["POST"], answer: reloadKeyring }]
  ])
})

/** Answers requests by the route of their path; refuses requests of web pages. */
const answerFrom = (routes: Effect.Success<typeof makeRoutes>, host: string) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers, method, url }) => {
    const route = routes.get(url.replace(/\?.*$/s, ""))
    const answer = isFromWebPage(host, headers)
      ? Effect.succeed(errorResponse({ error: { code: 403, message: "Not for browsers" } }))
      : route === undefined
        ? Effect.succeed(errorResponse(new NotFound()))
        : route.methods.includes(method)
          ? route.answer
          : Effect.succeed(errorResponse(new MethodNotAllowed(), { allow: route.methods.join(", ") }))
    return answer.pipe(
      Effect.catchDefect((defect) =>
        Effect.as(
          Effect.logError("Unexpected failure on the management port", defect),
          errorResponse(new InternalError())
        )
      ),
      Effect.map((response) =>
        HttpServerResponse.setHeaders(response, {
          "x-request-id": requestIdOf(headers["x-request-id"]),
          "cache-control": "no-store"
        })
      )
    )
  })

/**
 * Whether a web page may have sent the request: it has an Origin or, if the port listens on loopback only, a Host that
 * is not loopback (DNS rebinding).
 */
const isFromWebPage = (listeningHost: string, { host = "", origin }: HttpServerRequest.HttpServerRequest["headers"]) =>
  origin !== undefined || (isLoopback(listeningHost) && !isLoopback(host.replace(/:\d+$/, "")))

const prometheusType = "text/plain; version=0.0.4; charset=utf-8"

const prometheusNames = new Map(Object.entries(families).map(([name, family]) => [name, prometheusName(name, family)]))

/** Formats all metrics of the registry in the context, in the text format of Prometheus. */
export const prometheusText = (context: Context.Context<never>): string =>
  PrometheusMetrics.formatUnsafe(context, { metricNameMapper: (name) => prometheusNames.get(name) ?? name })
