import { Console as NodeConsole } from "node:console"
import { Readable, Writable } from "node:stream"
import { ConfigProvider, Console, Effect } from "effect"
import { StandardStreams } from "../../../src/cli/Output.ts"
import { run } from "../../../src/main.ts"
import { WriteLog } from "../../../src/wiring/StandardError.ts"
import { nowhere } from "./runByok.ts"
import { environment, type Finished } from "./runNode.ts"

const capture = () => {
  const parts: Array<Buffer> = []
  const stream = new Writable({
    write: (part: Buffer, _encoding, written) => {
      parts.push(part)
      written()
    }
  })
  return { stream, text: () => Buffer.concat(parts).toString("utf8") }
}

/**
 * Runs a command in this process as `runByok` does in one of its own: with these variables instead of the environment,
 * this standard input and output, and none of the test's clock, console and loggers.
 */
export const runCommand = (
  args: ReadonlyArray<string>,
  variables: Record<string, string> = {},
  input: string | Buffer = "",
  output?: Writable
): Effect.Effect<Finished> =>
  Effect.promise(async (signal) => {
    const [stdout, stderr] = [capture(), capture()]
    const streams = {
      stdin: Readable.from([Buffer.from(input)]),
      stdout: output ?? stdout.stream,
      stderr: stderr.stream
    }
    const writeLog = (bytes: Buffer) => {
      stderr.stream.write(bytes)
      return bytes.length
    }
    const env = { ...environment, ...nowhere, ...variables }
    const command = run(args).pipe(
      Effect.provideService(StandardStreams, streams),
      Effect.provideService(Console.Console, new NodeConsole(streams.stdout, streams.stderr)),
      Effect.provideService(WriteLog, writeLog),
      Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env })))
    )
    const code = await Effect.runPromise(command, { signal })
    return { code, stdout: stdout.text(), stderr: stderr.text() }
  })
