import { Console, Effect, Layer, Option, Redacted } from "effect"
import { HttpServer } from "effect/http"
import { Accounts } from "../service/accounts/Accounts.ts"
import { Links } from "../service/links/Links.ts"
import { localUrlOf, type Settings } from "../wiring/Settings.ts"

/** What to do after the first start, with commands to paste. */
const firstSteps = (url: string, account_id: string, management_key: string, manage_url: string) => `
First start: created account ${account_id} with this management key, shown only once:

  ${management_key}

Add a provider key in a browser, with a link that ends in a day and works in the first tab that opens it:

  ${manage_url}

or create a credential from here:

  curl -i ${url}/api/v1/byok -H 'Authorization: Bearer ${management_key}' -H 'Content-Type: application/json' -d '{"provider":"openai","key":"sk-example-0123456789-AbCd","name":"My first key"}'

and read it back, with the id from the response:

  curl -i ${url}/api/v1/byok/ID -H 'Authorization: Bearer ${management_key}'
`

/** Prints the service's address. In an empty embedded database, also creates and prints the first account. */
export const welcome = (settings: Settings, json: boolean) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      if (address._tag === "UnixPathAddress") return
      const { databaseUrl, tls } = settings
      const [accounts, links] = [yield* Accounts, yield* Links]
      const url = HttpServer.formatAddress(address).replace(/^http:/, Option.isSome(tls) ? "https:" : "http:")
      const { pid } = process
      if (!json) {
        const local = localUrlOf(settings, address.port)
        yield* Console.log(`byok listens on ${url} as process ${pid}; its documentation is at ${local}/docs`)
      }
      const firstAccount = Effect.gen(function* () {
        const { account_id, management_key, workspace_id } = yield* accounts.createAccount("first account")
        const at = Option.getOrElse(settings.publicUrl, () => localUrlOf(settings, address.port))
        const { url: manageUrl } = yield* links.create(account_id, { purpose: "manage", expires_in: 86_400 }, at)
        return {
          account_id,
          workspace_id,
          management_key: Redacted.value(management_key),
          manage_url: Redacted.value(manageUrl)
        }
      })
      const created =
        Option.isNone(databaseUrl) && (yield* accounts.isEmpty)
          ? Option.some(yield* Effect.orDie(firstAccount))
          : Option.none()
      if (json) {
        const { port } = address
        const listening = { address: new URL(url).hostname.replace(/^\[(.*)\]$/, "$1"), port, url, pid }
        yield* Console.log(JSON.stringify({ ...listening, ...Option.getOrUndefined(created) }))
      } else if (Option.isSome(created)) {
        const { account_id, manage_url, management_key } = created.value
        yield* Console.log(firstSteps(url, account_id, management_key, manage_url))
      }
    })
  )
