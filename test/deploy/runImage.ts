import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import type { Image } from "./buildImage.ts"

/** A process in the image. */
export interface ImageProcess {
  /** The PID on this machine, not within the image. */
  readonly pid: () => number | undefined
  readonly output: () => string
  readonly ended: Effect.Effect<number | null>
}

/**
 * What a container engine does with an image: its files as a root that cannot be written, further directories in it,
 * processes of its own, and a user without any privilege.
 */
const contain = `
set -e
chroot=$1; root=$2; user=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
mkdir -p "$root/proc"
mount -o remount,ro,bind "$root"
mount -t proc proc "$root/proc"
exec "$chroot" --userspec="$user" --groups="\${user#*:}" "$root" "$@"
`

/** Runs a program in the image, which is process 1 there, and kills it when the scope closes. */
export const runImage = Effect.fnUntraced(function* (
  { Env, root, User }: Image,
  args: ReadonlyArray<string>,
  mounts: Readonly<Record<string, string>>,
  variables: Record<string, string>
) {
  const { chroot, unshare } = yield* installedPrograms(["unshare", "chroot"])
  const given = Object.fromEntries(Env.map((line) => line.split(/=(.*)/s).slice(0, 2))) as Record<string, string>
  const binds = Object.entries(mounts).flatMap(([to, from]) => [from, to])
  const { child, ended, output } = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(
        unshare,
        [
          ...["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", contain, "contain"],
          ...[chroot, root, User, ...binds, "--", ...args]
        ],
        {
          env: { ...given, ...variables },
          stdio: ["ignore", "pipe", "pipe"]
        }
      )
      let output = ""
      for (const stream of [child.stdout, child.stderr])
        stream.setEncoding("utf8").on("data", (text: string) => (output += text))
      const ended = new Promise<number | null>((resolve) => child.once("close", (code) => resolve(code)))
      return { child, output: () => output, ended }
    }),
    ({ child, ended }) =>
      Effect.promise(() => {
        child.kill("SIGKILL")
        return ended
      })
  )
  return {
    pid: () => {
      const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim()
      return children === "" ? undefined : Number(children)
    },
    output,
    ended: Effect.promise(() => ended)
  } satisfies ImageProcess
})
