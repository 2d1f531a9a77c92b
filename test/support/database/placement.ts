import { Arbitrary, DateTime, Effect } from "effect"
import type { CredentialId } from "../../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import { elementOf, integer } from "../memory/arbitraries.ts"
import { addWorkspace, newTenant } from "./newTenant.ts"
import { plainCredential, plainSealedKey } from "./plainCredential.ts"

/** Where a credential of an account is put: in one of two workspaces, at one of a few times, for one of two providers. */
export const placement = Arbitrary.all({
  workspace: elementOf([0, 1] as const),
  created_at: Arbitrary.map(integer(0, 3), (millis) => DateTime.makeUnsafe(millis)),
  provider: elementOf(["openai", "cohere"] as const)
})
/** With an `id` where a test depends on the order of ids, which are random otherwise. */
export type Placement = (typeof placement extends Arbitrary.Arbitrary<infer A> ? A : never) & {
  readonly id?: CredentialId
}

/** Stores credentials of a new account, and one of another account beside them. */
export const storePlaced = Effect.fnUntraced(function* (given: ReadonlyArray<Placement>) {
  const { insert } = yield* CredentialRepository
  const { account_id, workspace_id } = yield* newTenant
  const stranger = yield* newTenant
  yield* insert(stranger.account_id, plainCredential(stranger.workspace_id), plainSealedKey())
  const workspaces = [workspace_id, yield* addWorkspace(account_id)] as const
  const { sql } = (yield* Database).writes
  const rows = yield* Effect.forEach(given, ({ created_at, workspace, ...rest }) =>
    Effect.gen(function* () {
      const row = yield* insert(account_id, { ...plainCredential(workspaces[workspace]), ...rest }, plainSealedKey())
      yield* sql`
        UPDATE credentials SET created_at = ${DateTime.toDate(created_at)}
        WHERE account_id = ${account_id} AND id = ${row.id}`
      return { ...row, created_at }
    })
  )
  return { account_id, workspaces, rows }
})
