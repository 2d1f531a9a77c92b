import { join } from "node:path"
import { parse } from "yaml"

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

/** The files of a certificate for 127.0.0.1 and of its key. */
export interface TlsFiles {
  readonly certificate: string
  readonly key: string
}

/** The example for PgBouncer, with the ports of a node on this machine, without passwords, and without TLS unless it has files. */
export const localPgBouncer = (
  example: string,
  { pooler, postgres }: DatabaseNode,
  users: string,
  tls?: TlsFiles
): string => {
  const secured = tls === undefined ? example.replaceAll(/^client_tls_.*\n/gm, "") : example
  const files = tls && { client_tls_cert_file: tls.certificate, client_tls_key_file: tls.key }
  const changed = { listen_addr: "127.0.0.1", listen_port: pooler, auth_type: "trust", auth_file: users, ...files }
  return Object.entries(changed).reduce(
    (text, [name, value]) => text.replace(new RegExp(`^${name} = .*$`, "m"), `${name} = ${value}`),
    secured.replace(/^byok = host=\S+ port=\d+/m, `byok = host=127.0.0.1 port=${postgres}`)
  )
}

/** The example for HAProxy, with the ports of nodes on this machine. */
export const localHaproxy = (
  example: string,
  port: number,
  nodes: ReadonlyArray<Pick<DatabaseNode, "name" | "pooler" | "rest">>
): string =>
  nodes.reduce(
    (text, { name, pooler, rest }) =>
      text.replace(
        new RegExp(`^( *server ${name}) \\S+ check port \\d+$`, "m"),
        `$1 127.0.0.1:${pooler} check port ${rest}`
      ),
    example
      .replace(/^( *bind) \S+$/m, `$1 127.0.0.1:${port}`)
      .replace(" connect ssl", " connect")
      // Each node on this machine has its own port for PgBouncer.
      .replace(/^ *http-check connect port \d+\n/m, "")
  )

interface PatroniFile {
  /** Certificates for requests to the other nodes. */
  readonly ctl: unknown
  readonly bootstrap: Readonly<Record<string, unknown>>
  readonly postgresql: Readonly<Record<string, unknown>>
}

/** The example for Patroni, with the addresses and directories of a node on this machine, without TLS and passwords. */
export const localPatroni = (
  example: string,
  { data, name, postgres, rest }: DatabaseNode,
  where: { readonly directory: string; readonly etcd: number; readonly programs: string }
): string => {
  const { ctl: _, ...file } = parse(example) as PatroniFile
  const role = (username: string) => ({ username, password: "trusted" })
  // JSON is YAML.
  return JSON.stringify({
    ...file,
    name,
    restapi: { listen: `127.0.0.1:${rest}`, connect_address: `127.0.0.1:${rest}` },
    etcd3: { hosts: [`127.0.0.1:${where.etcd}`] },
    bootstrap: {
      ...file.bootstrap,
      pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
    },
    postgresql: {
      ...file.postgresql,
      listen: `127.0.0.1:${postgres}`,
      connect_address: `127.0.0.1:${postgres}`,
      data_dir: data,
      bin_dir: where.programs,
      pgpass: join(where.directory, `${name}.pgpass`),
      authentication: { superuser: role("postgres"), rewind: role("rewinder"), replication: role("replicator") },
      parameters: { unix_socket_directories: where.directory }
    }
  })
}
