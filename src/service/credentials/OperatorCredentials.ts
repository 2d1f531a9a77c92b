import { Context, Data, Effect, Layer, Option } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { AccountRepository } from "../../port/AccountRepository.ts"
import {
  type CredentialOrder,
  CredentialRepository,
  type CredentialScan,
  type OrderMismatch,
  type ScannedCredential
} from "../../port/CredentialRepository.ts"
import { NotKnown } from "../accounts/Accounts.ts"

/** A new order does not name exactly the credentials that it is for. */
export class OrderRefused extends Data.TaggedError("OrderRefused")<OrderMismatch> {}

const pageSize = 1000

/** What an operator does with credentials from the command line, as far as it needs no keyring. */
export class OperatorCredentials extends Context.Service<OperatorCredentials>()("byok/OperatorCredentials", {
  make: Effect.gen(function* () {
    const accounts = yield* AccountRepository
    const repository = yield* CredentialRepository
    const unknown = new NotKnown({ kind: "credential" })

    /** Fails unless the account exists and, if one is named, has the workspace, deleted or not. */
    const requireAccount = Effect.fnUntraced(function* (account_id: AccountId, workspace_id?: WorkspaceId) {
      const workspaces = yield* accounts.listWorkspaces(account_id)
      if (workspaces.length === 0) return yield* new NotKnown({ kind: "account" })
      const hasWorkspace = workspace_id === undefined || workspaces.some((own) => own.workspace_id === workspace_id)
      return hasWorkspace ? workspaces : yield* new NotKnown({ kind: "workspace" })
    })

    return {
      requireAccount,

      /** Passes all credentials of an account to `write`, in order of workspace and creation, until it returns false. */
      list: Effect.fn("OperatorCredentials.list")(function* <E>(
        account_id: AccountId,
        filter: Omit<CredentialScan, "after" | "limit">,
        write: (page: ReadonlyArray<ScannedCredential>) => Effect.Effect<boolean, E>
      ) {
        yield* requireAccount(account_id, filter.workspace_id)
        let after: Credential | undefined
        for (;;) {
          const page = yield* repository.scan(account_id, { ...filter, after, limit: pageSize })
          if (page.length === 0 || !(yield* write(page))) return
          after = page.at(-1)
        }
      }),

      /** A credential with its revision and key version; its sealed key stays here. */
      show: Effect.fn("OperatorCredentials.show")(function* (account_id: AccountId, id: CredentialId) {
        const found = yield* repository.findSealed(account_id, id)
        if (Option.isNone(found)) return yield* unknown
        const { credential, key_version, revision, sealed, workspace_deleted } = found.value
        return {
          ...credential,
          revision,
          key_version,
          kek_id: sealed.kek_id,
          workspace_deleted
        }
      }),

      delete: Effect.fn("OperatorCredentials.delete")(function* (account_id: AccountId, id: CredentialId) {
        return (yield* repository.delete(account_id, id)) ? { id } : yield* unknown
      }),

      /** Gives the credentials of a workspace and provider the order of the ids, which must be all of them (L14). */
      reorder: Effect.fn("OperatorCredentials.reorder")(function* (account_id: AccountId, order: CredentialOrder) {
        yield* requireAccount(account_id, order.workspace_id)
        const mismatch = yield* repository.reorder(account_id, order)
        return Option.isNone(mismatch) ? order : yield* new OrderRefused(mismatch.value)
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
