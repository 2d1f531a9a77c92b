import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, WorkspaceId } from "../domain/Identifiers.ts"

/** Finds the workspace of a new credential: the requested one, else the account's default (section 4.1, D6, D43). */
export class WorkspaceResolver extends Context.Service<
  WorkspaceResolver,
  {
    /** None if the workspace is unknown, another account's or deleted. */
    readonly resolve: (
      account_id: AccountId,
      requested: WorkspaceId | undefined
    ) => Effect.Effect<Option.Option<WorkspaceId>, ServiceUnavailable>
  }
>()("byok/WorkspaceResolver") {}
