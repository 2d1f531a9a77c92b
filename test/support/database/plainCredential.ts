import { randomUUID } from "node:crypto"
import { Effect, Option } from "effect"
import { type AccountId, CredentialId, type WorkspaceId } from "../../../src/domain/Identifiers.ts"
import type { SealedKey } from "../../../src/domain/SealedKey.ts"
import { CredentialRepository, type UnstoredCredential } from "../../../src/port/CredentialRepository.ts"
import { defaults } from "../http/Bodies.ts"

/** A minimal credential for a repository. */
export const plainCredential = (workspace_id: WorkspaceId, id: string = randomUUID()): UnstoredCredential => ({
  ...defaults,
  id: CredentialId.make(id),
  workspace_id,
  provider: "openai",
  label: "***...***"
})

/** A sealed key of the right lengths, which no key opens. */
export const plainSealedKey = (byte: number = 0) => ({
  kek_id: "kek-1",
  wrapped_dek: new Uint8Array(60).fill(byte),
  sealed: new Uint8Array(63).fill(byte)
})

/** Stores a credential without an idempotency record. */
export const insertInto =
  ({ insert }: CredentialRepository["Service"]) =>
  (account_id: AccountId, credential: UnstoredCredential, sealed: SealedKey) =>
    Effect.map(insert(account_id, credential, sealed), Option.getOrThrow)

/** Stores a credential without an idempotency record in the repository of the context. */
export const insertPlain = (...row: Parameters<ReturnType<typeof insertInto>>) =>
  Effect.flatMap(CredentialRepository, (repository) => insertInto(repository)(...row))
