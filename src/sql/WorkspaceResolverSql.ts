import { Effect, Layer, Option, Schema } from "effect"
import { AccountId } from "../domain/AccountId.ts"
import { WorkspaceId } from "../domain/WorkspaceId.ts"
import { Prefetched } from "../port/Prefetched.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"
import { Database } from "./connection/Database.ts"
import { firstRowOf, rowsOf } from "./rows.ts"

interface Wanted {
  readonly account_id: AccountId
  readonly requested: WorkspaceId | undefined
}

export const layer = Layer.effect(
  WorkspaceResolver,
  Effect.gen(function* () {
    const { gather, sql } = (yield* Database).reads
    const firstWorkspace = firstRowOf(Schema.Struct({ id: WorkspaceId }))
    const workspaces = rowsOf(Schema.Struct({ id: WorkspaceId, account_id: AccountId, is_default: Schema.Boolean }))

    const resolve = gather<Wanted, Option.Option<WorkspaceId>>({
      one: ({ account_id, requested }) =>
        Effect.map(
          firstWorkspace(sql`
            SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL
            AND ${requested === undefined ? sql`is_default` : sql`id = ${requested}`}`),
          Option.map(({ id }) => id)
        ),
      many: (wanted) => {
        const accounts = Array.from(new Set(wanted.map(({ account_id }) => account_id)))
        const ids = wanted.flatMap(({ requested }) => requested ?? [])
        const found = workspaces(sql`
          SELECT id, account_id, is_default FROM workspaces
          WHERE account_id = ANY(${accounts}::uuid[]) AND deleted_at IS NULL
          AND (is_default OR id = ANY(${ids}::uuid[]))`)
        return Effect.map(found, (rows) => {
          const defaults = new Map(rows.filter((row) => row.is_default).map((row) => [row.account_id, row.id]))
          const named = new Set(rows.map((row) => `${row.account_id} ${row.id}`))
          return wanted.map(({ account_id, requested }) =>
            requested === undefined
              ? Option.fromUndefinedOr(defaults.get(account_id))
              : named.has(`${account_id} ${requested}`)
                ? Option.some(requested)
                : Option.none()
          )
        })
      }
    })
    return {
      resolve: (account_id, requested) =>
        Effect.flatMap(Prefetched, (known) =>
          requested === undefined && known?.account_id === account_id && known.default_workspace_id !== undefined
            ? Effect.succeed(Option.fromNullishOr(known.default_workspace_id))
            : resolve({ account_id, requested })
        )
    }
  })
)
