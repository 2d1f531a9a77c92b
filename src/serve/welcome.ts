import { Console, Effect, Layer, Option, Redacted } from "effect"
import { HttpServer } from "effect/http"
import { Accounts } from "../service/accounts/Accounts.ts"
import type { Settings } from "../wiring/Settings.ts"

const tryIt = (url: string, account_id: string, management_key: string) => `
First start: created account ${account_id} with this management key, shown only once:

  ${management_key}

Create a credential:

  curl -i ${url}/api/v1/byok -H 'Authorization: Bearer ${management_key}' -H 'Content-Type: application/json' -d '{"provider":"openai","key":"sk-example-0123456789-AbCd","name":"My first key"}'

and read it back, with the id from the response:

  curl -i ${url}/api/v1/byok/ID -H 'Authorization: Bearer ${management_key}'
`

/**
 * Prints where the service listens, as text or as one JSON object. An empty embedded database also gets its first
 * account, whose management key is printed this once.
 */
export const welcome = ({ databaseUrl, tls }: Settings, json: boolean) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      if (address._tag === "UnixPathAddress") return
      const accounts = yield* Accounts
      const url = HttpServer.formatAddress(address).replace(/^http:/, Option.isSome(tls) ? "https:" : "http:")
      const { pid } = process
      if (!json) {
        yield* Console.log(`byok listens on ${url} as process ${pid}; its documentation is at ${url}/docs`)
      }
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
