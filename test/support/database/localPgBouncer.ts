import type { DatabaseNode } from "./DatabaseNode.ts"

/** The example for PgBouncer, with the ports of a node on this machine, without TLS and passwords. */
export const localPgBouncer = (example: string, { pooler, postgres }: DatabaseNode, users: string): string => {
  const changed = { listen_addr: "127.0.0.1", listen_port: pooler, auth_type: "trust", auth_file: users }
  return Object.entries(changed).reduce(
    (text, [name, value]) => text.replace(new RegExp(`^${name} = .*$`, "m"), `${name} = ${value}`),
    example
      .replace(/^byok = host=\S+ port=\d+/m, `byok = host=127.0.0.1 port=${postgres}`)
      .replaceAll(/^client_tls_.*\n/gm, "")
  )
}
