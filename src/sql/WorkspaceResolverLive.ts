import { Effect, Layer, Option } from "effect"
import type { AccountId, WorkspaceId } from "../domain/Identifiers.ts"
import { Prefetched } from "../port/ApiKeys.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"
import { Database } from "./connection/Database.ts"

interface Wanted {
  readonly account_id: AccountId
  readonly requested: WorkspaceId | undefined
}

export const layer = Layer.effect(
  WorkspaceResolver,
  Effect.gen(function* () {
    const { batch, sql } = (yield* Database).reads

    const resolve = batch<Wanted, Option.Option<WorkspaceId>>({
      operation: "workspaces.resolve",
      one: ({ account_id, requested }) =>
        Effect.map(
          sql<{ id: WorkspaceId }>`
            SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL
            AND ${requested === undefined ? sql`is_default` : sql`id = ${requested}`}`,
          ([row]) => Option.map(Option.fromUndefinedOr(row), ({ id }) => id)
        ),
      many: (wanted) => {
        const naming = wanted.filter(({ requested }) => requested !== undefined)
        const others = wanted.filter(({ requested }) => requested === undefined)
        const found = sql<{ id: WorkspaceId; account_id: AccountId; is_default: boolean }>`
          SELECT id, account_id, is_default FROM workspaces
          WHERE account_id = ANY(${others.map(({ account_id }) => account_id)}::uuid[])
          AND is_default AND deleted_at IS NULL
          UNION ALL
          SELECT found.* FROM unnest(
            ${naming.map(({ account_id }) => account_id)}::uuid[], ${naming.map(({ requested }) => requested)}::uuid[]
          ) AS wanted (account_id, id), LATERAL (
            SELECT id, account_id, is_default FROM workspaces
            WHERE account_id = wanted.account_id AND id = wanted.id AND deleted_at IS NULL OFFSET 0
          ) AS found`
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
