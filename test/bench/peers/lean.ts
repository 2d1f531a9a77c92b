import { createCipheriv, createSecretKey, randomBytes } from "node:crypto"
import { Pool } from "pg"
import { type Caller, serve } from "./app.ts"
import { makeFields } from "./credential.ts"
import { columns } from "./statements.ts"

const pool = new Pool({ connectionString: process.env["DATABASE_URL"], max: 10 })
const key = createSecretKey(randomBytes(32))

const findKey = {
  name: "lean_key",
  text: `SELECT api_keys.account_id, role, workspaces.id AS workspace_id
    FROM api_keys LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND is_default AND deleted_at IS NULL
    WHERE hash = $1 AND revoked_at IS NULL`
}
const findCredential = {
  name: "lean_credential",
  text: `SELECT ${columns.join(", ")}, sort_order FROM lean_credentials WHERE id = $1 AND account_id = $2`
}
const inserted = [...columns, "sort_order", "account_id", "sealed"]
const insertCredential = {
  name: "lean_insert",
  text: `INSERT INTO lean_credentials (${inserted.join(", ")}) VALUES (${inserted.map((_, index) => `$${index + 1}`).join(", ")})`
}

const listed = "FROM credentials WHERE account_id = $1 AND workspace_id = $2"
/** From the service's table and by its index: one of its own would make the peer's creates slower. */
const listCredentials = {
  name: "lean_list",
  text: `SELECT ${columns.join(", ")}, sort_order, (SELECT count(*)::int ${listed}) AS total_count
    ${listed} ORDER BY created_at, id LIMIT $3 OFFSET $4`
}
const updateCredential = (names: ReadonlyArray<string>) => ({
  name: `lean_update_${names.join("_")}`,
  text: `UPDATE lean_credentials SET ${names.map((name, index) => `${name} = $${index + 3}`).join(", ")}
    WHERE id = $1 AND account_id = $2 RETURNING ${columns.join(", ")}, sort_order`
})

const encrypt = (plaintext: string, aad: string) => {
  const nonce = randomBytes(12)
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: 16 }).setAAD(Buffer.from(aad))
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

/**
 * A user's own shortcut: one look-up for key and workspace, one AES-GCM under one key and bound to the id alone, and a
 * plain INSERT into a table almost without constraints. No order, no audit event, no envelope, no rotation. List is a
 * plain SELECT, update a plain UPDATE of what a key may be used for: the key is not bound to it.
 */
await serve({
  findKey: async (hash) => (await pool.query<Caller>({ ...findKey, values: [hash] })).rows[0],
  find: async (id, { account_id }) =>
    (await pool.query<object>({ ...findCredential, values: [id, account_id] })).rows[0],
  insert: async (body, { account_id, workspace_id }) => {
    if (typeof workspace_id !== "string") return undefined
    const row = { ...makeFields(workspace_id, body), sort_order: 0 }
    const sealed = encrypt(body.key, row.id)
    const values = [...columns.map((column): unknown => Reflect.get(row, column)), row.sort_order, account_id, sealed]
    await pool.query({ ...insertCredential, values })
    return row
  },
  list: async (offset, limit, { account_id, workspace_id }) => {
    const values = [account_id, workspace_id, limit, offset]
    const { rows } = await pool.query<{ total_count: number }>({ ...listCredentials, values })
    return { data: rows, total_count: rows[0]?.total_count ?? 0 }
  },
  update: async (id, changes, { account_id }) => {
    const names = columns.filter((name) => Reflect.has(changes, name))
    const values = [id, account_id, ...names.map((name): unknown => Reflect.get(changes, name))]
    return (await pool.query<object>({ ...updateCredential(names), values })).rows[0]
  }
})
