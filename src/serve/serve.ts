import { Console, Effect, Layer, Option, type Queue, Redacted } from "effect"
import { HttpServer, type HttpServerError } from "effect/http"
import * as Byok from "../Byok.ts"
import * as Server from "../http/Server.ts"
import { Accounts } from "../service/Accounts.ts"
import * as OfProcess from "../management/OfProcess.ts"
import * as MetricsExport from "../wiring/MetricsExport.ts"
import { readCertificate } from "../wiring/readCertificate.ts"
import { InvalidSetting, type Settings } from "../wiring/Settings.ts"
import { Draining } from "../port/Draining.ts"
import { makeDrain } from "./makeDrain.ts"
import { managementPort } from "./managementPort.ts"
import { reloadCertificate } from "./reloadCertificate.ts"
import { reloadKeyring } from "./reloadKeyring.ts"
import { sighups } from "./sighups.ts"
import * as Tracing from "../wiring/Tracing.ts"

const tryIt = (url: string, account_id: string, management_key: string) => `
First start: created account ${account_id} with this management key, shown only once:

  ${management_key}

Create a credential:

  curl -i ${url}/api/v1/byok -H 'Authorization: Bearer ${management_key}' -H 'Content-Type: application/json' -d '{"provider":"openai","key":"sk-example-0123456789-AbCd","name":"My first key"}'

and read it back, with the id from the response:

  curl -i ${url}/api/v1/byok/ID -H 'Authorization: Bearer ${management_key}'
`

/**
 * Prints where it listens, as one object or for a person. An empty embedded database gets an account, whose key is shown
 * once; no other does.
 */
const welcome = ({ databaseUrl, tls }: Settings, json: boolean) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      if (address._tag === "UnixPathAddress") return
      const accounts = yield* Accounts
      const url = HttpServer.formatAddress(address).replace(/^http:/, Option.isSome(tls) ? "https:" : "http:")
      const where = `byok listens on ${url} as process ${process.pid}; its documentation is at ${url}/docs`
      if (!json) yield* Console.log(where)
      const first =
        Option.isNone(databaseUrl) && (yield* accounts.isEmpty)
          ? Option.some(yield* accounts.createAccount("first account"))
          : Option.none()
      const created = Option.map(first, ({ account_id, management_key, workspace_id }) => ({
        account_id,
        workspace_id,
        management_key: Redacted.value(management_key)
      }))
      if (json) {
        const { port } = address
        const listening = { address: new URL(url).hostname.replace(/^\[(.*)\]$/, "$1"), port, url, pid: process.pid }
        yield* Console.log(JSON.stringify({ ...listening, ...Option.getOrUndefined(created) }))
      } else if (Option.isSome(created)) {
        yield* Console.log(tryIt(url, created.value.account_id, created.value.management_key))
      }
    })
  )

const isLoopback = (host: string) => host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host)

const warnOfPlainHttp = ({ host, tls }: Settings) =>
  Option.isSome(tls) || isLoopback(host)
    ? Effect.void
    : Effect.logWarning(
        "HOST is not this machine alone and HTTP is plain, so keys can be read on the network: put a TLS terminator in front, or set TLS_CERT_FILE and TLS_KEY_FILE"
      )

const inUse = ({ host, port }: Settings) =>
  new InvalidSetting({
    message: `Port ${port} on ${host} is in use: set PORT, e.g. PORT=${port < 65535 ? port + 1 : 3000}.`
  })

const isInUse = ({ cause }: HttpServerError.ServeError) => Reflect.get(Object(cause), "code") === "EADDRINUSE"

/** The service. Layers stop top to bottom; SIGHUP reloads the keyring and the certificate. */
export const serve = (settings: Settings, signals: Queue.Dequeue<true>, json = false) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const signalsForCertificate = yield* sighups
      const read = Option.map(settings.tls, readCertificate)
      const certificate = Option.isSome(read) ? yield* read.value : undefined
      yield* warnOfPlainHttp(settings)
      const drain = yield* makeDrain(settings.drainDelay)
      const server = Server.layer(settings, certificate).pipe(
        Layer.catchTag("ServeError", (error) =>
          Layer.effectContext(Effect.fail(isInUse(error) ? inUse(settings) : error))
        )
      )
      const reloading = Option.isSome(read) ? reloadCertificate(signalsForCertificate, read.value) : Layer.empty
      return Layer.mergeAll(welcome(settings, json), reloading, drain.layer).pipe(
        Layer.provide(server),
        Layer.merge(reloadKeyring(signals)),
        Layer.provideMerge(Layer.provide(managementPort(settings), OfProcess.layer)),
        Layer.provide(MetricsExport.layer(settings)),
        Layer.provide(Layer.succeed(Draining, drain.isDraining)),
        Layer.provide(Byok.layerWith(settings)),
        Layer.provide(Tracing.layer(settings))
      )
    })
  )
