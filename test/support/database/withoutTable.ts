import { Effect } from "effect"
import { TestService } from "../http/TestService.ts"

/** Takes a table away while the effect runs, and brings it back however that ends. */
export const withoutTable = <A, E, R>(table: string, effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(TestService, ({ sql }) => {
    const rename = (from: string, to: string) => Effect.orDie(sql.unsafe(`ALTER TABLE ${from} RENAME TO ${to}`))
    return Effect.acquireUseRelease(
      rename(table, `${table}_gone`),
      () => effect,
      () => rename(`${table}_gone`, table)
    )
  })
