import { type ChildProcess, spawn } from "node:child_process"
import { basename } from "node:path"
import { Data, Effect } from "effect"
import { systemFault } from "../../runtime/systemFault.ts"

/** A program that prints a secret, without a shell. It gets only these variables of the environment. */
export interface SecretCommand {
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
}

/** How long a command may take, in milliseconds, and how many bytes it may print. Tests lower them. */
export const limits = { millis: 30_000, bytes: 64 * 1024 }

/** How much of standard error to keep, in characters, and how much of its last line to quote. */
const keptErrors = 4096
const quotedErrors = 300

/** A command that did not print a secret. The message never quotes its arguments or its standard output. */
export class SecretCommandFailed extends Data.TaggedError("SecretCommandFailed")<{ readonly message: string }> {}

/** The last line that is not empty, without control characters. */
const lastLineOf = (text: string) => {
  const line =
    text
      .trimEnd()
      .split(/[\r\n]/)
      .at(-1) ?? ""
  return line
    .replace(/\p{Cc}/gu, "")
    .trim()
    .slice(0, quotedErrors)
    .replace(/\.+$/, "")
}

/** Ends a child and every process of its group. */
const endGroup = ({ pid }: ChildProcess) => {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL")
  } catch {
    // The group has ended.
  }
}

/**
 * Runs a command, and passes the bytes of its standard output to `use`; wipes them afterwards. Fails if the command
 * fails, takes or prints too much, or leaves its standard output open; then, or when interrupted, ends its group.
 */
export const withOutputOf = <A>(
  { args, env, program }: SecretCommand,
  use: (output: Buffer) => A,
  { bytes, millis } = limits
): Effect.Effect<A, SecretCommandFailed> =>
  Effect.callback((resume) => {
    const name = basename(program)
    const chunks: Array<Buffer> = []
    let length = 0
    let errors = ""
    const wipe = () => chunks.forEach((chunk) => chunk.fill(0))
    const child = spawn(program, args, { env, detached: true, stdio: ["ignore", "pipe", "pipe"] })
    const end = () => {
      clearTimeout(timer)
      child.removeAllListeners("close")
      endGroup(child)
      wipe()
    }
    const refuse = (found: string) => {
      end()
      const message = `expected a command that prints the keyring; found that ${name} ${found}`
      resume(Effect.fail(new SecretCommandFailed({ message })))
    }
    const timer = setTimeout(() => refuse(`did not end within ${millis / 1000} seconds`), millis)
    child.on("error", (cause) => refuse(`cannot be run: ${systemFault(cause)}`))
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      errors = (errors + text).slice(-keptErrors)
    })
    child.stdout.on("data", (chunk: Buffer) => {
      chunks.push(chunk)
      length += chunk.length
      if (length > bytes) refuse(`printed more than ${bytes} bytes`)
    })
    child.once("close", (code, signal) => {
      if (code !== 0) {
        const line = lastLineOf(errors)
        return refuse(`ended with ${signal ?? `exit code ${code}`}${line === "" ? "" : `: ${line}`}`)
      }
      clearTimeout(timer)
      const output = Buffer.concat(chunks)
      wipe()
      resume(
        Effect.sync(() => {
          try {
            return use(output)
          } finally {
            output.fill(0)
          }
        })
      )
    })
    return Effect.sync(end)
  })
