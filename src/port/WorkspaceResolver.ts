import { Context, type Option } from "effect"
import type { AccountId, WorkspaceId } from "../domain/Identifiers.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Finds the workspace of a new credential: the requested one, else the account's default (section 4.1, D6, D43). */
export class WorkspaceResolver extends Context.Service<
  WorkspaceResolver,
  {
    /** None if the workspace is unknown, another account's or deleted. */
    readonly resolve: (account_id: AccountId, requested: WorkspaceId | undefined) => Answer<Option.Option<WorkspaceId>>
  }
>()("byok/WorkspaceResolver") {}
