import { Effect, Layer, Option } from "effect"
import { type Actor, CurrentActor, CurrentCaller } from "../domain/CurrentCaller.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import type { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import type { AccountId } from "../domain/Identifiers.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { CredentialRepository, WorkspaceGone } from "../port/CredentialRepository.ts"
import { Credentials } from "../port/Credentials.ts"
import { RequestTimeout, withDeadline } from "../port/Deadline.ts"
import { IdempotencyRecords } from "../port/IdempotencyRecords.ts"
import { makeListing } from "./makeListing.ts"
import { makePreparation } from "./makePreparation.ts"
import { idempotencyRecordOf, makeFindIdempotentResult } from "./findIdempotentResult.ts"
import { makeUpdate } from "./makeUpdate.ts"
import { workspaceIssue } from "./workspaceIssue.ts"

/** A caller without an API key is the gateway, in process, unless an operator's command is what runs. */
const actorOf = ({ api_key_hash }: CurrentCaller["Service"], current: Actor): Actor => {
  if (api_key_hash !== undefined) return { kind: "api_key", api_key_hash }
  return current.kind === "cli" ? current : { kind: "in_process" }
}

/** A workspace deleted since the request was checked is refused like one deleted before. */
const inWorkspace = <A, E>({ workspace_id }: NewCredential, stored: Effect.Effect<A, E | WorkspaceGone>) =>
  Effect.catchIf(
    stored,
    (error): error is Extract<E | WorkspaceGone, WorkspaceGone> => error instanceof WorkspaceGone,
    () => Effect.fail(InvalidParams.of(workspaceIssue(workspace_id !== undefined)))
  )

export const make = Effect.gen(function* () {
  const records = yield* IdempotencyRecords
  const repository = yield* CredentialRepository
  const list = yield* makeListing
  const prepare = yield* makePreparation
  const findIdempotentResult = yield* makeFindIdempotentResult
  const update = yield* makeUpdate
  const inTime = withDeadline(yield* RequestTimeout)

  const asCaller = <A, E, R>(act: (account_id: AccountId) => Effect.Effect<A, E, R>) =>
    Effect.flatMap(Effect.all([CurrentCaller, CurrentActor]), ([caller, current]) =>
      inTime(Effect.provideService(act(caller.account_id), CurrentActor, actorOf(caller, current)))
    )

  const create = Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential) {
    const { credential, sealed } = yield* prepare(account_id, input)
    return yield* inWorkspace(input, repository.insert(account_id, credential, sealed))
  })

  const createOnce = Effect.fnUntraced(function* (
    account_id: AccountId,
    input: NewCredential,
    idempotency_key: IdempotencyKey
  ) {
    const earlier = yield* findIdempotentResult(account_id, input, idempotency_key)
    if (Option.isSome(earlier)) return { credential: earlier.value, replayed: true }
    const { credential, sealed } = yield* prepare(account_id, input)
    const record = idempotencyRecordOf(account_id, credential.id, input, idempotency_key)
    const created = yield* inWorkspace(input, records.insert(account_id, credential, sealed, record))
    if (Option.isSome(created)) return { credential: created.value, replayed: false }
    const concurrent = yield* findIdempotentResult(account_id, input, idempotency_key)
    if (Option.isSome(concurrent)) return { credential: concurrent.value, replayed: true }
    return yield* Effect.die(new Error("The conflicting idempotency record has disappeared"))
  })

  return Credentials.of({
    create: (input) => asCaller((account_id) => create(account_id, input)),
    createOnce: (input, idempotency_key) =>
      asCaller((account_id) =>
        idempotency_key === undefined
          ? Effect.map(create(account_id, input), (credential) => ({ credential, replayed: false }))
          : createOnce(account_id, input, idempotency_key)
      ),
    get: Effect.fnUntraced(function* (id) {
      const { account_id } = yield* CurrentCaller
      const found = yield* repository.findById(account_id, id)
      return Option.isSome(found) ? found.value : yield* new NotFound()
    }),
    list: (request) => asCaller((account_id) => list(account_id, request)),
    update: (id, changes) => asCaller((account_id) => update(account_id, id, changes)),
    delete: (id) =>
      asCaller((account_id) =>
        Effect.flatMap(repository.delete(account_id, id), (existed) => (existed ? Effect.void : new NotFound()))
      )
  })
})

export const layer = Layer.effect(Credentials, make)
