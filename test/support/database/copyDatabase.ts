import { randomBytes } from "node:crypto"
import { Effect } from "effect"
import { inject } from "vitest"
import { eventually } from "../process/eventually.ts"
import { adminClient } from "./freshDatabase.ts"

const name = /^(postgres(?:ql)?:\/\/[^/?]*\/)([^?]*)/

/** The URL of a copy of a database as it is now, dropped when the scope closes. Waits until nobody uses the original. */
export const copyDatabase = Effect.fnUntraced(function* (url: string) {
  const original = name.exec(url)?.[2] ?? ""
  const copy = `byok_test_${randomBytes(6).toString("hex")}`
  const admin = yield* adminClient(inject("serverUrl"))
  const sessions = admin`SELECT 1 FROM pg_stat_activity WHERE datname = ${original}`
  yield* eventually(
    "nobody uses the database",
    Effect.map(Effect.orDie(sessions), ({ length }) => length === 0)
  )
  yield* Effect.acquireRelease(admin.unsafe(`CREATE DATABASE ${copy} TEMPLATE ${original}`), () =>
    Effect.orDie(admin.unsafe(`DROP DATABASE ${copy} WITH (FORCE)`))
  )
  return url.replace(name, `$1${copy}`)
})
