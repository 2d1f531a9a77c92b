import { Duration, Effect } from "effect"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { Seal } from "../../domain/routing/Pool.ts"
import type { Cipher, PreparedKey } from "../../port/Cipher.ts"
import type { PoolRow } from "../../port/CredentialPools.ts"
import { withDeadline } from "../../port/Deadline.ts"
import { withKeyStoreTimeout } from "../withKeyStoreTimeout.ts"
import { seals } from "./seals.ts"

/** A row, whether it is what was sealed, and what opens it if it is. */
interface VerifiedRow {
  readonly row: PoolRow
  readonly seal: Seal
  readonly prepared: PreparedKey | undefined
}

/** Verifies the rows of an account's pool. */
export type Verification = (
  account_id: AccountId,
  rows: ReadonlyArray<PoolRow>
) => Effect.Effect<ReadonlyArray<VerifiedRow>>

/** How many rows are verified at a time, for key stores that are remote. */
const concurrency = 16

/** How long a pool may take. Rows that were not verified by then count as unavailable. */
const inTime = withDeadline(Duration.seconds(3))

/** Unwraps the data key of every row under its whole policy, which shows that the policy is what was sealed (E16). */
export const verifying =
  (prepare: Cipher["Service"]["prepare"]): Verification =>
  (account_id, rows) =>
    inTime(
      Effect.forEach(
        rows,
        (row): Effect.Effect<VerifiedRow> =>
          Effect.match(withKeyStoreTimeout(prepare(row.sealed, { ...row.credential, account_id })), {
            onSuccess: (prepared) => ({ row, seal: "verified", prepared }),
            onFailure: ({ _tag }) => ({ row, seal: seals[_tag], prepared: undefined })
          }),
        { concurrency }
      )
    )
