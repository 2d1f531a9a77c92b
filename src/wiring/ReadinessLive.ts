import { Effect, Layer, Option } from "effect"
import { KeyEncryption } from "../crypto/KeyEncryption.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { Readiness } from "../port/Readiness.ts"
import { Database } from "../sql/connection/Database.ts"
import { isReadOnly } from "../sql/connection/isReadOnly.ts"
import { acknowledgesEarly } from "../sql/connection/Durability.ts"
import { current, latest } from "../sql/Migrations.ts"

/**
 * Ready when the database answers, has this build's schema and commits to disk, and the keyring has every key that
 * credentials name and a primary key that may seal.
 */
export const layer = Layer.effect(
  Readiness,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const { keks, primary } = yield* KeyEncryption
    const registry = yield* KekRegistry
    const schema = Effect.map(
      reads.ask(current(reads.sql)),
      Option.match({
        onNone: () => ["the database has not been migrated"],
        onSome: (id) => (id < latest ? ["the database lacks migrations that this version needs"] : [])
      })
    )
    const writable = Effect.map(writes.ask(isReadOnly(writes.sql)), (readOnly) =>
      readOnly ? ["the database is read-only: nothing can be stored"] : []
    )
    const keys = Effect.suspend(() => registry.missing(keks().map(({ kek_id }) => kek_id))).pipe(
      Effect.map((missing) =>
        missing.map(
          ({ credentials, kek_id }) =>
            `key ${kek_id} is missing from the keyring; credentials sealed with it: ${credentials}`
        )
      )
    )
    const durability = Effect.map(reads.ask(acknowledgesEarly(reads.sql)), (early) =>
      early ? ["synchronous_commit is off: a database crash would lose acknowledged writes"] : []
    )
    const sealing = Effect.suspend(() => registry.known([primary() ?? ""])).pipe(
      Effect.map((known) =>
        known
          .filter(({ retired }) => retired)
          .map(({ kek_id }) => `key ${kek_id} is retired but still first in the keyring: nothing can be sealed`)
      )
    )
    const problems = Effect.map(Effect.all([schema, writable, durability, keys, sealing]), (found) => found.flat())
    return {
      problems: Effect.catchCause(problems, (cause) =>
        Effect.as(Effect.logWarning("Not ready", cause), ["the database does not answer"])
      )
    }
  })
)
