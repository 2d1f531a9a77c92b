import cluster from "node:cluster"
import { Console, Effect, Layer, Option, type Queue, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../Byok.ts"
import * as Server from "../http/Server.ts"
import { reloadKeyring } from "./reloadKeyring.ts"
import { Accounts } from "../service/Accounts.ts"
import type { Settings } from "../wiring/Settings.ts"
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

/** Prints where it listens. An empty embedded database gets an account, whose key is shown once; no other does. */
const welcome = ({ databaseUrl }: Settings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      if (!isFirst()) return
      const { address } = yield* HttpServer.HttpServer
      const accounts = yield* Accounts
      const url = HttpServer.formatAddress(address)
      const pid = cluster.isWorker ? process.ppid : process.pid
      yield* Console.log(`byok listens on ${url} as process ${pid}; its documentation is at ${url}/docs`)
      if (Option.isSome(databaseUrl) || !(yield* accounts.isEmpty)) return
      const { account_id, management_key } = yield* accounts.createAccount("first account")
      yield* Console.log(tryIt(url, account_id, Redacted.value(management_key)))
    })
  )

/** The service. Layers stop top to bottom; SIGHUP reloads the keyring. */
export const serve = (settings: Settings, sighups: Queue.Dequeue<true>) =>
  welcome(settings).pipe(
    Layer.provide(Server.layer(settings)),
    Layer.merge(reloadKeyring(sighups)),
    Layer.provide(Byok.layerWith(settings)),
    Layer.provide(Tracing.layer(settings))
  )
