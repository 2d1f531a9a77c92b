import type { DatabaseNode } from "./DatabaseNode.ts"

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
    example.replace(/^( *bind) \S+$/m, `$1 127.0.0.1:${port}`)
  )
