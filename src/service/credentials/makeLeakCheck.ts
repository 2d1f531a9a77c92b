import { Effect, type Redacted } from "effect"
import type { AccountId } from "../../domain/Identifiers.ts"
import { haveCommonSecret, hiddenSecretsIn } from "../../domain/KeyMaterial.ts"
import { labelOf } from "../../domain/Label.ts"
import { Cipher } from "../../port/Cipher.ts"
import { LeakedKeys } from "../../port/LeakedKeys.ts"

/**
 * Makes the check whether a key holds a secret of one that is marked as leaked in the account. Only marked keys whose
 * label does not rule that out are opened; one that does not open cannot be compared, and rules nothing out.
 */
export const makeLeakCheck = Effect.gen(function* () {
  const cipher = yield* Cipher
  const { marked } = yield* LeakedKeys

  return Effect.fnUntraced(function* (account_id: AccountId, provider: string, key: Redacted.Redacted) {
    const labels = () => {
      const secrets = hiddenSecretsIn(provider, key).flatMap((secret) => [secret, secret.trim()])
      return Array.from(new Set(secrets.map(labelOf)))
    }
    for (const { context, sealed } of yield* marked(account_id, labels)) {
      const opened = yield* Effect.option(cipher.open(sealed, context))
      if (opened._tag === "Some" && haveCommonSecret(provider, opened.value, key)) return true
    }
    return false
  })
})
