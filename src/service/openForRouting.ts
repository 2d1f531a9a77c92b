import { Effect, Option } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import { Cipher } from "../port/Cipher.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"

/** Opens a credential for a router; none if it is unknown or disabled, its workspace is deleted (D43, D44), or its key is marked as leaked (L16). No HTTP route calls it. */
export const openForRouting = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
  const { findSealed } = yield* CredentialRepository
  const { open } = yield* Cipher
  const found = Option.filter(
    yield* findSealed(account_id, id),
    ({ credential, leaked, workspace_deleted }) => !credential.disabled && !workspace_deleted && !leaked
  )
  if (Option.isNone(found)) return Option.none()
  const { credential, sealed } = found.value
  return Option.some({ credential, key: yield* open(sealed, { ...credential, account_id }) })
})
