import { Array as Arr, DateTime, Effect, Layer, Option } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { AccountId, ApiKeyHash, LinkId } from "../../domain/Identifiers.ts"
import type { Link, LinkKeyPair } from "../../domain/Link.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { type LinkRecord, LinkRepository, type UndatedLink } from "../../port/Links.ts"
import { record, recordEach } from "../audit/auditing.ts"
import { askExists, askFirst, askRows, type Dated, fromDated } from "../connection/statements.ts"
import { Database } from "../connection/Database.ts"
import { lockDistributedAccount } from "../rows/lockDistributedAccount.ts"

type Row = Dated<Omit<LinkRecord, "hash" | "keys">>
type KeysRow = SealedKey & Pick<LinkKeyPair, "public_key">
type Names = Record<"account_name" | "workspace_name", string>

const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

/** The columns of a link's key pair: public key and sealed private key. */
const linkKeyColumns = ["public_key", "kek_id", "wrapped_dek", "sealed"] as const

const keyPairOf = ({ kek_id, public_key, sealed, wrapped_dek }: KeysRow): LinkKeyPair => ({
  public_key,
  private_key: { kek_id, wrapped_dek, sealed }
})

/** The assignments that delete a link's key pair. */
const clearLinkKeys = (sql: SqlClient.SqlClient) => sql.csv(linkKeyColumns.map((column) => sql`${sql(column)} = NULL`))

/** The condition that a row is this link, and that the link is open. */
const isOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  sql`account_id = ${account_id} AND id = ${link_id} AND ended IS NULL AND expires_at > now()`

/** Locks a link until the transaction ends, if it is open. Returns whether it is. */
const lockOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  Effect.map(
    sql`SELECT 1 FROM links WHERE ${isOpenLink(sql, account_id, link_id)} FOR UPDATE`,
    ({ length }) => length > 0
  )

