import { Context, Duration, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountRepository, WorkspaceResolver } from "../../../src/port/AccountRepository.ts"
import type { ApiKeys } from "../../../src/port/ApiKeys.ts"
import type { CredentialPools } from "../../../src/port/CredentialPools.ts"
import type { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import type { CredentialUse } from "../../../src/port/CredentialUse.ts"
import type { KekRegistry } from "../../../src/port/KekRegistry.ts"
import type { LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import type { LinkRepository } from "../../../src/port/Links.ts"
import type { Parkings } from "../../../src/port/Parkings.ts"
import type { IdempotencyRecords } from "../../../src/port/IdempotencyRecords.ts"
import type { Database, DatabaseSettings } from "../../../src/sql/connection/Database.ts"
import * as Persistence from "../../../src/wiring/Persistence.ts"
import * as Memory from "../memory/Memory.ts"
import { adminClient, migratedDatabase, settingsFor } from "./freshDatabase.ts"

export type Ports =
  | AccountRepository
  | ApiKeys
  | CredentialPools
  | CredentialRepository
  | CredentialUse
  | KekRegistry
  | LeakedKeys
  | Parkings
  | IdempotencyRecords
  | WorkspaceResolver

/** The ports on a database, and its connections, with which tests change rows directly. */
export type StoredPorts = Ports | LinkRepository | Database

const onDatabase = (url: string, patience: Partial<DatabaseSettings> = {}) => {
  const { database, ...settings } = settingsFor(url)
  return Layer.fresh(Persistence.layer({ ...settings, database: { ...database, ...patience } }))
}

/** The implementation that also has the operations of operators. */
export const database: Layer.Layer<StoredPorts> = Layer.fresh(
  Layer.orDie(Layer.unwrap(Effect.map(migratedDatabase, (url) => onDatabase(url))))
)

/** Every implementation of the ports that store something; all have the same contract. */
export const stores: ReadonlyArray<readonly [name: string, store: Layer.Layer<Ports>]> = [
  ["in memory", Memory.layer],
  ["on PostgreSQL", database]
]

/** Every port on a database, as a process of its own has them. */
export const storesOn = (url: string, patience: Partial<DatabaseSettings> = {}) =>
  Effect.orDie(Layer.build(onDatabase(url, patience)))

/** Every port on a new database, and a client with which tests change rows directly. */
export const openStore = Effect.gen(function* () {
  const url = yield* migratedDatabase
  return { url, sql: yield* adminClient(url), ports: yield* storesOn(url) }
})

/** A store on a database of its own, and its ports, for one test or a group of them. */
export class Store extends Context.Service<Store, Effect.Success<typeof openStore>>()("byok/test/Store") {
  static readonly layer = Layer.fresh(
    Layer.unwrap(
      Effect.map(openStore, (store) => Layer.merge(Layer.succeedContext(store.ports), Layer.succeed(this, store)))
    )
  )
}

/** Longer timeouts for many concurrent changes on a busy machine. */
const patience = { statementTimeout: Duration.seconds(25), deadline: Duration.seconds(28) }

/** The ports of three instances over one database, which the tests of a group share: each takes a tenant of its own. */
export class ThreeInstances extends Context.Service<
  ThreeInstances,
  {
    readonly ports: readonly [Context.Context<Ports>, Context.Context<Ports>, Context.Context<Ports>]
    readonly sql: SqlClient.SqlClient
  }
>()("byok/test/ThreeInstances") {
  static readonly layer = Layer.effect(
    this,
    Effect.gen(function* () {
      const url = yield* migratedDatabase
      const instance = storesOn(url, patience)
      return { ports: [yield* instance, yield* instance, yield* instance] as const, sql: yield* adminClient(url) }
    })
  )
}
