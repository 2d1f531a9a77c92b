import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { broken, type Check, problemsOf } from "./Check.ts"

/** The exposure that systemd allows the unit at most, in tenths. */
const threshold = 15

/** byok makes no folder for its socket, and refuses one that others can write to. */
const lostSocket = (unit: string): ReadonlyArray<string> => {
  const valueOf = (name: string) => new RegExp(`^.*\\b${name}=(\\S+)$`, "m").exec(unit)?.[1] ?? "none"
  const [socket, folder, mode] = ["BYOK_GATEWAY_SOCKET", "RuntimeDirectory", "RuntimeDirectoryMode"].map(valueOf)
  return broken(
    [dirname(socket ?? "") === `/run/${folder}`, `${socket} is not in /run/${folder}`],
    [/^0[67][05]0$/.test(mode ?? ""), `RuntimeDirectoryMode=${mode} lets others in, or no service`]
  )
}

/** Links of a service behind a proxy begin with an address that only its operator knows. */
const namelessLinks = (guide: string): ReadonlyArray<string> =>
  broken([/^PUBLIC_URL=https:\S+' > \/etc\/byok\/environment$/m.test(guide), "the environment has no PUBLIC_URL"])

export const systemd: Check = {
  piece: "systemd/byok@.service",
  run: (deploy) =>
    Effect.gen(function* () {
      const { "systemd-analyze": analyze } = yield* installedPrograms(["systemd-analyze"])
      const unit = join(deploy, "systemd/byok@.service")
      const { stderr } = yield* runProgram(analyze, ["verify", unit])
      // The paths of byok and Node.js depend on the machine.
      const mistakes = stderr.split("\n").filter((line) => line !== "" && !/is not executable/.test(line))
      const security = yield* runProgram(analyze, [
        ...["security", "--offline=true", `--threshold=${threshold}`, "--no-pager"],
        unit
      ])
      const guide = readFileSync(join(deploy, "README.md"), "utf8")
      const misled = [...lostSocket(readFileSync(unit, "utf8")), ...namelessLinks(guide)]
      return [...mistakes, ...problemsOf(security).slice(-1), ...misled]
    }),
  mistakes: [
    ["systemd/byok@.service", "ProtectSystem=strict", "ProtectSystems=strict"],
    ["systemd/byok@.service", "CapabilityBoundingSet=\n", ""],
    ["systemd/byok@.service", "Restart=always", "Restart=sometimes"],
    ["systemd/byok@.service", "ExecStart=/usr", "ExecStart=usr"],
    ["systemd/byok@.service", "RuntimeDirectory=byok/%i", "RuntimeDirectory=byok"],
    ["systemd/byok@.service", "DirectoryMode=0750", "DirectoryMode=0777"],
    ["README.md", "PUBLIC_URL=https", "PUBLIC=https"]
  ]
}
