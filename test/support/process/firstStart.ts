import { Context, Effect, Layer } from "effect"
import { join } from "node:path"
import { endpointIn } from "../database/embedded.ts"
import { adminClient, migratedDatabase } from "../database/freshDatabase.ts"
import { ringOf } from "../keys/keyrings.ts"
import { createAccount, textIn } from "./CommandLine.ts"
import { eventually } from "./eventually.ts"
import { startService } from "./ServiceProcess.ts"
import { temporaryDirectory } from "./temporaryDirectory.ts"
import { PgClient } from "@effect/sql-pg"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"

/** Settings of a service on an embedded database that does not exist yet. */
export const newDirectory = Effect.map(temporaryDirectory, (directory) => ({ BYOK_DATA_DIR: join(directory, "data") }))

/** Starts the service for the first time, and answers with what it prints: the management key, the commands to paste. */
export const firstStart = Effect.fnUntraced(function* (settings: Record<string, string>) {
  const service = yield* startService(settings)
  yield* eventually("the welcome", () => service.stdout().includes("/ID -H"))
  const keys = new Set(service.stdout().match(/byok_mk_\w+/g) ?? [])
  const [key = ""] = keys
  const lines = service.stdout().split("\n")
  const [create = "", get = ""] = lines.map((line) => line.trim()).filter((line) => line.startsWith("curl "))
  return { ...service, key, keyCount: keys.size, create, get }
})

/** An embedded database whose first start is over, and the management key that it printed. */
export const startedBefore = Effect.gen(function* () {
  const settings = yield* newDirectory
  const { key } = yield* Effect.scoped(firstStart(settings))
  return { settings, key }
})

/** `startedBefore`, shared by the tests of a group. */
export class StartedBefore extends Context.Service<StartedBefore, Effect.Success<typeof startedBefore>>()(
  "byok/test/StartedBefore"
) {
  static readonly layer = Layer.effect(this, startedBefore)
}

/** Settings of a service on a database of its own with an account, for tests that mind neither embedding nor first starts. */
export class OnDatabase extends Context.Service<
  OnDatabase,
  {
    readonly settings: { readonly DATABASE_URL: string; readonly BYOK_KEYRING: string }
    readonly sql: SqlClient.SqlClient
    /** The account's management key. */
    readonly key: string
  }
>()("byok/test/OnDatabase") {
  static readonly layer = Layer.effect(
    this,
    Effect.gen(function* () {
      const DATABASE_URL = yield* migratedDatabase
      const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
      const key = textIn(yield* createAccount(settings), "management_key")
      return { settings, sql: yield* adminClient(DATABASE_URL), key }
    })
  )
}

/** A client of the embedded database of a data directory, beside the service that runs it. */
export const embeddedClient = ({ BYOK_DATA_DIR }: { readonly BYOK_DATA_DIR: string }) =>
  Effect.provide(PgClient.make({ ...endpointIn(BYOK_DATA_DIR) }), Reactivity.layer)
