import { Array as Arr, Effect, Result } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { isUnableToSign } from "../../domain/KeyMaterial.ts"
import { type Cooldown, cooldownCauseOf, initialCooldown, longestCooldown } from "../../domain/routing/Health.ts"
import { type PooledCredential, poolOf, type Seal } from "../../domain/routing/Pool.ts"
import { contextOf, type SealedKey } from "../../domain/SealedKey.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import type { StoredParking, StoredPool } from "../../port/CredentialPools.ts"
import { TokensOnly } from "../tokens/Tokens.ts"

/** A credential of a pool with its sealed key. */
export type Member = PooledCredential & { readonly sealed: SealedKey }

/** The seal of a row whose key does not open, by the tag of the failure. */
export const sealStatusByError = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported"
} as const satisfies Record<OpenFailure["_tag"], Seal>

export const isVerified = ({ seal }: Member) => seal === "verified"

/** Rows of a pool to check before other work of the process may run: about a millisecond. */
const checksAtOnce = 64

const cooldownOf = ({ cause, epoch, key_version, remaining, strikes }: StoredParking, now: number): Cooldown =>
  remaining === null
    ? { ...initialCooldown(key_version), epoch }
    : { key_version, epoch, until: now + Math.min(remaining, longestCooldown), strikes, cause: cooldownCauseOf(cause) }

const healthOf = (parkings: ReadonlyArray<StoredParking> = [], now: number) => {
  const cooldowns = parkings.filter(({ cause }) => cause !== "leaked")
  return {
    leaked: cooldowns.length < parkings.length,
    stored: new Map(cooldowns.map((parking) => [parking.model, cooldownOf(parking, now)]))
  }
}

/** The members of a pool as it was read before. */
interface Previous {
  readonly pool: ReadonlyArray<Member>
  readonly byId: ReadonlyMap<CredentialId, Member>
}

type SealedRow = Pick<Member, "credential" | "sealed">

/** The result of checking the seal of a row. */
type Checked = Pick<PooledCredential, "seal" | "cannotSign">

/** Whether two rows have the same sealed key and context. Their names, order and wrapped data keys may differ. */
const isSameSeal = (one: SealedRow, other: SealedRow, account_id: AccountId): boolean =>
  Buffer.compare(one.sealed.sealed, other.sealed.sealed) === 0 &&
  contextOf({ ...one.credential, account_id }) === contextOf({ ...other.credential, account_id })

/** The result of the earlier check of a row, if its seal was verified and is still the same. */
const earlierCheckOf = (
  row: SealedRow & Pick<Member, "row">,
  previous: Previous | undefined,
  account_id: AccountId
) => {
  const earlier = previous?.byId.get(row.credential.id)
  if (earlier === undefined || !isVerified(earlier)) return undefined
  if (earlier.row !== row.row && !isSameSeal(earlier, row, account_id)) return undefined
  const { cannotSign = false, seal } = earlier
  return { seal, cannotSign }
}

/** Checks the seals of rows that differ from verified members of `previous`, a few at a time. */
const checkRows = <Row extends SealedRow & Pick<Member, "row">>(
  check: Check,
  rows: ReadonlyArray<Row>,
  previous: Previous | undefined,
  account_id: AccountId
) =>
  Effect.map(
    Effect.forEach(Arr.chunksOf(rows, checksAtOnce), (chunk) => {
      const checked = chunk.map((row) => ({
        ...row,
        ...(earlierCheckOf(row, previous, account_id) ?? check(account_id, row))
      }))
      return Effect.as(rows.length > checksAtOnce ? Effect.yieldNow : Effect.void, checked)
    }),
    (chunks) => chunks.flat()
  )

/** The members of a stored pool, or the previous ones if no rows were read, with their health and checked seals. */
export const membersOf = (
  check: Check,
  { parkings, rows }: StoredPool,
  previous: Previous | undefined,
  account_id: AccountId,
  now: number
): Effect.Effect<ReadonlyArray<Member>> => {
  const withHealth = <Row extends SealedRow>(row: Row) => ({
    ...row,
    ...healthOf(parkings.get(row.credential.id), now)
  })
  if (rows === undefined) return checkRows(check, (previous?.pool ?? []).map(withHealth), previous, account_id)
  return Effect.map(checkRows(check, rows.map(withHealth), previous, account_id), poolOf)
}

/** Checks the seal of a row; where only tokens may leave the process, also that the key can sign. */
export type Check = (account_id: AccountId, row: SealedRow) => Checked

export const makeSealCheck = Effect.gen(function* () {
  const { read, verify } = yield* Cipher
  const tokensOnly = yield* TokensOnly
  return (account_id: AccountId, { credential, sealed }: SealedRow): Checked => {
    const context = contextOf({ ...credential, account_id })
    const { provider } = credential
    const cannotSign = tokensOnly
      ? read(sealed, context, (key) => isUnableToSign(provider, key.toString("utf8")))
      : Result.map(verify(sealed, context), () => false)
    return Result.isSuccess(cannotSign)
      ? { seal: "verified", cannotSign: cannotSign.success }
      : { seal: sealStatusByError[cannotSign.failure._tag] }
  }
})
