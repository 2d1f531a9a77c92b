import { Context, Effect, Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { StoredCredential } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

interface Found<A> {
  readonly id: CredentialId
  /** None if the account has no such credential. */
  readonly found: Option.Option<A>
}

/** Rows that were read along with the API key, so a get takes one statement, a create and an update two. Adapters may ignore them. */
export interface Prefetched {
  readonly account_id: AccountId
  /** The account's default workspace, null if it is deleted; undefined if it was not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** Whether a key of the account is marked as leaked, or was when it was replaced; undefined if that was not read. */
  readonly has_marks?: boolean
  /** The credential that the request asks for. */
  readonly credential?: Found<Credential>
  /** The same with its sealed key. */
  readonly sealed?: Found<StoredCredential>
}

export const Prefetched = Context.Reference<Prefetched | undefined>("byok/Prefetched", {
  defaultValue: () => undefined
})

/** Asks for a credential of the account unless it was read with the caller's API key. */
const findIn =
  <A>(readAlong: (known: Prefetched) => Found<A> | undefined) =>
  (
    account_id: AccountId,
    id: CredentialId,
    ask: (of: { readonly account_id: AccountId; readonly id: CredentialId }) => Answer<Option.Option<A>>
  ): Answer<Option.Option<A>> =>
    Effect.flatMap(Prefetched, (known) => {
      const read = known?.account_id === account_id ? readAlong(known) : undefined
      return read?.id === id ? Effect.succeed(read.found) : ask({ account_id, id })
    })

export const findCredential = findIn(({ credential }) => credential)
export const findSealed = findIn(({ sealed }) => sealed)

/** Asks for the default workspace of the account unless it was read with the caller's API key. */
export const findDefaultWorkspace = (
  account_id: AccountId,
  ask: (of: { readonly account_id: AccountId }) => Answer<Option.Option<WorkspaceId>>
): Answer<Option.Option<WorkspaceId>> =>
  Effect.flatMap(Prefetched, (known) =>
    known?.account_id === account_id && known.default_workspace_id !== undefined
      ? Effect.succeed(Option.fromNullishOr(known.default_workspace_id))
      : ask({ account_id })
  )

/** Asks whether a key of the account is marked as leaked unless that was read with the caller's API key. */
export const findMarks = (
  account_id: AccountId,
  ask: (of: { readonly account_id: AccountId }) => Answer<Option.Option<boolean>>
): Answer<boolean> =>
  Effect.flatMap(Prefetched, (known) =>
    known?.account_id === account_id && known.has_marks !== undefined
      ? Effect.succeed(known.has_marks)
      : Effect.map(ask({ account_id }), Option.isSome)
  )
