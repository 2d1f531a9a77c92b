import { Context, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import type { SqlClient } from "effect/sql"
import * as Byok from "../../../src/Byok.ts"
import type { AccountId } from "../../../src/domain/AccountId.ts"
import type { ApiKeyHash } from "../../../src/domain/ApiKeyHash.ts"
import type { WorkspaceId } from "../../../src/domain/WorkspaceId.ts"
import * as Server from "../../../src/http/Server.ts"
import { Accounts } from "../../../src/service/Accounts.ts"
import type { Settings } from "../../../src/wiring/Settings.ts"
import { adminClient, freshDatabase, settingsFor } from "../database/freshDatabase.ts"

/** An account as a customer has it: ids, and keys in the clear. */
export interface Tenant {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly management_key: string
  readonly management_key_hash: ApiKeyHash
}

/** The real service on a real database of its own, listening on a port of its own. */
export class TestService extends Context.Service<
  TestService,
  {
    /** `http://127.0.0.1:port` */
    readonly url: string
    readonly databaseUrl: string
    readonly sql: SqlClient.SqlClient
    readonly newTenant: Effect.Effect<Tenant>
    /** One tenant, for tests that do not mind each other's credentials. */
    readonly tenant: Effect.Effect<Tenant>
    readonly rowCount: Effect.Effect<number>
  }
>()("byok/test/TestService") {}

/** Everything beside HTTP, which no HTTP path reaches and tests do. */
export type Parts = Layer.Success<ReturnType<typeof Byok.layerWith>>

/** What differs from the real service: its settings, or the parts of a deliberately broken build. */
export interface Changes {
  readonly settings?: (settings: Settings) => Settings
  readonly parts?: Effect.Effect<Context.Context<Parts>, never, Parts>
}

export const layerWith = ({ parts = Effect.context<Parts>(), settings: change = (settings) => settings }: Changes) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const databaseUrl = yield* freshDatabase
      const settings = change(settingsFor(databaseUrl))
      const service = Layer.effect(
        TestService,
        Effect.gen(function* () {
          const { address } = yield* HttpServer.HttpServer
          const accounts = yield* Accounts
          const sql = yield* adminClient(databaseUrl)
          const newTenant = accounts.createAccount("a test account").pipe(
            Effect.map((made) => ({ ...made, management_key: Redacted.value(made.management_key) })),
            Effect.orDie
          )
          return {
            url: HttpServer.formatAddress(address),
            databaseUrl,
            sql,
            newTenant,
            tenant: yield* Effect.cached(newTenant),
            rowCount: sql<{ n: number }>`SELECT count(*)::int AS n FROM credentials`.pipe(
              Effect.map((rows) => rows[0]?.n ?? -1),
              Effect.orDie
            )
          }
        })
      )
      return service.pipe(
        Layer.provideMerge(Server.layer(settings)),
        Layer.provideMerge(Layer.effectContext(parts)),
        Layer.provideMerge(Byok.layerWith(settings))
      )
    })
  )

export const layer = layerWith({})
