import { Effect, Layer, Option, Result } from "effect"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { ifAllowed } from "../../domain/Principal.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { Cipher, SealingRefused, UnknownKeyId } from "../../port/Cipher.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import { Credentials, type ListRequest, OrderRefused, type OrderRequest } from "../../port/Credentials.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { WorkspaceResolver } from "../../port/AccountRepository.ts"
import { makeCreate } from "./makeCreate.ts"
import { makeUpdate } from "./makeUpdate.ts"
import { workspaceIssue } from "./Ownership.ts"

/** Makes the operations on credentials of the current principal's account. Each ends at the request's deadline. */
export const make = Effect.gen(function* () {
  const repository = yield* CredentialRepository
  const workspaces = yield* WorkspaceResolver
  const create = yield* makeCreate
  const update = yield* makeUpdate
  const withinDeadline = withDeadline(yield* RequestTimeout)

  const list = Effect.fnUntraced(function* (account_id: AccountId, { workspace_id, ...page }: ListRequest) {
    const workspace = yield* workspaces.resolve(account_id, workspace_id)
    if (Option.isNone(workspace)) return yield* InvalidParams.of(workspaceIssue(workspace_id))
    return yield* repository.list(account_id, { ...page, workspace_id: workspace.value })
  })

  const order = Effect.fnUntraced(function* (account_id: AccountId, { ids, provider, workspace_id }: OrderRequest) {
    const workspace = yield* workspaces.resolve(account_id, workspace_id)
    if (Option.isNone(workspace)) return yield* InvalidParams.of(workspaceIssue(workspace_id))
    const newOrder = { workspace_id: workspace.value, provider, ids }
    const mismatch = yield* repository.reorder(account_id, newOrder)
    return Option.isNone(mismatch) ? newOrder : yield* new OrderRefused(mismatch.value)
  })

  return Credentials.of({
    create: (input, idempotency_key) =>
      withinDeadline(ifAllowed("create", (account_id) => create(account_id, input, idempotency_key))),
    get: (id) =>
      withinDeadline(
        ifAllowed("get", (account_id) =>
          Effect.flatMap(
            repository.findById(account_id, id),
            Option.match({ onNone: () => new NotFound(), onSome: Effect.succeed })
          )
        )
      ),
    list: (request) => withinDeadline(ifAllowed("list", (account_id) => list(account_id, request))),
    update: (id, changes) => withinDeadline(ifAllowed("update", (account_id) => update(account_id, id, changes))),
    order: (request) => withinDeadline(ifAllowed("order", (account_id) => order(account_id, request))),
    delete: (id) =>
      withinDeadline(
        ifAllowed("delete", (account_id) =>
          Effect.flatMap(repository.delete(account_id, id), (existed) => (existed ? Effect.void : new NotFound()))
        )
      )
  })
})

export const layer = Layer.effect(Credentials, make)

const notInKeyring = ({ kek_id }: SealedKey) => Result.fail(new UnknownKeyId({ kek_id }))

/** The operations without a keyring: those that seal or open a key fail. */
export const layerWithoutKeyring = Layer.provide(
  layer,
  Layer.succeed(Cipher, {
    seal: () => Effect.fail(new SealingRefused({ reason: "there is no keyring" })),
    read: notInKeyring,
    verify: notInKeyring
  })
)
