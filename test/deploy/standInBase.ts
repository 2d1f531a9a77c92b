import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { runProgram } from "../support/process/runNode.ts"
import { Skipped } from "../support/process/installedPrograms.ts"

/** What the commands of the Containerfile need beside Node.js, and where they look for it. */
const programs = { "/bin/sh": "/bin/sh", "/usr/bin/env": "/usr/bin/env", "/usr/bin/rm": "/usr/bin/rm" }

const copy = (from: string, to: string) => {
  mkdirSync(dirname(to), { recursive: true })
  copyFileSync(from, to)
}

/**
 * Fills a directory with what stands in for the official image of Node.js, whose registry need not be reachable: the
 * Node.js of this checkout, npm, a shell, and the libraries of this machine that they load.
 */
export const standInBase = Effect.fnUntraced(function* (root: string) {
  const npm = process.env["npm_execpath"]
  if (npm === undefined) return yield* new Skipped({ why: "it is not run by npm, which the build needs" })
  const files = { ...programs, "/usr/local/bin/node": process.execPath }
  for (const [path, source] of Object.entries(files)) {
    copy(source, join(root, path))
    chmodSync(join(root, path), 0o755)
    const { stdout } = yield* runProgram("ldd", [source])
    for (const [library] of stdout.matchAll(/\/\S+/g)) {
      if (existsSync(library)) copy(library, join(root, library))
    }
  }
  cpSync(dirname(dirname(npm)), join(root, "usr/local/lib/node_modules/npm"), { recursive: true })
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(root, "usr/local/bin/npm"))
  for (const directory of ["tmp", "proc", "root", "etc", "var/run/postgresql", "usr/local/etc"])
    mkdirSync(join(root, directory), { recursive: true })
  chmodSync(join(root, "tmp"), 0o1777)
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n")
  // A proxy on the way to the registry of npm may have authorities of its own.
  const authorities = process.env["NODE_EXTRA_CA_CERTS"]
  if (authorities !== undefined) {
    copy(authorities, join(root, "etc/authorities.pem"))
    writeFileSync(join(root, "usr/local/etc/npmrc"), "cafile=/etc/authorities.pem\n")
  }
})