export const layer = Layer.effect(
  LinkRepository,
  Effect.map(Database, ({ background, reads, writes }) => {
    const { ask, sql } = writes
    const columns = sql`
      id AS link_id, account_id, workspace_id, purpose, provider, credential_id, return_url, created_at, expires_at,
      coalesce(ended, CASE WHEN expires_at <= now() THEN 'expired' ELSE 'open' END) AS state`

    /**
     * Inserts a link. Returns none if there is no such account. An existing row with its id counts as inserted,
     * because a retry meets its own row; `xmax` is 0 for a new row.
     */
    const insert = Effect.fnUntraced(function* (
      link: UndatedLink,
      expires_in: number,
      hash: ApiKeyHash,
      keys: LinkKeyPair | undefined
    ) {
      const { account_id, credential_id, link_id, provider, purpose, return_url, workspace_id } = link
      yield* lockDistributedAccount(writes, account_id, "shared")
      const [inserted] = yield* sql<{ is_new: boolean; expires_at: Date }>`
        INSERT INTO links (id, account_id, workspace_id, purpose, provider, credential_id, return_url, hash, created_at,
          expires_at, ${sql.csv(linkKeyColumns)})
        SELECT ${link_id}::uuid, id, ${workspace_id}::uuid, ${purpose}, ${provider}::text, ${credential_id}::uuid,
          ${return_url}::text, ${bytes(hash)}::bytea, now(),
          now() + ${expires_in}::integer * interval '1 second', ${keys?.public_key ?? null}::bytea,
          ${keys?.private_key.kek_id ?? null}::text, ${keys?.private_key.wrapped_dek ?? null}::bytea,
          ${keys?.private_key.sealed ?? null}::bytea
        FROM accounts WHERE id = ${account_id}
        ON CONFLICT (account_id, id) DO UPDATE SET id = excluded.id RETURNING xmax = 0 AS is_new, expires_at`
      const act: AuditAct = { action: "link.create", account_id, workspace_id, link_id, purpose }
      if (inserted?.is_new === true) yield* record(sql, [act])
      return Option.map(Option.fromUndefinedOr(inserted), ({ expires_at }) => DateTime.fromDateUnsafe(expires_at))
    }, sql.withTransaction)

    const revoke = Effect.fnUntraced(function* (account_id: AccountId, link_id: LinkId) {
      const revoked = yield* sql`
        UPDATE links SET ended = 'revoked', ${clearLinkKeys(sql)}
        WHERE ${isOpenLink(sql, account_id, link_id)} RETURNING 1`
      yield* recordEach(sql, revoked, () => ({ action: "link.revoke", account_id, link_id }))
      return (yield* sql`SELECT 1 FROM links WHERE account_id = ${account_id} AND id = ${link_id}`).length > 0
    }, sql.withTransaction)

    const revokeAltered = Effect.fnUntraced(function* ({ account_id, link_id }: Pick<Link, "account_id" | "link_id">) {
      const revoked = yield* sql<Pick<Link, "workspace_id">>`
        UPDATE links SET ended = 'revoked', ${clearLinkKeys(sql)}
        WHERE ${isOpenLink(sql, account_id, link_id)} RETURNING workspace_id`
      yield* recordEach(sql, revoked, (row) => ({ action: "link.altered", account_id, ...row, link_id }))
    }, sql.withTransaction)

    /** Returns none also for a retry, which finds its own key pair: the old one is lost. */
    const replaceKeys = Effect.fnUntraced(function* (
      { account_id, link_id }: Link,
      { private_key, public_key }: LinkKeyPair
    ) {
      if (!(yield* lockOpenLink(sql, account_id, link_id))) return Option.none()
      const isLink = sql`account_id = ${account_id} AND id = ${link_id}`
      const [old] = yield* sql<KeysRow>`
        SELECT ${sql.csv(linkKeyColumns)} FROM links WHERE ${isLink} AND public_key <> ${public_key}`
      if (old === undefined) return Option.none()
      yield* sql`UPDATE links SET ${sql.update({ public_key, ...private_key })} WHERE ${isLink}`
      return Option.some(keyPairOf(old))
    }, sql.withTransaction)

    return LinkRepository.of({
      insert: (link, ...stored) => ask(insert(link, ...stored), "links.insert", link.account_id),
      list: (account_id) => {
        const rows = askRows(reads, "links.list", account_id)<Row>`
          SELECT ${columns} FROM links WHERE account_id = ${account_id} AND ended IS NULL AND expires_at > now()
          ORDER BY created_at, id LIMIT 1000`
        return Effect.map(rows, Arr.map(fromDated<Link>))
      },
      revoke: (account_id, link_id) => ask(revoke(account_id, link_id), "links.revoke", account_id),
      revokeAltered: (link) => ask(revokeAltered(link), "links.revoke_altered", link.account_id),
      find: (hash) =>
        Effect.map(
          askFirst(reads, "links.find")<Row & (KeysRow | { readonly public_key: null })>`
            SELECT ${columns}, stored_label, ${sql.csv(linkKeyColumns)} FROM links WHERE hash = ${bytes(hash)}`,
          Option.map((row) => ({
            ...fromDated<Omit<LinkRecord, "hash" | "keys">>(row),
            hash,
            keys: row.public_key === null ? null : keyPairOf(row)
          }))
        ),
      accountAndWorkspaceNames: ({ account_id, workspace_id }) => askFirst(reads, "links.names", account_id)<Names>`
        SELECT accounts.name AS account_name, workspaces.name AS workspace_name
        FROM accounts JOIN workspaces ON workspaces.account_id = accounts.id
        WHERE accounts.id = ${account_id} AND workspaces.account_id = ${account_id} AND workspaces.id = ${workspace_id}`,
      /** A retry, whose earlier attempt was stored, finds its own hash. */
      replaceHash: ({ account_id, hash, link_id }, next) => askExists(writes, "links.replace_hash", account_id)`
        UPDATE links SET hash = ${bytes(next)}
        WHERE ${isOpenLink(sql, account_id, link_id)} AND hash IN (${bytes(hash)}, ${bytes(next)}) RETURNING 1`,
      replaceKeys: (link, next) => ask(replaceKeys(link, next), "links.replace_keys", link.account_id),
      deleteExpired: Effect.asVoid(askRows(background, "links.forget")`
        WITH deleted AS (DELETE FROM links WHERE expires_at < now() - interval '7 days')
        UPDATE links SET ${clearLinkKeys(background.sql)}
        WHERE expires_at BETWEEN now() - interval '7 days' AND now() AND public_key IS NOT NULL`)
    })
  })
)
