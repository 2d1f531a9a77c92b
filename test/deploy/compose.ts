import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { parse } from "yaml"
import type { Check } from "./Check.ts"

interface Service {
  readonly command?: ReadonlyArray<string>
  readonly environment?: Readonly<Record<string, string>>
  readonly depends_on?: Readonly<Record<string, unknown>>
  readonly secrets?: ReadonlyArray<string>
  readonly volumes?: ReadonlyArray<string>
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>
  readonly secrets: Readonly<Record<string, unknown>>
  readonly volumes: Readonly<Record<string, unknown>>
}

interface Linted {
  readonly messages: ReadonlyArray<{ readonly type: string; readonly message: string }>
}

interface Dclint {
  readonly DCLinter: new (config: {
    readonly rules: object
    readonly quiet: boolean
    readonly debug: boolean
    readonly exclude: ReadonlyArray<string>
  }) => { readonly lintFiles: (paths: ReadonlyArray<string>, recursive: boolean) => ReadonlyArray<Linted> }
}

const require = createRequire(import.meta.url)

/** Its types cannot be resolved in an ES module. */
const { DCLinter } = require("dclint") as Dclint

/** Secrets and volumes that services name and the file does not declare: the schema of Compose does not check this. */
const unknownNames = ({ secrets, services, volumes }: Compose) =>
  Object.entries(services).flatMap(([name, service]) =>
    [
      ...Object.keys(service.depends_on ?? {}).map((other) => [other, services] as const),
      ...(service.secrets ?? []).map((secret) => [secret, secrets] as const),
      ...(service.volumes ?? [])
        .filter((volume) => !volume.startsWith("."))
        .map((volume) => [volume.split(":")[0] ?? "", volumes] as const)
    ].flatMap(([other, known]) => (other in known ? [] : [`${name} names ${other}, which there is not`]))
  )

/** Services that mount the keyring as a file: they would not see the file that replaces it. */
const stuckKeyrings = ({ services }: Compose) =>
  Object.entries(services).flatMap(([name, { environment = {}, volumes = [] }]) => {
    const file = environment["BYOK_KEYRING_FILE"]
    const mounted = volumes.map((volume) => volume.split(":")[1])
    return file === undefined || mounted.includes(dirname(file)) ? [] : [`${name} does not mount the keyring's folder`]
  })

/** Services whose socket for gateways is in no volume that they own and that others cannot write to. */
const lostSockets = ({ services, volumes }: Compose) =>
  Object.entries(services).flatMap(([name, { environment = {}, volumes: mounts = [] }]) => {
    const socket = environment["BYOK_GATEWAY_SOCKET"]
    if (socket === undefined) return []
    const [volume = ""] = mounts.find((mount) => mount.split(":")[1] === dirname(socket))?.split(":") ?? []
    const isOwn = /"o":"mode=07[05]0,uid=\d+,gid=\d+"/.test(JSON.stringify(volumes[volume] ?? null))
    return isOwn ? [] : [`${name} has its socket for gateways in no volume of its own`]
  })

/** Services that listen for others and make links that nobody could open. */
const namelessLinks = ({ services }: Compose) =>
  Object.entries(services).flatMap(([name, { command, environment = {} }]) =>
    command?.includes("serve") === true && environment["PUBLIC_URL"] === undefined
      ? [`${name} does not know where browsers reach it`]
      : []
  )

export const compose: Check = {
  piece: "compose.yaml",
  run: (deploy) => {
    const path = join(deploy, "compose.yaml")
    const linter = new DCLinter({ rules: {}, quiet: true, debug: false, exclude: [] })
    const linted = linter.lintFiles([path], false)
    const errors = linted.flatMap(({ messages }) =>
      messages.filter(({ type }) => type === "error").map(({ message }) => message)
    )
    const file = parse(readFileSync(path, "utf8"), { merge: true }) as Compose
    return errors.length > 0
      ? errors
      : [...unknownNames(file), ...stuckKeyrings(file), ...lostSockets(file), ...namelessLinks(file)]
  },
  mistakes: [
    ["compose.yaml", "read_only: true", "readonly: true"],
    ["compose.yaml", "service_completed_successfully", "service_completed"],
    ["compose.yaml", "secrets: [environment]", "secrets: [environments]"],
    ["compose.yaml", "/keyring:/run/keyring:ro", "/keyring/keyring:/run/keyring/keyring:ro"],
    ["compose.yaml", "migrate: {", "migration: {"],
    ["compose.yaml", "interval: 10s", "interval: [10s]"],
    ["compose.yaml", "- gateway:/run/byok", "- gateway:/run/gateway"],
    ["compose.yaml", "mode=0750", "mode=0777"],
    ["compose.yaml", "PUBLIC_URL: ", "PUBLIC: "]
  ]
}
