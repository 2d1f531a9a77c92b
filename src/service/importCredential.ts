import { createHmac } from "node:crypto"
import { Effect, Redacted } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import { decodeNewCredential, type NewCredential } from "../domain/NewCredential.ts"
import { Credentials } from "../port/Credentials.ts"

/**
 * The same for records that mean the same; nobody without the salt can compute it. Defaults, which are null or false, are
 * left out: a member that a later version adds must not make a record another one.
 */
const idempotencyKeyOf = (salt: Uint8Array, { key, ...fields }: NewCredential) => {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== false)
  const sorted = given.sort(([one], [other]) => (one < other ? -1 : 1))
  const mac = createHmac("sha256", salt).update("byok/import/1\0").update(JSON.stringify(sorted))
  return IdempotencyKey.make(mac.update("\0").update(Redacted.value(key)).digest("base64url"))
}

/**
 * Creates the credential of a record unless an earlier run with the same salt has. Equal records are one credential.
 * One that was deleted or got another key since stays as it is.
 */
export const importCredential = Effect.fnUntraced(function* (body: unknown, salt: Uint8Array) {
  const { createOnce } = yield* Credentials
  const input = yield* decodeNewCredential(body)
  return yield* Effect.catchTag(createOnce(input, idempotencyKeyOf(salt, input)), "Conflict", () =>
    InvalidParams.of({ path: [], message: "was imported before, and deleted or given another key since" })
  )
})
