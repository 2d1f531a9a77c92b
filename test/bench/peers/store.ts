import { Pool } from "pg"
import type { Caller, Store } from "./app.ts"
import { makeRow } from "./credential.ts"
import { findCredential, findKey, findWorkspace, insertCredential } from "./statements.ts"

const pool = new Pool({ connectionString: process.env["DATABASE_URL"], max: 10 })

/** Does by hand what the service does, with the same statements, sealing and table, but without audit events. */
export const store: Store = {
  findKey: async (hash) => (await pool.query<Caller>({ ...findKey, values: [hash] })).rows[0],
  find: async (id, { account_id }) =>
    (await pool.query<object>({ ...findCredential, values: [id, account_id] })).rows[0],
  insert: async (body, { account_id }) => {
    const workspace = (await pool.query<{ id: string }>({ ...findWorkspace, values: [account_id] })).rows[0]
    if (workspace === undefined) return undefined
    const { row, values } = makeRow(account_id, workspace.id, body)
    const stored = await pool.query<{ sort_order: number }>({ ...insertCredential, values })
    return { ...row, ...stored.rows[0] }
  }
}
