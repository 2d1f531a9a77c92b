import { Context, DateTime, Effect, Layer, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AccountId } from "../domain/AccountId.ts"
import { type Actor, CurrentActor } from "../domain/Actor.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import type { Credential } from "../domain/Credential.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import type { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import type { Issue } from "../domain/Issue.ts"
import { readKeyMaterial } from "../domain/KeyMaterial.ts"
import { labelOf } from "../domain/Label.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { Cipher } from "../port/Cipher.ts"
import { makeCreateOnce } from "./makeCreateOnce.ts"
import { inKeyStoreTime } from "./inKeyStoreTime.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"

const workspaceIssue = (requested: boolean): Issue => ({
  path: ["workspace_id"],
  message: requested ? "is not a workspace of this account" : "is required: the default workspace is deleted"
})

const actorOf = ({ api_key_hash }: CurrentCaller["Service"]): Actor =>
  api_key_hash === undefined ? { kind: "in_process" } : { kind: "api_key", api_key_hash }

/**
 * The two operations of section 4, on behalf of the `CurrentCaller`.
 * @effect-expect-leaking CurrentCaller
 */
export class Credentials extends Context.Service<Credentials>()("byok/Credentials", {
  make: Effect.gen(function* () {
    const apiKeys = yield* ApiKeys
    const cipher = yield* Cipher
    const random = yield* SecureRandom.SecureRandom
    const repository = yield* CredentialRepository
    const workspaces = yield* WorkspaceResolver

    const prepare = Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential) {
      const workspace = yield* workspaces.resolve(account_id, input.workspace_id)
      const hashes = input.allowed_api_key_hashes ?? []
      const owned = hashes.length === 0 ? undefined : yield* apiKeys.ownedBy(account_id, hashes)
      const foreign = hashes.flatMap((hash, index): ReadonlyArray<Issue> =>
        owned?.has(hash)
          ? []
          : [{ path: ["allowed_api_key_hashes", index], message: "is not an API key of this account" }]
      )
      if (Option.isNone(workspace)) {
        return yield* InvalidParams.of(workspaceIssue(input.workspace_id !== undefined), ...foreign)
      }
      if (foreign.length > 0) return yield* InvalidParams.of(...foreign)

      const { key, ...given } = input
      const material = Option.getOrThrow(readKeyMaterial(input.provider, Redacted.value(key)))
      const credential: Omit<Credential, "sort_order"> = {
        ...given,
        id: CredentialId.make(yield* random.uuidV7()),
        workspace_id: workspace.value,
        label: labelOf(material.secret),
        created_at: yield* DateTime.now,
        declared_region: input.declared_region ?? material.region
      }
      const sealed = yield* Effect.catchTag(
        inKeyStoreTime(cipher.seal(key, { ...credential, account_id })),
        "KeyStoreUnavailable",
        Effect.die
      )
      return { credential, sealed }
    })

    const asCaller = <A, E, R>(act: (account_id: AccountId) => Effect.Effect<A, E, R>) =>
      Effect.flatMap(CurrentCaller, (caller) =>
        Effect.provideService(act(caller.account_id), CurrentActor, actorOf(caller))
      )

    const create = (input: NewCredential) =>
      asCaller((account_id) =>
        Effect.flatMap(prepare(account_id, input), ({ credential, sealed }) =>
          repository.insert(account_id, credential, sealed)
        )
      )

    const once = yield* makeCreateOnce(prepare)
    /** Safe to repeat under the same idempotency key; tells whether it was carried out before. */
    const createOnce = (input: NewCredential, idempotency_key: IdempotencyKey) =>
      asCaller((account_id) => once(account_id, input, idempotency_key))

    const get = Effect.fnUntraced(function* (id: CredentialId) {
      const { account_id } = yield* CurrentCaller
      const found = yield* repository.findById(account_id, id)
      return Option.isSome(found) ? found.value : yield* new NotFound()
    })

    return { create, createOnce, get }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
