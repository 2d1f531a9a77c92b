import { Context, Effect, Layer, Option } from "effect"
import { type Actor, CurrentActor, CurrentCaller } from "../../domain/CurrentCaller.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import { Credentials, type ListRequest, type OrderRequest } from "../../port/Credentials.ts"
import { RequestTimeout, withDeadline } from "../../port/Deadline.ts"
import { WorkspaceResolver } from "../../port/AccountRepository.ts"
import { makeCreate } from "./makeCreate.ts"
import { makeUpdate } from "./makeUpdate.ts"
import { orderIssues, workspaceIssue } from "./Ownership.ts"

/** A caller without an API key is the gateway in process, unless somebody else is known to act. */
const actorOf = ({ api_key_hash }: CurrentCaller["Service"], current: Actor): Actor => {
  if (api_key_hash !== undefined) return { kind: "api_key", api_key_hash }
  return current.kind === "service" ? { kind: "in_process" } : current
}

export const make = Effect.gen(function* () {
  const repository = yield* CredentialRepository
  const workspaces = yield* WorkspaceResolver
  const create = yield* makeCreate
  const update = yield* makeUpdate
  const inTime = withDeadline(yield* RequestTimeout)

  const asCaller = <A, E, R>(act: (account_id: AccountId) => Effect.Effect<A, E, R>) =>
    Effect.contextWith((context: Context.Context<CurrentCaller | R>) => {
      const caller = Context.get(context, CurrentCaller)
      const actor = actorOf(caller, Context.get(context, CurrentActor))
      return inTime(Effect.provideService(act(caller.account_id), CurrentActor, actor))
    })

  const list = Effect.fnUntraced(function* (account_id: AccountId, { workspace_id, ...page }: ListRequest) {
    const workspace = yield* workspaces.resolve(account_id, workspace_id)
    if (Option.isNone(workspace)) return yield* InvalidParams.of(workspaceIssue(workspace_id))
    return yield* repository.list(account_id, { ...page, workspace_id: workspace.value })
  })

  const order = Effect.fnUntraced(function* (account_id: AccountId, { ids, provider, workspace_id }: OrderRequest) {
    const workspace = yield* workspaces.resolve(account_id, workspace_id)
    if (Option.isNone(workspace)) return yield* InvalidParams.of(workspaceIssue(workspace_id))
    const ordered = { workspace_id: workspace.value, provider, ids }
    const mismatch = yield* repository.reorder(account_id, ordered)
    return Option.isNone(mismatch) ? ordered : yield* InvalidParams.of(...orderIssues(ids, mismatch.value))
  })

  return Credentials.of({
    create: (input, idempotency_key) => asCaller((account_id) => create(account_id, input, idempotency_key)),
    get: (id) =>
      asCaller((account_id) =>
        Effect.flatMap(
          repository.findById(account_id, id),
          Option.match({ onNone: () => new NotFound(), onSome: Effect.succeed })
        )
      ),
    list: (request) => asCaller((account_id) => list(account_id, request)),
    update: (id, changes) => asCaller((account_id) => update(account_id, id, changes)),
    order: (request) => asCaller((account_id) => order(account_id, request)),
    delete: (id) =>
      asCaller((account_id) =>
        Effect.flatMap(repository.delete(account_id, id), (existed) => (existed ? Effect.void : new NotFound()))
      )
  })
})

export const layer = Layer.effect(Credentials, make)
