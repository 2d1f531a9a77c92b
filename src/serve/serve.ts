import cluster from "node:cluster"
import { Console, Effect, Layer, Option, type Queue, Redacted } from "effect"
import { HttpServer, type HttpServerError } from "effect/http"
import * as Byok from "../Byok.ts"
import * as Server from "../http/Server.ts"
import { Accounts } from "../service/Accounts.ts"
import { InvalidSetting, type Settings } from "../wiring/Settings.ts"
import { reloadKeyring } from "./reloadKeyring.ts"
import * as Tracing from "../wiring/Tracing.ts"

const tryIt = (url: string, account_id: string, management_key: string) => `
First start: created account ${account_id} with this management key, shown only once:

  ${management_key}

Create a credential:

  curl -i ${url}/api/v1/byok -H 'Authorization: Bearer ${management_key}' -H 'Content-Type: application/json' -d '{"provider":"openai","key":"sk-example-0123456789-AbCd","name":"My first key"}'

and read it back, with the id from the response:

  curl -i ${url}/api/v1/byok/ID -H 'Authorization: Bearer ${management_key}'
`

/** Of several processes, only the first prints the welcome. */
const isFirst = () => cluster.worker === undefined || cluster.worker.id === 1

/**
 * Prints where it listens, as one object or for a person. An empty embedded database gets an account, whose key is shown
 * once; no other does.
 */
const welcome = ({ databaseUrl }: Settings, json: boolean) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      if (!isFirst()) return
      const { address } = yield* HttpServer.HttpServer
      if (address._tag === "UnixPathAddress") return
      const accounts = yield* Accounts
      const url = HttpServer.formatAddress(address)
      const pid = cluster.isWorker ? process.ppid : process.pid
      const where = `byok listens on ${url} as process ${pid}; its documentation is at ${url}/docs`
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
        const listening = { address: new URL(url).hostname.replace(/^\[(.*)\]$/, "$1"), port, url, pid }
        yield* Console.log(JSON.stringify({ ...listening, ...Option.getOrUndefined(created) }))
      } else if (Option.isSome(created)) {
        yield* Console.log(tryIt(url, created.value.account_id, created.value.management_key))
      }
    })
  )

const inUse = ({ host, port }: Settings) =>
  new InvalidSetting({
    message: `Port ${port} on ${host} is in use: set PORT, e.g. PORT=${port < 65535 ? port + 1 : 3000}.`
  })

const isInUse = ({ cause }: HttpServerError.ServeError) => Reflect.get(Object(cause), "code") === "EADDRINUSE"

/** The service. Layers stop top to bottom; SIGHUP reloads the keyring. */
export const serve = (settings: Settings, sighups: Queue.Dequeue<true>, json = false) => {
  const server = Server.layer(settings).pipe(
    Layer.catchTag("ServeError", (error) => Layer.effectContext(Effect.fail(isInUse(error) ? inUse(settings) : error)))
  )
  return welcome(settings, json).pipe(
    Layer.provide(server),
    Layer.merge(reloadKeyring(sighups)),
    Layer.provide(Byok.layerWith(settings)),
    Layer.provide(Tracing.layer(settings))
  )
}
