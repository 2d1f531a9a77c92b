import { Clock, Effect, Exit, Result } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import { signsTokens } from "../../domain/Provider.ts"
import { momentOf } from "../../domain/routing/Health.ts"
import type { Refusal } from "../../domain/routing/Past.ts"
import type { OwnStep } from "../../domain/routing/Plan.ts"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { Tokens, TokensOnly } from "../tokens/Tokens.ts"
import { Lease, type LeaseTerms } from "./Lease.ts"
import type { HealthLedger } from "./ledgers.ts"
import { type Member, sealStatusByError } from "./members.ts"
import type { ResolvedRequest } from "./RouterRequest.ts"

/**
 * Makes the function that opens the key of a step. If the key is on trial, claims the trial for the request. `onLease`
 * gets the lease before its key is opened, to end it if interrupted. Invariant: a key that is not opened leaves no trial.
 */
export const makeOpenKey = Effect.fnUntraced(function* (
  { claimTrial, healthOf, releaseTrial }: HealthLedger,
  recordLease: (terms: LeaseTerms) => void
) {
  const { read, verify } = yield* Cipher
  const tokens = yield* Tokens
  const tokensOnly = yield* TokensOnly
  const clock = yield* Clock.Clock

  /**
   * Fills a lease with the key, or with a token that the key signs if the request wants tokens. Uses a cached token
   * only after `verify` proves that the key is still sealed to its credential and settings; otherwise wipes the token.
   */
  const fill = (lease: Lease, { credential, sealed }: Member, mustSign: boolean): Effect.Effect<void, Failure> => {
    const { terms } = lease
    const { account_id, credential_id, keys, provider } = terms
    const context = contextOf({ ...credential, account_id })
    const asStored = Effect.suspend(() => Effect.fromResult(read(sealed, context, (key) => lease.fill(key))))
    if (keys === "as_stored" || !(mustSign || signsTokens(provider))) return asStored
    const fillWith: Lease["fill"] = (key, token) => lease.fill(key, token)
    const signing = Effect.suspend(() =>
      Effect.flatten(Effect.fromResult(read(sealed, context, (key) => tokens.sign(terms, key, fillWith))))
    )
    const signed = Effect.flatMap(signing, (hasSigned): Effect.Effect<void, Failure> => {
      if (hasSigned) return Effect.void
      return mustSign ? Effect.fail({ _tag: "no_token" }) : asStored
    })
    if (!tokens.isCached(terms)) return signed
    const verified = verify(sealed, context)
    if (Result.isSuccess(verified) && tokens.open(terms, fillWith)) return Effect.void
    tokens.wipe(credential_id)
    return Result.isFailure(verified) ? Effect.fail(verified.failure) : signed
  }

  return (
    { account_id, credential_id: tested, keys = "as_stored", model }: ResolvedRequest,
    { credential_id, key_version, provider, region }: OwnStep,
    member: Member,
    { mustSign, request_id }: { readonly mustSign: boolean; readonly request_id: string },
    onLease: (lease: Lease) => void
  ): Effect.Effect<Lease | Refusal, ServiceUnavailable> =>
    Effect.suspend((): Effect.Effect<Lease | Refusal, ServiceUnavailable> => {
      const now = momentOf(clock)
      const key = { account_id, credential_id, key_version, model, request_id }
      const health = healthOf(key, member.stored, now.monotonic)
      if (tested === undefined && !claimTrial(key, health, now.monotonic)) return Effect.succeed("on_trial")
      const form = tokensOnly ? "tokens" : keys
      const { label } = member.credential
      const lease = new Lease({ ...key, label, provider, region, keys: form, leased_at: now.wall }, health)
      onLease(lease)
      const opened = Effect.matchEffect(fill(lease, member, mustSign || tokensOnly), {
        onSuccess: () => {
          recordLease(lease.terms)
          return Effect.succeed(lease)
        },
        onFailure: (failure): Effect.Effect<Refusal, ServiceUnavailable> => {
          releaseTrial(key, health)
          if (failure._tag === "ServiceUnavailable") return Effect.fail(failure)
          return Effect.succeed(failure._tag === "no_token" ? "no_token" : sealStatusByError[failure._tag])
        }
      })
      return onEnd(opened, (exit) => {
        if (Exit.isFailure(exit)) releaseTrial(key, health)
      })
    })
})

type Failure = OpenFailure | ServiceUnavailable | { readonly _tag: "no_token" }
