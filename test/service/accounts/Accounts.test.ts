import { NodeCrypto } from "@effect/platform-node"
import { Effect, Layer } from "effect"
import { IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { AccountDeleted, Accounts } from "../../../src/service/accounts/Accounts.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { assert, it } from "../../support/it.ts"

const service = Layer.fresh(
  Accounts.layer.pipe(Layer.provide(NodeCrypto.layerSecureRandom), Layer.provideMerge(MemoryStore.layer))
)

it.effect("repeating the creation of an account issues no key if the account is deleted meanwhile", () =>
  Effect.gen(function* () {
    const repository = yield* AccountRepository
    const create = (store: AccountRepository["Service"]) =>
      Effect.flatMap(Accounts.make, ({ createAccountOnce }) =>
        createAccountOnce("One Ltd", IdempotencyKey.make("once"))
      ).pipe(Effect.provideService(AccountRepository, store), Effect.provide(NodeCrypto.layerSecureRandom))
    const { account_id } = yield* create(repository)
    assert.deepInclude(yield* create(repository), { account_id, replayed: true })
    const deletedMeanwhile = { ...repository, addApiKey: () => Effect.succeed("no account" as const) }
    assert.instanceOf(yield* Effect.flip(create(deletedMeanwhile)), AccountDeleted)
  }).pipe(Effect.provide(service))
)
