import { Context, Effect, Option } from "effect"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { Prefetched as Rows, PrefetchedRow } from "../port/ApiKeys.ts"
import type { Answer } from "../port/DatabaseFailure.ts"

/** Rows read together with the caller's API key, so that the request needs fewer statements. */
export const Prefetched = Context.Reference<Rows | undefined>("byok/Prefetched", {
  defaultValue: () => undefined
})

/** Makes a function that returns a credential from the prefetched rows, or calls `query` if they lack it. */
const makeFind =
  <A>(pick: (rows: Rows) => PrefetchedRow<A> | undefined) =>
  (
    account_id: AccountId,
    id: CredentialId,
    query: (ids: { readonly account_id: AccountId; readonly id: CredentialId }) => Answer<Option.Option<A>>
  ): Answer<Option.Option<A>> =>
    Effect.flatMap(Prefetched, (rows) => {
      const prefetched = rows?.account_id === account_id ? pick(rows) : undefined
      return prefetched?.id === id ? Effect.succeed(prefetched.row) : query({ account_id, id })
    })

export const findCredential = makeFind(({ credential }) => credential)
export const findSealed = makeFind(({ sealed }) => sealed)

/** Queries the default workspace unless it was prefetched. */
export const findDefaultWorkspace = (
  account_id: AccountId,
  query: (ids: { readonly account_id: AccountId }) => Answer<Option.Option<WorkspaceId>>
): Answer<Option.Option<WorkspaceId>> =>
  Effect.flatMap(Prefetched, (rows) =>
    rows?.account_id === account_id && rows.default_workspace_id !== undefined
      ? Effect.succeed(Option.fromNullishOr(rows.default_workspace_id))
      : query({ account_id })
  )

/** Returns whether the account has a leak mark, even one of a replaced key. Queries it unless it was prefetched. */
export const hasLeakMarks = (
  account_id: AccountId,
  query: (ids: { readonly account_id: AccountId }) => Answer<Option.Option<boolean>>
): Answer<boolean> =>
  Effect.flatMap(Prefetched, (rows) =>
    rows?.account_id === account_id && rows.has_marks !== undefined
      ? Effect.succeed(rows.has_marks)
      : Effect.map(query({ account_id }), Option.isSome)
  )
