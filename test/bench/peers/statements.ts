import { Credential } from "../../../src/domain/Credential.ts"

/** The statements of both peers, with the same columns and checks as the service's. */
export const findKey = {
  name: "find_key",
  text: "SELECT account_id, role FROM api_keys WHERE hash = $1 AND revoked_at IS NULL"
}

export const findWorkspace = {
  name: "find_workspace",
  text: "SELECT id FROM workspaces WHERE account_id = $1 AND deleted_at IS NULL AND is_default"
}

/** The columns of a credential that an insert sets, but for those of its account and its seal. */
export const columns = Object.keys(Credential.fields).filter((name) => name !== "sort_order")

export const findCredential = {
  name: "find_credential",
  text: `SELECT ${columns.join(", ")}, sort_order FROM credentials WHERE id = $1 AND account_id = $2`
}

const inserted = [...columns, "account_id", "kek_id", "wrapped_dek", "sealed"]

export const insertCredential = {
  name: "insert_credential",
  text: `INSERT INTO credentials (${inserted.join(", ")}, sort_order)
    VALUES (${inserted.map((_, index) => `$${index + 1}`).join(", ")}, (
      SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
      WHERE account_id = $${inserted.indexOf("account_id") + 1} AND workspace_id = $2 AND provider = $3
    ))
    ON CONFLICT (account_id, id) DO NOTHING RETURNING sort_order`
}
