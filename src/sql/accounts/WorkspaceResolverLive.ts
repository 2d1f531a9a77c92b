import { Effect, Layer } from "effect"
import type { WorkspaceId } from "../../domain/Identifiers.ts"
import { findDefaultWorkspace } from "../../port/Prefetched.ts"
import { WorkspaceResolver } from "../../port/WorkspaceResolver.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/makeLookUp.ts"

export const layer = Layer.effect(
  WorkspaceResolver,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { sql } = reads
    const operation = "workspaces.resolve"
    const read = ({ id }: { readonly id: WorkspaceId }) => id
    const findDefault = makeLookUp(reads, {
      operation,
      by: { account_id: "uuid" },
      select: ({ account_id }) => sql<{ readonly id: WorkspaceId }>`
        SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL AND is_default`,
      read
    })
    const find = makeLookUp(reads, {
      operation,
      by: { account_id: "uuid", id: "uuid" },
      select: ({ account_id, id }) => sql<{ readonly id: WorkspaceId }>`
        SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL AND id = ${id}`,
      read
    })
    return {
      resolve: (account_id, requested) =>
        requested === undefined ? findDefaultWorkspace(account_id, findDefault) : find({ account_id, id: requested })
    }
  })
)
