import { chownSync, existsSync, readFileSync, writeFileSync } from "node:fs"
import { get } from "node:http"
import { join } from "node:path"
import { Effect } from "effect"
import { newCluster } from "../drill/Cluster.ts"
import { freePort } from "../support/database/listen.ts"
import { eventually } from "../support/process/eventually.ts"
import { runProgram } from "../support/process/runNode.ts"
import { Skipped } from "../support/process/installedPrograms.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { buildImage, type Image } from "./buildImage.ts"
import { broken, type Check } from "./Check.ts"
import { runImage } from "./runImage.ts"

/** Programs that the image must not contain. */
const tools = ["npm", "npx", "yarn", "gcc", "cc", "make", "python3"]

/** Whether the service is ready, asked over a new connection as probes do. */
const isReady = (port: number) =>
  Effect.callback<boolean>((resume) => {
    get({ host: "127.0.0.1", port, path: "/health/ready", agent: false }, (answer) => {
      answer.resume()
      resume(Effect.succeed(answer.statusCode === 200))
    }).once("error", () => resume(Effect.succeed(false)))
  })

const milliseconds = (since: number) => Math.round(performance.now() - since)

const fieldOf = (status: string, name: string) => new RegExp(`^${name}:\\s+(.*)$`, "m").exec(status)?.[1] ?? ""

/** The command of the Containerfile's HEALTHCHECK. */
const healthCheckIn = (deploy: string) => {
  const text = readFileSync(join(deploy, "Containerfile"), "utf8")
  return JSON.parse(/^HEALTHCHECK.*\\\n *CMD (\[.*\])$/m.exec(text)?.[1] ?? "[]") as ReadonlyArray<string>
}

/** Runs the image on a PostgreSQL as compose.yaml does, through its socket and with secrets as files. Returns the problems. */
const problemsOfRunning = Effect.fnUntraced(function* (image: Image, deploy: string) {
  const problems: Array<string> = []
  const [uid = 0, gid = 0] = image.User.split(":").map(Number)
  const secrets = yield* temporaryDirectory
  const write = (name: string, text: string) => {
    writeFileSync(join(secrets, name), text, { mode: 0o600 })
    chownSync(join(secrets, name), uid, gid)
  }
  const cluster = yield* Effect.orDie(newCluster())
  yield* cluster.start()
  write("environment", "DATABASE_URL=postgres://byok@localhost/postgres?host=/var/run/postgresql\n")
  const port = yield* freePort
  const mounts = { "/run/secrets": secrets, "/var/run/postgresql": cluster.socket }
  const [node = "", ...script] = image.Entrypoint
  const start = (args: ReadonlyArray<string>) =>
    runImage(image, [node, "--env-file=/run/secrets/environment", ...script, ...args], mounts, {
      BYOK_KEYRING_FILE: "/run/secrets/keyring",
      PORT: String(port)
    })
  const command = (...args: ReadonlyArray<string>) =>
    Effect.scoped(
      Effect.gen(function* () {
        const { ended, output } = yield* start(args)
        const code = yield* ended
        if (code !== 0) problems.push(`${args.join(" ")} ends with ${code}: ${output()}`)
        return output()
      })
    )
  write("keyring", yield* command("keyring", "generate"))
  yield* command("migrate")
  if (problems.length > 0) return problems

  const began = performance.now()
  const service = yield* start(image.Cmd)
  yield* eventually("the image is ready", isReady(port))
  const ready = milliseconds(began)
  const pid = service.pid()
  if (pid === undefined) return [`nothing runs: ${service.output()}`]
  const status = readFileSync(`/proc/${pid}/status`, "utf8")
  const mountinfo = readFileSync(`/proc/${pid}/mountinfo`, "utf8").split("\n")
  const healthCheck = healthCheckIn(deploy)
  const runHealthCheck = () =>
    Effect.scoped(Effect.flatMap(runImage(image, healthCheck, {}, { PORT: String(port) }), ({ ended }) => ended))
  const codeWhenReady = yield* runHealthCheck()
  const stopped = performance.now()
  process.kill(pid, image.StopSignal)
  const code = yield* service.ended
  const exit = milliseconds(stopped)
  const codeWhenStopped = yield* runHealthCheck()

  const resident = Math.round(Number.parseInt(fieldOf(status, "VmRSS")) / 1024)
  console.log(`ready after ${ready} ms, ${resident} MiB resident, ${exit} ms from ${image.StopSignal} to its end`)
  const ids = fieldOf(status, "Uid").split(/\s+/)
  return broken(
    [ids.every((id) => id === String(uid) && id !== "0"), "it runs as root"],
    [/^0+$/.test(fieldOf(status, "CapEff")), "it has capabilities"],
    [fieldOf(status, "NSpid").endsWith("\t1"), "it is not process 1"],
    [mountinfo.some((line) => / \/ ro,/.test(line)), "its root can be written"],
    [
      codeWhenReady === 0 && codeWhenStopped === 1,
      `its health check ends with ${codeWhenReady} when ready, ${codeWhenStopped} when stopped`
    ],
    [code === 0, `it ends with exit code ${code} on ${image.StopSignal}`]
  )
})

/** Builds the image and runs it once. */
export const image: Check = {
  piece: "image by buildah",
  run: (deploy) =>
    Effect.gen(function* () {
      if (process.getuid?.() !== 0 || process.platform !== "linux")
        return yield* new Skipped({ why: "only root on Linux can build and isolate it without a daemon" })
      const built = yield* buildImage(deploy)
      if (typeof built === "string") return [built]
      const { stdout } = yield* runProgram("du", ["--summarize", "--bytes", built.root])
      const kept = tools.filter((tool) =>
        ["usr/local/bin", "usr/bin", "bin"].some((directory) => existsSync(join(built.root, directory, tool)))
      )
      console.log(`the image has ${Math.round(Number.parseInt(stdout) / 1e6)} MB`)
      return [...(yield* problemsOfRunning(built, deploy)), ...kept.map((tool) => `${tool} is in the image`)]
    }),
  mistakes: [["Containerfile", "COPY tsconfig.json", "COPY tsconfig.jsonc"]]
}
