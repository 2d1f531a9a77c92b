/** One node of a highly available PostgreSQL, all of whose nodes are on this machine. */
export interface DatabaseNode {
  readonly name: string
  /** PostgreSQL's data directory. */
  readonly data: string
  /** Ports of PostgreSQL, of Patroni's REST API, and of PgBouncer. */
  readonly postgres: number
  readonly rest: number
  readonly pooler: number
}
