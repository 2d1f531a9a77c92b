import { assert } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, type Scope } from "effect"
import { HttpServer } from "effect/http"
import type { SqlClient } from "effect/sql"
import * as Byok from "../../../src/wiring/Byok.ts"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import * as Server from "../../../src/http/Server.ts"
import * as LinksServer from "../../../src/links/LinksServer.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import type { Settings } from "../../../src/wiring/Settings.ts"
import { adminClient, migratedDatabase, settingsFor } from "../database/freshDatabase.ts"
import { Recording } from "../process/Recording.ts"
import { bearer, operationsOf, type Request, send } from "./HttpProbe.ts"
import type { Answer } from "./RawConnection.ts"
import { neverDraining } from "../service/defaultSettings.ts"

/** An account as a customer has it: ids, keys in the clear, and the operations under its management key. */
export interface Tenant extends ReturnType<typeof operationsOf> {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly management_key: string
  readonly management_key_hash: ApiKeyHash
  /** Any request under the management key. */
  readonly send: (request: Request) => Effect.Effect<Answer>
  /** Issues an API key that is no management key. */
  readonly ordinaryKey: Effect.Effect<string>
}

/** Everything behind HTTP, for tests to reach directly. */
export type Parts = Layer.Success<ReturnType<typeof Byok.layerWith>>

/** Changes to the real service: other settings, or the parts of a deliberately broken build. */
export interface Changes {
  readonly settings?: (settings: Settings) => Settings
  readonly parts?: Effect.Effect<Context.Context<Parts>, never, Parts | Scope.Scope>
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
    /** A tenant shared by tests that ignore each other's credentials. */
    readonly tenant: Effect.Effect<Tenant>
    readonly rowCount: Effect.Effect<number>
  }
>()("byok/test/TestService") {
  static readonly layerWith = ({
    parts = Effect.context<Parts>(),
    settings: change = (settings) => settings
  }: Changes) =>
    Layer.unwrap(
      Effect.gen(function* () {
        const databaseUrl = yield* migratedDatabase
        const settings = change(settingsFor(databaseUrl))
        const service = Layer.effect(
          TestService,
          Effect.gen(function* () {
            const { address } = yield* HttpServer.HttpServer
            const url = HttpServer.formatAddress(address)
            const accounts = yield* Accounts
            const sql = yield* adminClient(databaseUrl)
            const newTenant = accounts.createAccount("a test account").pipe(
              Effect.map((made): Tenant => {
                const management_key = Redacted.value(made.management_key)
                return {
                  ...made,
                  management_key,
                  ...operationsOf(url, management_key),
                  send: (request) =>
                    send(url, { ...request, headers: [bearer(management_key), ...(request.headers ?? [])] }),
                  ordinaryKey: accounts.issueApiKey(made.account_id, { name: "ordinary", role: "ordinary" }).pipe(
                    Effect.map(({ key }) => Redacted.value(key)),
                    Effect.orDie
                  )
                }
              }),
              Effect.orDie
            )
            return {
              url,
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
          Layer.provideMerge(Server.layer(settings, undefined, LinksServer.layer)),
          Layer.provideMerge(neverDraining),
          Layer.provideMerge(Layer.effectContext(parts)),
          Layer.provideMerge(Byok.layerWith(settings))
        )
      })
    )

  static readonly layer = this.layerWith({})

  /** The service with other settings of the database. */
  static readonly withDatabase = (changes: Partial<Settings["database"]>) =>
    this.layerWith({ settings: (settings) => ({ ...settings, database: { ...settings.database, ...changes } }) })

  /** The service, and a recording of all that it logs and traces. */
  static readonly recordedWith = (changes: Changes) => Layer.provideMerge(this.layerWith(changes), Recording.layer)

  /** A tenant shared by tests that ignore each other's credentials. */
  static readonly tenant = Effect.flatMap(this, ({ tenant }) => tenant)

  /** A tenant with no credentials yet. */
  static readonly newTenant = Effect.flatMap(this, ({ newTenant }) => newTenant)

  /** Sends a request without a key. */
  static readonly send = (request: Request) => Effect.flatMap(this, ({ url }) => send(url, request))

  /** Runs an effect, and requires that it adds exactly `more` credentials. */
  static readonly storing = <A, E, R>(more: number, effect: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      const { rowCount } = yield* TestService
      const before = yield* rowCount
      const found = yield* effect
      assert.strictEqual(yield* rowCount, before + more)
      return found
    })
}

/** Renames a table while the effect runs, and restores it afterwards. */
export const withoutTable = <A, E, R>(table: string, effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(TestService, ({ sql }) => {
    const rename = (from: string, to: string) => Effect.orDie(sql.unsafe(`ALTER TABLE ${from} RENAME TO ${to}`))
    return Effect.acquireUseRelease(
      rename(table, `${table}_gone`),
      () => effect,
      () => rename(`${table}_gone`, table)
    )
  })
