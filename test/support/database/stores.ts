import { Context, Effect, Layer } from "effect"
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
import type { Database } from "../../../src/sql/connection/Database.ts"
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

const onDatabase = (url: string) => Layer.fresh(Persistence.layer(settingsFor(url)))

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
export const storesOn = (url: string) => Effect.orDie(Layer.build(onDatabase(url)))

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
