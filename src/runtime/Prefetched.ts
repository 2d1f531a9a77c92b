import { Context, Effect, Option } from "effect"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { Prefetched as Rows, PrefetchedRow } from "../port/ApiKeys.ts"
import type { Answer } from "../port/DatabaseFailure.ts"

/** The rows read along with the caller's API key. */
export const Prefetched = Context.Reference<Rows | undefined>("byok/Prefetched", {
  defaultValue: () => undefined
})

/** Queries a credential unless it was prefetched. */
const findIn =
  <A>(readAlong: (known: Rows) => PrefetchedRow<A> | undefined) =>
  (
    account_id: AccountId,
    id: CredentialId,
    ask: (of: { readonly account_id: AccountId; readonly id: CredentialId }) => Answer<Option.Option<A>>
  ): Answer<Option.Option<A>> =>
    Effect.flatMap(Prefetched, (known) => {
      const read = known?.account_id === account_id ? readAlong(known) : undefined
      return read?.id === id ? Effect.succeed(read.row) : ask({ account_id, id })
    })

export const findCredential = findIn(({ credential }) => credential)
export const findSealed = findIn(({ sealed }) => sealed)

/** Queries the default workspace unless it was prefetched. */
export const findDefaultWorkspace = (
  account_id: AccountId,
  ask: (of: { readonly account_id: AccountId }) => Answer<Option.Option<WorkspaceId>>
): Answer<Option.Option<WorkspaceId>> =>
  Effect.flatMap(Prefetched, (known) =>
    known?.account_id === account_id && known.default_workspace_id !== undefined
      ? Effect.succeed(Option.fromNullishOr(known.default_workspace_id))
      : ask({ account_id })
  )

/** Queries whether a key of the account is marked as leaked unless that was prefetched. */
export const findMarks = (
  account_id: AccountId,
  ask: (of: { readonly account_id: AccountId }) => Answer<Option.Option<boolean>>
): Answer<boolean> =>
  Effect.flatMap(Prefetched, (known) =>
    known?.account_id === account_id && known.has_marks !== undefined
      ? Effect.succeed(known.has_marks)
      : Effect.map(ask({ account_id }), Option.isSome)
  )
