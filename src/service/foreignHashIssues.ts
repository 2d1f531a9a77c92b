import { Effect } from "effect"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"
import type { Issue } from "../domain/Issue.ts"
import { ApiKeys } from "../port/ApiKeys.ts"

type Hashes = ReadonlyArray<ApiKeyHash> | null

/** Issues for those of the given hashes that are not live API keys of the account (D24); the stored ones are not checked. */
export const foreignHashIssues = Effect.fnUntraced(function* (
  { ownedBy }: ApiKeys["Service"],
  account_id: AccountId,
  given: Hashes,
  stored: Hashes = null
) {
  const hashes = (given ?? []).filter((hash) => stored?.includes(hash) !== true)
  const owned = hashes.length === 0 ? undefined : yield* ownedBy(account_id, hashes)
  return (given ?? []).flatMap((hash, index): ReadonlyArray<Issue> =>
    owned?.has(hash) === true || !hashes.includes(hash)
      ? []
      : [{ path: ["allowed_api_key_hashes", index], message: "is not an API key of this account" }]
  )
})
