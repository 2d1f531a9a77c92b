import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { shipped } from "./Check.ts"
import { standInBase } from "./standInBase.ts"

/** The configuration of an image, as buildah shows it. */
interface Config {
  readonly Env: ReadonlyArray<string>
  readonly User: string
  readonly Entrypoint: ReadonlyArray<string>
  readonly Cmd: ReadonlyArray<string>
  readonly StopSignal: string
}

/** An image that was built, as a directory of its files. */
export interface Image extends Config {
  readonly root: string
}

/** The official image, where its registry can be reached. */
const nodeImage = process.env["NODE_IMAGE"]

/** Builds the image with buildah, which needs no daemon; returns the error if the build fails. */
export const buildImage = Effect.fnUntraced(function* (deploy: string) {
  const { buildah } = yield* installedPrograms(["buildah"])
  const directory = yield* temporaryDirectory
  const policy = join(directory, "policy.json")
  writeFileSync(policy, JSON.stringify({ default: [{ type: "insecureAcceptAnything" }] }))
  const storage = [
    ...["--root", join(directory, "storage"), "--runroot", join(directory, "run"), "--storage-driver", "vfs"]
  ]
  const variables = { ...programVariables(), HOME: directory }
  const call = (...args: ReadonlyArray<string>) => runProgram(buildah, [...storage, ...args], { variables })
  const build = (file: string, context: string, tag: string, ...args: ReadonlyArray<string>) =>
    call("bud", "--isolation", "chroot", "--signature-policy", policy, ...args, "-f", file, "-t", tag, context)

  if (nodeImage === undefined) {
    const base = join(directory, "base")
    mkdirSync(base)
    yield* standInBase(base)
    const file = join(directory, "Containerfile")
    writeFileSync(file, "FROM scratch\nCOPY . /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n")
    const { code, stderr } = yield* build(file, base, "localhost/stand-in")
    if (code !== 0) return `the stand-in for the base cannot be built: ${stderr}`
  }
  const built = yield* build(
    join(deploy, "Containerfile"),
    join(shipped, ".."),
    "localhost/byok",
    ...["--build-arg", `NODE_IMAGE=${nodeImage ?? "localhost/stand-in"}`],
    ...(nodeImage === undefined ? ["--pull-never"] : [])
  )
  if (built.code !== 0) return `buildah: ${built.stderr.split("\n").slice(-5).join("\n")}`
  const from = yield* call("from", "--signature-policy", policy, "--pull-never", "localhost/byok")
  const mounted = yield* call("mount", from.stdout.trim())
  const inspected = yield* call("inspect", "--type", "image", "localhost/byok")
  const { config } = (JSON.parse(inspected.stdout) as { readonly OCIv1: { readonly config: Config } }).OCIv1
  return { ...config, root: mounted.stdout.trim() } satisfies Image
})
