import { join } from "node:path"
import { parse } from "yaml"
import type { DatabaseNode } from "./DatabaseNode.ts"

interface PatroniFile {
  readonly bootstrap: Readonly<Record<string, unknown>>
  readonly postgresql: Readonly<Record<string, unknown>>
}

/** The example for Patroni, with the addresses and directories of a node on this machine, without TLS and passwords. */
export const localPatroni = (
  example: string,
  { data, name, postgres, rest }: DatabaseNode,
  where: { readonly directory: string; readonly etcd: number; readonly programs: string }
): string => {
  const file = parse(example) as PatroniFile
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
