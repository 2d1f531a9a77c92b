import { Context, Duration, Effect, Layer } from "effect"
import { AccountId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import * as AccountRepositoryLive from "../../../src/sql/accounts/AccountRepositoryLive.ts"
import * as DatabaseLive from "../../../src/sql/connection/Database.ts"
import * as CredentialRepositoryLive from "../../../src/sql/credentials/CredentialRepositoryLive.ts"
import * as KekRegistryLive from "../../../src/sql/keyring/KekRegistryLive.ts"
import { LinkRepository } from "../../../src/port/Links.ts"
import * as LinkRepositoryLive from "../../../src/sql/links/LinkRepositoryLive.ts"
import * as LeakedKeysLive from "../../../src/sql/credentials/LeakedKeysLive.ts"
import * as ParkingsLive from "../../../src/sql/routing/ParkingsLive.ts"
import { databaseProxy } from "./DatabaseProxy.ts"
import { adminClient, databaseSettings, migratedDatabase } from "./freshDatabase.ts"
import { defaultSettings } from "../service/defaultSettings.ts"

export const uuid = (n: number) => `01935f6a-0000-7000-8000-${String(n).padStart(12, "0")}`
export const account_id = AccountId.make(uuid(1))
export const workspace_id = WorkspaceId.make(uuid(2))

const writing = Layer.mergeAll(
  AccountRepositoryLive.layer,
  CredentialRepositoryLive.layer,
  KekRegistryLive.layer,
  LeakedKeysLive.layer,
  LinkRepositoryLive.layer,
  ParkingsLive.layer
)

/** The ports that write, behind a proxy that loses answers, and a client behind the service's back. */
export const openBehindProxy = Effect.gen(function* () {
  const url = yield* migratedDatabase
  const proxy = yield* databaseProxy(url)
  const settings = { ...databaseSettings, statementTimeout: Duration.seconds(25), deadline: Duration.seconds(28) }
  const database = DatabaseLive.layer(proxy.target, settings)
  const ports = yield* Layer.build(Layer.provide(writing, Layer.merge(database, defaultSettings)))
  return { ports, proxy, sql: yield* adminClient(url) }
})

/** Stores of credentials behind a proxy that loses answers, with one workspace, and a client behind the service's back. */
export const openLossyStore = Effect.gen(function* () {
  const { ports, proxy, sql: admin } = yield* openBehindProxy
  yield* admin`INSERT INTO accounts VALUES (${account_id}, 'n', now())`
  yield* admin`INSERT INTO workspaces VALUES (${workspace_id}, ${account_id}, 'n', true, now(), NULL)`
  return {
    admin,
    proxy,
    accounts: Context.get(ports, AccountRepository),
    links: Context.get(ports, LinkRepository),
    repository: Context.get(ports, CredentialRepository),
    /** The answer to a function that has stored a write. */
    stored: "SELECT 1"
  }
})
