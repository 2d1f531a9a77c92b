import { Effect, Layer, Option } from "effect"
import type { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { requestOf } from "../service/planning.ts"

/** The key that a router of the account can lease for a credential; none if the credential is not planned. */
export const offeredKey = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
  const found = yield* (yield* CredentialRepository).findSealed(account_id, id)
  if (Option.isNone(found)) return Option.none<string>()
  const { provider, workspace_id } = found.value.credential
  const model = found.value.credential.allowed_models?.[0] ?? "a/model"
  const request = requestOf({ account_id, workspace_id }, { model, targets: [{ provider }] })
  const offered = Effect.gen(function* () {
    const { nextAttempt, plan } = yield* Router
    const { steps } = yield* plan(request)
    if (!steps.some((step) => step._tag === "Own" && step.credential_id === id)) return Option.none<string>()
    const { attempt } = yield* nextAttempt({ ...request, credential_id: id }, [])
    return Option.map(Option.fromUndefinedOr(attempt?.lease), (lease) => lease.text())
  })
  return yield* Effect.scoped(offered).pipe(
    Effect.catchTag("UnknownWorkspace", () => Effect.succeedNone),
    Effect.provide(Layer.fresh(Router.layer))
  )
})
