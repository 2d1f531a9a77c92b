import { randomBytes } from "node:crypto"
import { labelOf } from "../../../src/domain/labelOf.js"
import type { NewCredential } from "../../../src/domain/NewCredential.ts"
import { contextOf, type BoundCredential } from "../../../src/domain/SealedKey.ts"
import { seal } from "./sealed.ts"
import { columns } from "./statements.ts"

export type Body = typeof NewCredential.Encoded

const uuidV7 = () => {
  const bytes = randomBytes(16)
  bytes.writeUIntBE(Date.now(), 0, 6)
  bytes[6] = 0x70 | ((bytes[6] ?? 0) & 0x0f)
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f)
  const hex = bytes.toString("hex")
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

/** A new credential as the peers return it, without its order. */
export const makeFields = (workspace_id: string, body: Body) => ({
  id: uuidV7(),
  workspace_id,
  provider: body.provider,
  name: body.name ?? null,
  label: labelOf(body.key),
  created_at: new Date(),
  disabled: body.disabled ?? false,
  is_fallback: body.is_fallback ?? false,
  is_required: body.is_required ?? false,
  is_byok_only: body.is_byok_only ?? false,
  allowed_api_key_hashes: body.allowed_api_key_hashes ?? null,
  allowed_models: body.allowed_models ?? null,
  allowed_user_ids: body.allowed_user_ids ?? null,
  declared_region: body.declared_region ?? null,
  declared_zdr: body.declared_zdr ?? null
})

/** The row of a new credential, sealed as the service seals it, and the values of its insert. */
export const makeRow = (account_id: string, workspace_id: string, body: Body) => {
  const row = makeFields(workspace_id, body)
  const context = contextOf({ ...row, account_id } as unknown as BoundCredential)
  const sealed = seal(Buffer.from(body.key), Buffer.from(context))
  const values = [
    ...columns.map((column): unknown => Reflect.get(row, column)),
    account_id,
    sealed.kek_id,
    sealed.wrapped_dek,
    sealed.sealed
  ]
  return { row, values }
}

const conflicts = (body: Body): boolean =>
  (body.is_fallback === true && (body.is_byok_only === true || body.is_required === true)) ||
  ((body.declared_region === "europe" || body.declared_region === "us") && body.provider !== "azure")

const storable = (text: string) => text.isWellFormed() && !text.includes("\0")

/** The rules that a JSON schema cannot express. */
export const isAcceptable = (body: Body): boolean =>
  storable(body.key) &&
  storable(body.name ?? "") &&
  (body.allowed_models ?? []).every(storable) &&
  (body.allowed_user_ids ?? []).every(storable) &&
  !conflicts(body)
